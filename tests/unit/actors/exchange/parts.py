"""Ports for the tests of several arms: they keep what they are told and fail on any gap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from actors.contracts import Draft, Gathered, PortCommit, SessionView
from actors.exchange.arms import ArmsPort
from actors.exchange.arms_part import Part
from actors.exchange.status import LinkRecord
from policies.choice import Arm
from tests.unit.actors.exchange.helpers import View, continuation

HIDDEN = 3


@dataclass
class Kept:
    """One session: what has been told, and the feature rows that came with it."""

    view: SessionView
    tokens: list[int]
    rows: list[torch.Tensor] = field(default_factory=list)
    depth: int = 0
    evidence: int = 0


class StrictPort:
    """Implements `actors.contracts.DraftPort`: knows the toy target.

    up: what `arms` says. breaks: names of calls that raise. cold: evidence does not come yet.
    """

    def __init__(self, mechanism: str, remote: bool = True, taps: tuple[int, ...] = ()) -> None:
        self.arm = Arm(mechanism, remote, 8)
        self.taps = taps
        self.up = True
        self.breaks: set[str] = set()
        self.cold = False
        self.sessions: dict[str, Kept] = {}
        self.closed: list[tuple[str, str]] = []
        self.asks: list[tuple[str, int, int]] = []
        self.worths: list[Mapping[str, float]] = []

    @property
    def arms(self) -> tuple[Arm, ...]:
        self._call("arms")
        return (self.arm,) if self.up else ()

    def open(self, view: SessionView) -> None:
        self._call("open")
        assert view.request_id not in self.sessions
        self.sessions[view.request_id] = Kept(view, list(view.tokens))

    def prefilled(self, request_id: str, rows: int) -> None:
        self._call("prefilled")
        assert request_id in self.sessions

    def commit(self, commits: Sequence[PortCommit]) -> None:
        self._call("commit")
        assert len({c.request_id for c in commits}) == len(commits)
        for commit in commits:
            kept = self.sessions[commit.request_id]
            assert len(kept.tokens) == commit.from_len
            kept.tokens += commit.tokens
            assert kept.tokens == list(kept.view.tokens)
            self._features(kept, commit)
            kept.depth, kept.evidence = commit.depth, commit.evidence
            if commit.depth or commit.evidence:
                self.asks.append((commit.request_id, commit.depth, commit.evidence))

    def _features(self, kept: Kept, commit: PortCommit) -> None:
        features = kept.view.features(*commit.rows)
        if not self.taps:
            assert features is None
            return
        if not kept.rows:
            before = kept.view.features(0, commit.from_len - 1)
            assert before is not None
            kept.rows.append(before)
        assert features is not None
        assert features.shape == (len(commit.tokens), len(self.taps) * HIDDEN)
        kept.rows.append(features)

    def gather(self, wanted: dict[str, int], worth_s: Mapping[str, float]) -> Gathered:
        self._call("gather")
        self.worths.append({name: worth_s[name] for name in wanted if name in worth_s})
        gathered = Gathered(waited_s=0.5 if wanted else 0.0)
        for request_id, depth in wanted.items():
            kept = self.sessions.get(request_id)
            if kept is None or not kept.depth:
                gathered.missing[request_id] = "no-drafter" if kept is None else "depth-0"
            elif len(kept.tokens) < len(kept.view.tokens):
                gathered.missing[request_id] = "stale"
            else:
                gathered.drafts[request_id] = self._draft(kept, min(depth, kept.depth))
        for request_id, kept in self.sessions.items():
            if kept.evidence and not self.cold:
                gathered.shadows[request_id] = self.arm, self._draft(kept, kept.evidence)
                kept.evidence = 0
        return gathered

    def _draft(self, kept: Kept, depth: int) -> Draft:
        return Draft(continuation(kept.tokens, depth), self.arm.mechanism, self.arm.remote, 7)

    def close(self, request_id: str, reason: str) -> None:
        self._call("close")
        self.closed.append((request_id, reason))
        self.sessions.pop(request_id, None)

    def status(self) -> list[LinkRecord]:
        return [LinkRecord(self.arm.mechanism, "", self.arm.mechanism, self.up, "up")]

    def shutdown(self) -> None:
        self._call("shutdown")
        self.sessions.clear()

    def _call(self, name: str) -> None:
        if name in self.breaks:
            raise RuntimeError(f"{name} is broken")


def arms_port(*ports: StrictPort) -> ArmsPort:
    return ArmsPort([Part(p.arm.mechanism, p.arm.remote, p) for p in ports])


@dataclass
class Writer:
    """The engine's side of one request: writes the toy target's text, a few tokens a round."""

    port: ArmsPort
    view: View
    round: int = 0

    @staticmethod
    def start(port: ArmsPort, name: str = "r", prompt: Sequence[int] = (1, 2, 3)) -> Writer:
        """With features of every row that a test may come to, for all the port's taps."""
        rows = None
        if port.taps:
            rows = torch.arange(4096 * len(port.taps) * HIDDEN).view(4096, -1).float()
        view = View(name, list(prompt), rows=rows)
        port.open(view)
        return Writer(port, view)

    def write(
        self,
        count: int = 1,
        depth: int = 0,
        arm: Arm | None = None,
        shadow: tuple[Arm, int] | None = None,
    ) -> None:
        """A round that commits `count` tokens and asks for the next."""
        start = len(self.view.tokens)
        tokens = continuation(self.view.tokens, count)
        self.view.tokens.extend(tokens)
        self.round += 1
        name = self.view.request_id
        self.port.commit(
            [PortCommit(name, self.round, start, tokens, depth, arm=arm, shadow=shadow)]
        )

    def gather(self, depth: int = 4) -> Gathered:
        return self.port.gather({self.view.request_id: depth}, {self.view.request_id: 1.0})
