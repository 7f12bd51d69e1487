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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from actors.contracts import Draft, Gathered
from actors.engine.offered import Offered
from actors.sampling.rules import DEFAULT, Rule, weighs_laws
from policies import confidence, patience
from policies.acceptance import Acceptance, faded, survival, verified
from policies.budget import MARGIN, allot, pays
from policies.cost import Cost, observed, seconds
from policies.estimate import Scored
from policies.waiting import worths

MEMORY = 20.0
"""Blocks a request's own counts remember; texts change their nature quickly. Of suffix decoding's
23,000 blocks in 593 recorded answers, 8 foretell the next one's fate best (0.546 nats a position;
0.552 with 20, 0.557 with 40), but with so few a request that does nothing but copy is not believed.
"""
WEIGHT = 4.0
"""Blocks' worth of belief in the engine's counts, for a request that has few of its own."""
VAIN = frozenset({"late", "stale", "empty"})
"""What a drafter did with an ask that was not worth asking; else it could not be asked at all."""
CAUTION = 0.8
"""Of what a block is expected to be worth, so much is waited: only the wait is certain."""
HOPE = 0.8
"""How well blocks may do of which little is known."""
KEPT = 8.0
"""Blocks of everybody's that count after texts have changed."""
JUDGE_EVERY = 32
"""Steps between two looks at a batch that keeps its size."""


@dataclass(slots=True)
class _Track:
    """One request on one mechanism. sizes: how many tokens came of those asked for. offered: blocks
    that are being scored. own: how true it has come how sure its drafter was. gains:
    what asks have brought; vain: those in a row that did not pay; rest: how seldom it is asked
    after too many; rested: rounds since."""

    request_id: str
    mechanism: str
    acceptance: Acceptance = field(default_factory=Acceptance)
    sizes: Acceptance = field(default_factory=Acceptance)
    offered: list[Offered] = field(default_factory=list)
    own: confidence.Own = field(default_factory=confidence.Own)
    asked: int = 0
    gains: patience.Record = patience.NOTHING
    vain: int = 0
    rest: patience.Rest = patience.AWAKE
    rested: int = 0


@dataclass(slots=True)
class _Everyone:
    """What blocks of one mechanism have brought to all requests."""

    acceptance: Acceptance = field(default_factory=Acceptance)
    sizes: Acceptance = field(default_factory=Acceptance)
    sure: confidence.Calibration = field(default_factory=confidence.Calibration)
    gains: patience.Record = patience.NOTHING
    writers: int = 0  # of the batch they are for


