"""Which drafted rows are worth their place in a step, by what came of those before.

Every block that is offered is scored against the tokens committed after it, whether or not the
target verified it: under `greedy` and `coupled` what the target writes does not depend on drafts,
so the score is unbiased, and a request at D = 0 keeps learning what drafting would bring. Blocks
that come late are scored whole, by what was committed meanwhile: steps that wait for nothing would
else see lucky blocks only. Which blocks come at all, and how long, is counted apart.

Where laws are weighed what is written depends on what was verified, and a token that equals the
draft is rarer than a draft that is accepted: verdicts are the score, and blocks that are not worth
verifying are verified now and then to have one. No choice here looks at what was drafted, not even
at how much: a block counts as long as was asked for (S16).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from actors.contracts import Draft, Gathered
from actors.sampling.rules import DEFAULT, Rule, weighs_laws
from policies.acceptance import Acceptance, survival, verified
from policies.budget import MARGIN, allot
from policies.cost import Cost, observed, seconds
from policies.waiting import worths

MEMORY = 40.0
"""Blocks a request's own counts remember; texts change their nature quickly."""
WEIGHT = 4.0
"""Blocks' worth of belief in the engine's counts, for a request that has few of its own."""
PATIENCE = 4
"""So many blocks in a row are asked for in vain before fewer are asked for,"""
VAIN = frozenset({"late", "stale", "empty"})
"""What a drafter did with an ask that was not worth asking; else it could not be asked at all."""
REST = 8
"""namely one in so many rounds."""
CAUTION = 0.8
"""Of what a block is expected to be worth, so much is waited: only the wait is certain."""
HOPE = 0.8
"""How well blocks may do of which little is known."""
JUDGE_EVERY = 16
"""Steps between two looks at a batch that keeps its size."""


@dataclass(slots=True)
class _Track:
    """sizes: how many tokens came of those asked for. offered: what is being scored of a block,
    behind `behind` tokens of it that had come true before, and matched that have since. vain: asks
    in a row that brought no verified row; rested: rounds without an ask since."""

    acceptance: Acceptance = field(default_factory=Acceptance)
    sizes: Acceptance = field(default_factory=Acceptance)
    offered: tuple[int, ...] = ()
    behind: int = 0
    matched: int = 0
    asked: int = 0
    vain: int = 0
    rested: int = 0


