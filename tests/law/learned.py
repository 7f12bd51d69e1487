"""The learned drafters under law: one way to build each, and a text to follow it through.

A mechanism is added by its formats: a writer of tiny random checkpoints each (tests/checkpoints).
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from actors.contracts import Commit, DraftRequest, OpenSession, Proposal, SessionKey
from actors.drafters.config import DrafterConfig
from actors.drafters.learned.base import FeatureDrafter
from actors.drafters.table import build_drafter
from actors.engine.core import Engine
from actors.exchange.compat import Compat
from actors.exchange.form import FeatureForm
from actors.exchange.gathering import Patience
from actors.exchange.link import Endpoint
from actors.exchange.pool import PortOptions, RemotePort
from actors.exchange.server import DraftingServer
from actors.sampling.params import SamplingParams
from tests.checkpoints import block, eagle, mtp
from tests.checkpoints.target import made_up, target, target_folder
from tests.law.harness import GREEDY, make_engine
from tests.unit.actors.exchange.helpers import wait_for


class Written(Protocol):
    """A checkpoint that was written. mechanism: the method that runs it."""

    @property
    def mechanism(self) -> str: ...


MECHANISMS: dict[str, Callable[[Path], Written]] = {
    **block.FORMATS,
    **eagle.FORMATS,
    **mtp.FORMATS,
}
"""Writers of checkpoints, by the public format."""


@functools.cache
def checkpoint(name: str) -> tuple[Path, str]:
    """Its folder and method."""
    folder = Path(tempfile.mkdtemp(prefix="pilotfish-drafter-"))
    return folder, MECHANISMS[name](folder).mechanism


def configured(name: str, **fields: Any) -> DrafterConfig:
    """In fp64 for the tests' target."""
    folder, method = checkpoint(name)
    settings: dict[str, Any] = {
        "model": str(folder),
        "target": str(target_folder()),
        "num_speculative_tokens": 4,
        "dtype": "float64",
        **fields,
    }
    return DrafterConfig(method, **settings)


def make(name: str, **fields: Any) -> FeatureDrafter:
    drafter = build_drafter(configured(name, **fields))
    assert isinstance(drafter, FeatureDrafter)
    return drafter


@dataclass
class Follower:
    """One session: tokens are the committed text."""

    drafter: FeatureDrafter
    name: str
    tokens: list[int]
    sampling: SamplingParams = GREEDY
    prompt_len: int = 0
    key: SessionKey = field(init=False)

    def __post_init__(self) -> None:
        self.prompt_len = len(self.tokens)
        self.key = SessionKey("v", self.name)

    @property
    def width(self) -> int:
        return self.drafter.feature_dim

    def opening(self) -> OpenSession:
        n = len(self.tokens)
        rows = made_up(self.tokens, 0, n - 1, self.width)
        return OpenSession(
            self.key, tuple(self.tokens), self.sampling, features=rows, prompt_len=self.prompt_len
        )

    def commit(self, tokens: Sequence[int]) -> Commit:
        start = len(self.tokens)
        self.tokens.extend(tokens)
        rows = made_up(self.tokens, start - 1, len(self.tokens) - 1, self.width)
        return Commit(self.key, 0, start, tuple(tokens), rows)


def propose(drafter: FeatureDrafter, wanted: dict[SessionKey, int]) -> dict[SessionKey, Proposal]:
    """Blocks, asked for until no session is cold."""
    found: dict[SessionKey, Proposal] = {}
    for _ in range(200):
        open_ = [DraftRequest(key, depth) for key, depth in wanted.items() if key not in found]
        for proposal in drafter.propose(open_):
            if not proposal.cold:
                found[proposal.key] = proposal
        if len(found) == len(wanted):
            return found
    raise AssertionError("a session stays cold")


def fresh(name: str, follower: Follower, depth: int, **fields: Any) -> Proposal:
    """What a drafter that reads the whole prefix at once proposes: one without sessions, which
    nothing of earlier ones outlives (a law of its own)."""
    drafter = _fresh(name, **fields)
    drafter.open([follower.opening()])
    found = propose(drafter, {follower.key: depth})[follower.key]
    drafter.close(follower.key)
    assert not len(drafter.sessions)
    return found


@functools.cache
def _fresh(name: str, **fields: Any) -> FeatureDrafter:
    return make(name, prefill_rows=10_000, **fields)


def assert_same_block(a: Proposal, b: Proposal) -> None:
    """The same block; laws and confidences to rounding."""
    assert (a.base_len, a.tokens) == (b.base_len, b.tokens)
    assert (a.confidence is None) == (b.confidence is None)
    if a.confidence is not None and b.confidence is not None:
        torch.testing.assert_close(
            torch.tensor(a.confidence), torch.tensor(b.confidence), atol=1e-6, rtol=0
        )


@contextmanager
def over_the_wire(
    *drafters: FeatureDrafter, form: FeatureForm | None = None
) -> Iterator[tuple[Engine, list[DraftingServer]]]:
    """An engine of the tests' target whose drafters stand behind gRPC servers of their own."""
    compat = Compat(taps=drafters[0].info.taps)
    servers = [DraftingServer(d, name=f"d{i}", compat=compat) for i, d in enumerate(drafters)]
    endpoints = [Endpoint(f"d{i}", f"127.0.0.1:{s.start()}") for i, s in enumerate(servers)]
    options = PortOptions(patience=Patience(fixed_wait_s=5.0))
    port = RemotePort("v", compat=compat, vocab_size=block.VOCAB, options=options, form=form)
    port.set_endpoints(endpoints)
    engine = make_engine(target(), port=port, depth=4)
    try:
        wait_for(lambda: all(link.up for link in port.status()))
        yield engine, servers
    finally:
        engine.shutdown()
        for server in servers:
            server.stop(0.0)
