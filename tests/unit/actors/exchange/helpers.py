"""Builders for the exchange's tests: a running request, a drafter, servers and ports that stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from actors.contracts import (
    Commit,
    Drafter,
    DrafterInfo,
    DraftPort,
    DraftRequest,
    Gathered,
    OpenSession,
    PortCommit,
    Proposal,
    SessionKey,
)
from actors.exchange.compat import Compat
from actors.exchange.gathering import Patience
from actors.exchange.link import Endpoint
from actors.exchange.pool import PortOptions, RemotePort
from actors.exchange.server import DraftingServer
from actors.sampling.params import SamplingParams

torch.set_num_threads(1)

GREEDY = SamplingParams(temperature=0.0, max_tokens=64)
STEP_S = 5.0
"""What a block is worth to a patient engine: it is waited for as long as a test may take."""


def next_token(tokens: Sequence[int]) -> int:
    """The toy target: a fixed function of the last two tokens, over 97 ids."""
    return (31 * tokens[-1] + 17 * (tokens[-2] if len(tokens) > 1 else 0) + 7) % 97


def continuation(tokens: Sequence[int], count: int) -> tuple[int, ...]:
    text = list(tokens)
    for _ in range(count):
        text.append(next_token(text))
    return tuple(text[len(tokens) :])


@dataclass
class View:
    """A running request; `rows` are its tapped hidden states, one a token that has KV."""

    request_id: str
    tokens: list[int]
    sampling: SamplingParams = GREEDY
    tenant: str = ""
    trace: tuple[str, str] = ("", "")
    rows: torch.Tensor | None = None
    prompt_len: int = 0

    def __post_init__(self) -> None:
        self.prompt_len = len(self.tokens)

    def features(self, from_row: int, to_row: int) -> torch.Tensor | None:
        if self.rows is None or to_row > min(len(self.tokens) - 1, self.rows.shape[0]):
            return None
        return self.rows[from_row:to_row].clone()


@dataclass
class Engine:
    """The engine's side of a port without a model: verifies blocks against `next_token`."""

    port: DraftPort
    depth: int = 4
    worth_s: float = STEP_S
    views: dict[str, View] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    accepted: int = 0
    drafted: int = 0

    def start(self, *views: View) -> None:
        for view in views:
            self.views[view.request_id] = view
            self.rounds[view.request_id] = 0
            self.port.open(view)
        self.commit({view.request_id: (next_token(view.tokens),) for view in views})

    def commit(self, texts: dict[str, tuple[int, ...]]) -> None:
        commits = []
        for request_id, tokens in texts.items():
            view = self.views[request_id]
            from_len = len(view.tokens)
            view.tokens.extend(tokens)
            self.rounds[request_id] += 1
            commits.append(
                PortCommit(request_id, self.rounds[request_id], from_len, tokens, self.depth)
            )
        self.port.commit(commits)

    @property
    def wanted(self) -> dict[str, int]:
        return dict.fromkeys(self.views, self.depth)

    def gather(self) -> Gathered:
        return self.port.gather(self.wanted, dict.fromkeys(self.views, self.worth_s))

    def step(self) -> Gathered:
        gathered = self.gather()
        texts = {}
        for request_id, view in self.views.items():
            draft = gathered.drafts.get(request_id)
            block = draft.tokens if draft else ()
            truth = continuation(view.tokens, len(block) + 1)
            accepted = 0
            while accepted < len(block) and block[accepted] == truth[accepted]:
                accepted += 1
            self.accepted += accepted
            self.drafted += len(block)
            texts[request_id] = truth[: accepted + 1]
        self.commit(texts)
        return gathered

    def stop(self, *request_ids: str) -> None:
        for request_id in request_ids or list(self.views):
            del self.views[request_id]
            self.port.close(request_id, "stop")