class Speculation:
    """The engine's choice of D, request by request and step by step (DESIGN §9)."""

    def __init__(self, cost: Cost, rule: Rule = DEFAULT) -> None:
        self.cost = cost
        self._by_verdict = weighs_laws(rule)
        self._all = Acceptance()
        self._sizes = Acceptance()
        self._tracks: dict[str, _Track] = {}
        self._hopeless = False
        self._judged = ((0, 0), 0)  # (writers, depth) of the last judgement, and steps since

    def __len__(self) -> int:
        return len(self._tracks)

    def ask(self, request_id: str, depth: int) -> int:
        """How much of `depth` to ask of the drafter for the next round: all or, at a request whose
        blocks have not been worth verifying, now and then all and else nothing."""
        track = self._track(request_id)
        if depth and track.vain >= PATIENCE:
            track.rested = (track.rested + 1) % REST
            depth = 0 if track.rested else depth
        track.asked = depth or track.asked
        return depth

    def worth(self, wanted: Mapping[str, int], writers: int) -> dict[str, float]:
        """Seconds that a step without prompts may wait for the block of each of `wanted` (request
        id -> depth); 0 for those that would not be verified."""
        tracks = [(self._track(request_id), depth) for request_id, depth in wanted.items()]
        chances = [survival(t.acceptance, depth, self._all, WEIGHT) for t, depth in tracks]
        reaches = [survival(t.sizes, depth, self._sizes, WEIGHT) for t, depth in tracks]
        # Of blocks that seldom come few are there at a time, and few must earn the whole margin.
        share = sum(reach[0] for reach in reaches if reach) / max(len(reaches), 1)
        if not share:
            return {}
        depths = allot(chances, writers, self._step_s, margin=MARGIN / share)
        worth_s = worths(chances, reaches, depths, writers, self._step_s)
        return {name: CAUTION * block_s for name, block_s in zip(wanted, worth_s, strict=True)}

    def heard(self, gathered: Gathered) -> None:
        """What came of the asks but blocks to choose from."""
        for request_id, reason in gathered.missing.items():
            if (track := self._tracks.get(request_id)) is not None and reason in VAIN:
                track.vain += 1
                if reason == "empty":
                    self._sized(track, 0)
        for request_id, (size, right) in gathered.overtaken.items():
            if (track := self._tracks.get(request_id)) is not None:
                self._sized(track, size)
                if not self._by_verdict:
                    self._score(track, size, right)

    def select(
        self,
        drafts: Mapping[str, Draft],
        writers: int,
        other_rows: int = 0,
        asked: Mapping[str, int] | None = None,
    ) -> dict[str, Draft]:
        """The drafts, cut to what is worth verifying; those of which nothing is are left out.
        writers: requests that write in this step; other_rows: of prompts; asked: how many tokens
        were asked for, by request."""
        offers = [(request_id, draft) for request_id, draft in drafts.items() if draft.tokens]
        tracks = [self._offer(request_id, draft) for request_id, draft in offers]
        chances = [
            survival(track.acceptance, size, self._all, WEIGHT)
            for track, size in zip(tracks, self._sizes_of(offers, asked or {}), strict=True)
        ]
        depths = allot(chances, writers, self._step_s, other_rows=other_rows)
        chosen: dict[str, Draft] = {}
        for track, depth, (request_id, draft) in zip(tracks, depths, offers, strict=True):
            if depth:
                chosen[request_id] = draft.cut(depth)
            elif self._by_verdict and track.vain >= PATIENCE:
                chosen[request_id] = draft
            track.vain = 0 if depth else track.vain + 1
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
        self._hopeless = not any(allot([block] * writers, writers, self._step_s, margin=margin))
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
        size = track.behind + len(track.offered)
        self._score(track, size, track.behind + track.matched)
        track.offered = ()

    def verified(self, request_id: str, drafted: int, accepted: int) -> None:
        """What verification made of a block."""
        if self._by_verdict:
            self._score(self._track(request_id), drafted, accepted)

    def forget(self, request_id: str) -> None:
        self._tracks.pop(request_id, None)

    def observe(self, rows: int, took_s: float) -> None:
        """After a step without prompts."""
        self.cost = observed(self.cost, rows, took_s)

    def _step_s(self, rows: int) -> float:
        return seconds(self.cost, rows)

    def _track(self, request_id: str) -> _Track:
        return self._tracks.setdefault(request_id, _Track())

    def _offer(self, request_id: str, draft: Draft) -> _Track:
        track = self._track(request_id)
        if not track.offered:
            if not self._by_verdict:
                track.offered, track.behind, track.matched = draft.tokens, draft.behind, 0
            self._sized(track, draft.behind + len(draft.tokens))
        return track

    def _sizes_of(self, offers: Sequence[tuple[str, Draft]], asked: Mapping[str, int]) -> list[int]:
        """How long each block counts as."""
        lengths = [(request_id, len(draft.tokens)) for request_id, draft in offers]
        if not self._by_verdict:
            return [length for _, length in lengths]
        return [asked.get(request_id, length) for request_id, length in lengths]

    def _sized(self, track: _Track, size: int) -> None:
        """A block of so many tokens has come."""
        asked = max(track.asked, size, 1)
        track.sizes = verified(track.sizes, asked, size, MEMORY)
        self._sizes = verified(self._sizes, asked, size)

    def _score(self, track: _Track, size: int, right: int) -> None:
        """Of a block's tokens, so many first ones were what the target wrote."""
        track.acceptance = verified(track.acceptance, size, right, MEMORY)
        self._all = verified(self._all, size, right)
