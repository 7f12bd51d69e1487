"""What `pilotfish bench` was asked for, checked before anything starts."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from cluster.bench.errors import BenchError
from cluster.bench.legs import Leg, parse_legs
from cluster.bench.loads import Load, parse_loads
from cluster.bench.schedule import Setting
from cluster.config import Dtype

DEFAULT_LEGS = "suffix:4@colocated,suffix:4@remote"
DEFAULT_ATTACHED_LEGS = "served:4"


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """attach, attach_http: gRPC address and HTTP root of a server that runs; None starts servers.
    prompts: of one run. baseline: a record, or a folder of them. command: as it was typed."""

    model: str
    legs: tuple[Leg, ...]
    loads: tuple[Load, ...]
    temperatures: tuple[float, ...]
    dataset: Path | None
    prompts: int
    runs: int
    max_tokens: int
    ignore_eos: bool
    warmup: int
    seed: int
    dtype: Dtype
    max_model_len: int
    verifier_gpus: float
    drafter_gpus: float
    output: Path | None
    attach: str | None
    attach_http: str | None
    api_key: str | None
    baseline: Path | None
    command: str

    @property
    def settings(self) -> tuple[Setting, ...]:
        return tuple(Setting(t, load) for t in self.temperatures for load in self.loads)

    @property
    def clients(self) -> int:
        """The most requests that a closed loop keeps in flight."""
        return max((load.clients or 1 for load in self.loads), default=1)


def legs_of(text: str | None, attach: str | None) -> tuple[Leg, ...]:
    default = DEFAULT_LEGS if attach is None else DEFAULT_ATTACHED_LEGS
    return parse_legs(default if text is None else text, attached=attach is not None)


def loads_of(concurrency: str | None, request_rate: str | None) -> tuple[Load, ...]:
    """One and four clients where nothing was said."""
    if concurrency is None:
        concurrency = "1,4" if request_rate is None else ""
    return parse_loads(concurrency, request_rate or "")


def temperatures_of(text: str) -> tuple[float, ...]:
    found = []
    for word in (word.strip() for word in text.split(",") if word.strip()):
        try:
            value = float(word)
        except ValueError:
            value = -1.0
        if not 0.0 <= value <= 2.0:
            raise BenchError(f"--temperature: {word[:20]!r} is not a number from 0 to 2")
        found.append(value)
    if not found:
        raise BenchError("--temperature: none is given")
    return tuple(dict.fromkeys(found))


def dtype_of(text: str) -> Dtype:
    known = get_args(Dtype)
    if text not in known:
        close = difflib.get_close_matches(text, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise BenchError(f"--dtype: unknown {text[:20]!r}{hint} Known: {', '.join(known)}")
    return cast(Dtype, text)