class ToyDrafter:
    """Knows the toy target. Records its calls; `spoil` may change what it proposes or raise."""

    def __init__(self, *, taps: tuple[int, ...] = (), **info: Any) -> None:
        self.info = DrafterInfo(
            info.pop("mechanism", "toy"), "1", needs_features=bool(taps), taps=taps, **info
        )
        self.tokens: dict[SessionKey, list[int]] = {}
        self.rows: dict[SessionKey, list[torch.Tensor]] = {}
        self.log: dict[SessionKey, list[torch.Tensor]] = {}
        self.opened: list[SessionKey] = []
        self.batches: list[int] = []
        self.changed = threading.Condition()
        self.spoil: Callable[[list[Proposal]], list[Proposal]] = lambda proposals: proposals

    def open(self, sessions: Sequence[OpenSession]) -> None:
        for session in sessions:
            self.opened.append(session.key)
            self.tokens[session.key] = list(session.tokens)
            self.rows[session.key] = self.log[session.key] = []
            self._take(session.key, session.features, 0, len(session.tokens) - 1)

    def observe(self, commits: Sequence[Commit]) -> None:
        for commit in commits:
            tokens = self.tokens[commit.key]
            if len(tokens) != commit.from_len:
                raise AssertionError(f"a gap: {len(tokens)} tokens, from_len {commit.from_len}")
            tokens.extend(commit.tokens)
            self._take(commit.key, commit.features, commit.from_len - 1, len(commit.tokens))

    def _take(self, key: SessionKey, rows: torch.Tensor | None, start: int, count: int) -> None:
        if not self.info.needs_features:
            return
        have = sum(part.shape[0] for part in self.rows[key])
        if rows is None or rows.shape[0] != count or have != start:
            raise AssertionError("features are not the rows of the tokens")
        self.rows[key].append(rows)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        self.batches.append(len(requests))
        return self.spoil(
            [
                Proposal(r.key, len(self.tokens[r.key]), continuation(self.tokens[r.key], r.depth))
                for r in requests
            ]
        )

    def close(self, key: SessionKey) -> None:
        with self.changed:
            self.tokens.pop(key, None)
            self.rows.pop(key, None)
            self.changed.notify_all()

    def wait_empty(self, timeout_s: float = 10.0) -> bool:
        """Law L3: nothing of any session is left."""
        with self.changed:
            return self.changed.wait_for(lambda: not self.tokens and not self.rows, timeout_s)


@contextmanager
def serving(drafter: Drafter, name: str = "d0", **options: Any) -> Iterator[Endpoint]:
    """A drafter behind a real server on loopback."""
    server = DraftingServer(drafter, name=name, **options)
    port = server.start()
    try:
        yield Endpoint(name, f"127.0.0.1:{port}", drafter.info.mechanism)
    finally:
        server.stop(0.5)


@contextmanager
def ported(
    *endpoints: Endpoint, verifier: str = "v0", wait: bool = True, **options: Any
) -> Iterator[RemotePort]:
    """A port whose drafters are up."""
    options.setdefault("options", PortOptions(patience=Patience(fixed_wait_s=STEP_S)))
    port = RemotePort(verifier, **options)
    port.set_endpoints(endpoints)
    try:
        if wait:
            wait_for(lambda: all(r.up for r in port.status()))
        yield port
    finally:
        port.shutdown()


def tapped(taps: tuple[int, ...]) -> Compat:
    return Compat(taps=taps)


def wait_for(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Until another thread has made it true; fails the test when it never does."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "it never became true"
        time.sleep(0.002)


def make_views(count: int) -> list[View]:
    return [View(f"r{i}", [i, i + 1]) for i in range(count)]


def assert_text_is_the_targets(engine: Engine) -> None:
    for view in engine.views.values():
        prompt, text = view.tokens[: view.prompt_len], view.tokens[view.prompt_len :]
        assert tuple(text) == continuation(prompt, len(text))


def step_until(engine: Engine, condition: Any, seconds: float = 15.0) -> None:
    deadline_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline_s, "it never became true"
        engine.step()
        time.sleep(0.005)
