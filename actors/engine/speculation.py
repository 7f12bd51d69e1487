"""Which drafted rows are worth their place in a step, by what came of those before.

Every block that is offered is scored against the tokens committed after it, whether or not the
target verified it: under `greedy` and `coupled` what the target writes does not depend on drafts,
so the score is unbiased, and a request at D = 0 keeps learning what drafting would bring.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from actors.contracts import Draft
from policies.acceptance import Acceptance, survival, verified
from policies.budget import MARGIN, allot
from policies.cost import Cost, observed, seconds

MEMORY = 40.0
"""Blocks a request's own counts remember; texts change their nature quickly."""
WEIGHT = 4.0
"""Blocks' worth of belief in the engine's counts, for a request that has few of its own."""
PATIENCE = 4
"""So many blocks in a row are offered in vain before fewer are asked for,"""
REST = 8
"""namely one in so many rounds."""
HOPE = 0.8
"""How well blocks may do of which little is known."""
JUDGE_EVERY = 16
"""Steps between two looks at a batch that keeps its size."""


@dataclass(slots=True)
class _Track:
    acceptance: Acceptance = field(default_factory=Acceptance)
    offered: tuple[int, ...] = ()  # the block being scored, and how much of it has come true
    matched: int = 0
    idle: int = 0  # rounds since a drafted row was last verified


class Speculation:
    """The engine's choice of D, request by request and step by step (DESIGN §9)."""

    def __init__(self, cost: Cost) -> None:
        self.cost = cost
        self._all = Acceptance()
        self._tracks: dict[str, _Track] = {}
        self._hopeless = False
        self._judged = ((0, 0), 0)  # (writers, depth) of the last judgement, and steps since

    def __len__(self) -> int:
        return len(self._tracks)

    def ask(self, request_id: str, depth: int) -> int:
        """How much of `depth` to ask of the drafter for the next round: all or, at a request whose
        blocks have not been worth verifying, now and then all and else nothing."""
        track = self._tracks.get(request_id)
        if track is None or not depth or track.idle < PATIENCE:
            return depth
        track.idle += 1
        return 0 if track.idle % REST else depth

    def select(
        self, drafts: Mapping[str, Draft], writers: int, other_rows: int = 0
    ) -> dict[str, Draft]:
        """The drafts, cut to what is worth verifying; those of which nothing is are left out.
        writers: requests that write in this step; other_rows: of prompts."""
        offers = [(request_id, draft) for request_id, draft in drafts.items() if draft.tokens]
        tracks = [self._offer(request_id, draft.tokens) for request_id, draft in offers]
        chances = [
            survival(track.acceptance, len(draft.tokens), self._all, WEIGHT)
            for track, (_, draft) in zip(tracks, offers, strict=True)
        ]
        depths = allot(
            chances, writers, lambda rows: seconds(self.cost, rows), other_rows=other_rows
        )
        chosen: dict[str, Draft] = {}
        for track, depth, (request_id, draft) in zip(tracks, depths, offers, strict=True):
            track.idle = 0 if depth else track.idle + 1
            if depth:
                chosen[request_id] = replace(draft, tokens=draft.tokens[:depth])
        return chosen

    def hopeless(self, writers: int, depth: int) -> bool:
        """Whether even good blocks would not pay in a batch of `writers` requests: their tokens
        accepted at the rate seen so far, or at HOPE where that is more."""
        if writers < 2 or not depth:
            return False
        last, age = self._judged
        if (writers, depth) == last and age < JUDGE_EVERY:
            self._judged = (last, age + 1)
            return self._hopeless
        self._judged = ((writers, depth), 0)
        rate = max(HOPE, survival(self._all, 1)[0])
        block = [rate**k for k in range(1, depth + 1)]
        margin = (2 if self._hopeless else 1) * MARGIN  # harder to come back than to stay
        self._hopeless = not any(
            allot([block] * writers, writers, lambda rows: seconds(self.cost, rows), margin=margin)
        )
        return self._hopeless

    def settle(self, request_id: str, tokens: Sequence[int]) -> None:
        """Score the block that was offered against the tokens committed after it."""
        track = self._tracks.get(request_id)
        if track is None or not track.offered:
            return
        for token in tokens:
            if token != track.offered[track.matched]:
                break
            track.matched += 1
            if track.matched == len(track.offered):
                break
        else:
            return  # right so far, and more is to come
        size = len(track.offered)
        track.acceptance = verified(track.acceptance, size, track.matched, MEMORY)
        self._all = verified(self._all, size, track.matched)
        track.offered = ()

    def forget(self, request_id: str) -> None:
        self._tracks.pop(request_id, None)

    def observe(self, rows: int, took_s: float) -> None:
        """After a step without prompts."""
        self.cost = observed(self.cost, rows, took_s)

    def _offer(self, request_id: str, tokens: tuple[int, ...]) -> _Track:
        track = self._tracks.setdefault(request_id, _Track())
        if not track.offered:
            track.offered, track.matched = tokens, 0
        return track
