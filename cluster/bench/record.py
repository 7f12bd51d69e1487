"""The record of a run: everything that a reader needs to believe it or to repeat it, as JSON."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.bench.errors import BenchError
from cluster.bench.machine import Machine
from cluster.bench.pareto import Point
from cluster.bench.summary import LegFigures

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Refused:
    """A leg that is not reported in a setting, and why."""

    leg: str
    temperature: float
    load: str
    run: int
    reason: str


@dataclass(frozen=True, slots=True)
class Workload:
    """What was asked. digest: of the prompts; two records with the same one asked the same."""

    dataset: str
    digest: str
    prompts: int
    duplicates: int
    prompts_a_run: int
    runs: int
    max_tokens: int
    ignore_eos: bool
    warmup: int
    seed: int


@dataclass(frozen=True, slots=True)
class Record:
    """busy: load average of the machine before the first and after the last cell; a quiet machine
    is near 0 before."""

    date: str
    command: str
    machine: Machine
    versions: Mapping[str, str]
    model: Mapping[str, object]
    workload: Workload
    busy: tuple[float | None, float | None]
    figures: tuple[LegFigures, ...]
    refused: tuple[Refused, ...]
    front: tuple[Point, ...]

    def document(self) -> dict[str, Any]:
        return {"format": FORMAT, **dataclasses.asdict(self)}


def write(record: Record, path: Path) -> None:
    """Whole or not at all."""
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(record.document(), indent=1, ensure_ascii=False) + "\n", "utf-8")
    os.replace(draft, path)


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a comparison needs of an earlier record. busy: the load average it began at."""

    path: Path
    date: str
    machine: Machine
    workload: Mapping[str, Any]
    versions: Mapping[str, str]
    model: Mapping[str, Any]
    busy: float | None
    figures: Sequence[Mapping[str, Any]]


def read(path: Path) -> Baseline:
    """Raises BenchError for a file that is no record of this format."""
    try:
        document = json.loads(path.read_text("utf-8"))
        if document["format"] != FORMAT:
            raise BenchError(f"--baseline: {path} has format {document['format']}, not {FORMAT}")
        machine = dict(document["machine"])
        machine["gpus"] = tuple(machine["gpus"])
        return Baseline(
            path=path,
            date=document["date"],
            machine=Machine(**machine),
            workload=document["workload"],
            versions=document["versions"],
            model=document["model"],
            busy=document["busy"][0],
            figures=document["figures"],
        )
    except (OSError, UnicodeDecodeError) as error:
        raise BenchError(f"--baseline: cannot read {path}: {error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise BenchError(f"--baseline: {path} is no record of this benchmark: {error!r}") from None