class Speculation:
    """The engine's record of what drafting brings, request by request, and its choice of rows
    step by step (DESIGN §9). A request is asked of one mechanism at a time, the one its newest
    `ask` named.

    step_s: seconds of a step by rows; as measured here, unless somebody who knows better says.
    price_s: of asking one request, by mechanism; nothing, unless somebody says.
    scored: told of every block whose worth is known: request, mechanism, block.
    """

    def __init__(self, cost: Cost, rule: Rule = DEFAULT) -> None:
        self.cost = cost
        self.step_s: Callable[[int], float] = self._own_step_s
        self.price_s: Callable[[str], float] = lambda mechanism: 0.0
        self.scored: Callable[[str, str, Scored], None] | None = None
        self._by_verdict = weighs_laws(rule)
        self._everyone: dict[str, _Everyone] = {}
        self._tracks: dict[str, dict[str, _Track]] = {}
        self._using: dict[str, str] = {}
        self._hopeless = False
        self._token_s = self._row_s = 0.0  # of a token and a verified row, in the step under way
        self._judged = ((0, 0), 0)  # (writers, depth) of the last judgement, and steps since

    def __len__(self) -> int:
        return len(self._tracks)

    def ask(
        self,
        request_id: str,
        depth: int,
        mechanism: str = "",
        step: int | None = None,
        least: int = patience.REST,
    ) -> int:
        """How much of `depth` to ask of the drafter for the next round: all or, at a request whose
        blocks have not paid, all in one of `period` rounds and else nothing. step: so that requests
        that rest are asked together; None: each counts its own rounds."""
        self._using[request_id] = mechanism
        track = self._track(request_id)
        if depth and self._rests(track):
            track.rested += 1
            if (track.rested if step is None else step) % max(track.rest.every, least):
                depth = 0
        track.asked = depth or track.asked
        return depth

    def period(self, request_id: str, least: int = patience.REST) -> int:
        """A request that rests is asked in one of so many rounds."""
        return max(self._track(request_id).rest.every, least)

    def worth(self, wanted: Mapping[str, int], writers: int) -> dict[str, float]:
        """Seconds that a step without prompts may wait for the block of each of `wanted` (request
        id -> depth); 0 for those that would not be verified."""
        tracks = [(self._track(request_id), depth) for request_id, depth in wanted.items()]
        chances = [self._chance(track, depth) for track, depth in tracks]
        reaches = [
            survival(t.sizes, depth, self._of(t.mechanism).sizes, WEIGHT) for t, depth in tracks
        ]
        # Of blocks that seldom come few are there at a time, and few must earn the whole margin.
        share = sum(reach[0] for reach in reaches if reach) / max(len(reaches), 1)
        if not share:
            return {}
        depths = allot(chances, writers, self.step_s, margin=MARGIN / share)
        worth_s = worths(chances, reaches, depths, writers, self.step_s)
        return {name: CAUTION * block_s for name, block_s in zip(wanted, worth_s, strict=True)}

    def heard(self, gathered: Gathered) -> None:
        """What came of the asks but blocks to choose from."""
        for request_id, reason in gathered.missing.items():
            if request_id in self._tracks and reason in VAIN:
                track = self._track(request_id)
                self._asked(track, 0.0)
                if reason == "empty":  # one that comes too late says nothing of what is drafted
                    self._noted(track, 0.0)
                    self._sized(track, 0)
                    self._tell(track, 0, 0)
        for request_id, (size, right) in gathered.overtaken.items():
            if request_id in self._tracks:
                track = self._track(request_id)
                self._sized(track, size)
                if not self._by_verdict:
                    self._score(track, size, right, seen=False)
        for request_id, (arm, draft) in gathered.shadows.items():
            self._shadowed(self._track(request_id, arm.mechanism), draft)
        for request_id, (arm, size, right) in gathered.judged.items():
            if not self._by_verdict:
                track = self._track(request_id, arm.mechanism)
                self._sized(track, size)
                if size:
                    self._score(track, size, right, seen=False)
                else:
                    self._tell(track, 0, 0)

    def _shadowed(self, track: _Track, draft: Draft) -> None:
        """A block for evidence alone, perhaps an empty one."""
        if self._by_verdict:
            return
        if draft.tokens:
            self._offer(track, draft)
        else:
            self._sized(track, 0)
            self._tell(track, 0, 0)

    def select(
        self,
        drafts: Mapping[str, Draft],
        writers: int,
        other_rows: int = 0,
        asked: Mapping[str, int] | None = None,
        most: Mapping[str, int] | None = None,
        spent_s: float = 0.0,
    ) -> dict[str, Draft]:
        """The drafts, cut to what is worth verifying; those of which nothing is are left out.
        writers: requests that write in this step; other_rows: of prompts; asked: how many tokens
        were asked for, by request; most: how many may be verified; spent_s: what drafting them has
        taken, which lengthens every choice alike."""
        offers = [(request_id, draft) for request_id, draft in drafts.items() if draft.tokens]
        tracks = [self._offered(request_id, draft) for request_id, draft in offers]
        sizes = self._sizes_of(offers, asked or {})
        bounds = [
            size if most is None else most.get(r, size)
            for (r, _), size in zip(offers, sizes, strict=True)
        ]
        chances = [
            self._chance_of(track, draft, size)[: max(bound, 0)]
            for track, (_, draft), size, bound in zip(tracks, offers, sizes, bounds, strict=True)
        ]
        depths = allot(chances, writers, self.step_s, other_rows=other_rows, spent_s=spent_s)
        for every in self._everyone.values():
            if not every.writers <= 2 * writers <= 4 * every.writers:
                every.gains, every.writers = patience.doubted(every.gains), writers
        self._token_s = self.step_s(writers) / max(writers, 1)
        self._row_s = self._rows_s(sum(depths), writers)
        chosen: dict[str, Draft] = {}
        for track, depth, bound, survive, (request_id, draft) in zip(
            tracks, depths, bounds, chances, offers, strict=True
        ):
            if depth:
                chosen[request_id] = draft.cut(depth)
            elif self._by_verdict and self._rests(track) and bound > 0:
                chosen[request_id] = draft.cut(bound)
            if bound > 0 or patience.known(self._of(track.mechanism).gains):
                self._asked(track, self._saved_s(sum(survive[:depth]), depth))
                if not depth:
                    self._noted(track, 0.0)
            elif track.offered:
                track.offered[-1].evidence = True
        return chosen

    def _rests(self, track: _Track) -> bool:
        price_s, everyone = self.price_s(track.mechanism), self._of(track.mechanism).gains
        return not patience.asks(track.gains, everyone, price_s, track.vain)

    def _asked(self, track: _Track, gain_s: float) -> None:
        """What came of an ask, and what its rows are expected to save: where the mechanism is of no
        use to anybody, nothing until they have."""
        barren = self._barren(track)
        if barren:
            gain_s = 0.0
        if not self._paid(track, gain_s):
            if barren and self._rests(track):
                track.rest = patience.tried(track.rest)
            track.vain += 1
        track.gains = patience.noted(track.gains, gain_s, patience.MEMORY)

    def _barren(self, track: _Track) -> bool:
        every = self._of(track.mechanism)
        return patience.barren(every.gains, self.price_s(track.mechanism))

    def _paid(self, track: _Track, gain_s: float) -> bool:
        """Whether its last ask was worth it."""
        if not patience.pays(gain_s, self.price_s(track.mechanism), track.vain):
            return False
        track.vain, track.rest = 0, patience.AWAKE
        return True

    def _noted(self, track: _Track, saved_s: float) -> None:
        """What an ask has saved is known; of one request that is too few to tell more than what
        was expected."""
        every = self._of(track.mechanism)
        every.gains = patience.noted(every.gains, saved_s, patience.LONG_MEMORY)

    def _rows_s(self, rows: int, writers: int) -> float:
        """Of a verified row, in a step with so many."""
        return (self.step_s(writers + rows) - self.step_s(writers)) / rows if rows else 0.0

    def _saved_s(self, right: float, rows: int) -> float:
        """What verified rows save the step of which so many come true, their own time taken off."""
        return right * self._token_s - rows * self._row_s

    def proven(self, mechanism: str) -> bool:
        """Whether anything that it drafted has come true."""
        return any(self._of(mechanism).acceptance.accepted[:1])

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
        seen = (survival(every.acceptance, 1)[0] for every in self._everyone.values())
        rate = max((HOPE, *seen))
        margin = (2 if self._hopeless else 1) * MARGIN  # harder to come back than to stay
        self._hopeless = not pays(rate, depth, writers, self.step_s, margin)
        return self._hopeless

    def settle(self, request_id: str, tokens: Sequence[int]) -> None:
        """Score the blocks that were offered against the tokens committed after them."""
        for track in self._tracks.get(request_id, {}).values():
            blocks, track.offered = track.offered, []
            for block in blocks:
                if block.settled(tokens):
                    self._came_true(track, block)
                else:
                    track.offered.append(block)

    def _came_true(self, track: _Track, block: Offered) -> None:
        """How much of a block was right is known."""
        size, right = block.behind + len(block.tokens), block.behind + block.matched
        self._score(track, size, right, seen=False)
        if block.evidence and not right:
            self._asked(track, 0.0)
            self._noted(track, 0.0)
        if block.sure:
            every = self._of(track.mechanism)
            every.sure, track.own = confidence.scored(
                every.sure, track.own, block.sure, block.matched
            )

    def verified(self, request_id: str, drafted: int, accepted: int) -> None:
        """What verification made of a block."""
        track, saved_s = self._track(request_id), self._saved_s(accepted, drafted)
        if self._barren(track):
            self._paid(track, saved_s)
        self._noted(track, saved_s)
        if self._by_verdict:
            self._score(track, drafted, accepted, seen=True)

    def doubt(self) -> None:
        """Texts have changed: what blocks have brought to everybody says little of the next."""
        for every in self._everyone.values():
            blocks = max((*every.acceptance.decided[:1], *every.sizes.decided[:1], 1.0))
            keep = min(1.0, KEPT / blocks)
            every.acceptance = faded(every.acceptance, keep)
            every.sizes = faded(every.sizes, keep)
            every.gains = patience.doubted(every.gains)

    def forget(self, request_id: str) -> None:
        self._tracks.pop(request_id, None)
        self._using.pop(request_id, None)

    def observe(self, rows: int, took_s: float) -> None:
        """After a step without prompts."""
        self.cost = observed(self.cost, rows, took_s)

    def _own_step_s(self, rows: int) -> float:
        return seconds(self.cost, rows)

    def _of(self, mechanism: str) -> _Everyone:
        return self._everyone.setdefault(mechanism, _Everyone())

    def _track(self, request_id: str, mechanism: str | None = None) -> _Track:
        """Of the mechanism that is asked, where none is named."""
        if mechanism is None:
            mechanism = self._using.get(request_id, "")
        tracks = self._tracks.setdefault(request_id, {})
        return tracks.setdefault(mechanism, _Track(request_id, mechanism))

    def _chance(self, track: _Track, depth: int) -> tuple[float, ...]:
        return survival(track.acceptance, depth, self._of(track.mechanism).acceptance, WEIGHT)

    def _chance_of(self, track: _Track, draft: Draft, size: int) -> tuple[float, ...]:
        """Of this very block, where its drafter says how sure it is."""
        if self._by_verdict or not draft.confidence:
            return self._chance(track, size)
        known = self._of(track.mechanism).sure
        return confidence.survival(known, track.own, draft.confidence)

    def _offered(self, request_id: str, draft: Draft) -> _Track:
        track = self._track(request_id)
        self._offer(track, draft)
        return track

    def _offer(self, track: _Track, draft: Draft) -> None:
        if not self._by_verdict:
            track.offered.append(Offered(draft.tokens, draft.behind, draft.confidence))
        self._sized(track, draft.behind + len(draft.tokens))

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
        every = self._of(track.mechanism)
        every.sizes = verified(every.sizes, asked, size)

    def _score(self, track: _Track, size: int, right: int, *, seen: bool) -> None:
        """Of a block's tokens, so many first ones were what the target wrote. seen: it said so."""
        track.acceptance = verified(track.acceptance, size, right, MEMORY)
        every = self._of(track.mechanism)
        every.acceptance = verified(every.acceptance, size, right)
        if self._saved_s(right, right) > 0.0:  # who can be foretold is looked at often
            track.rest = patience.AWAKE
        self._tell(track, size, right, seen=seen)

    def _tell(self, track: _Track, size: int, right: int, *, seen: bool = False) -> None:
        if self.scored is not None:
            asked = max(track.asked, size, 1)
            block = Scored(asked, size, min(right, size), seen)
            self.scored(track.request_id, track.mechanism, block)
