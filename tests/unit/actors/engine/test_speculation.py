"""The engine's choice of D: by what came of earlier blocks, verified or not."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from actors.contracts import Draft
from actors.engine.speculation import Speculation
from policies.acceptance import Acceptance
from policies.cost import profiled
from policies.patience import LONGEST, PATIENCE, REST

LINEAR = profiled([(1, 1.0), (65, 65.0)])
CHEAP = profiled([(1, 1.0), (65, 1.32)])


def draft(*tokens: int) -> Draft:
    return Draft(tokens, "any", remote=True)


class Text:
    """What a target writes, 0, 1, 2, …, and a drafter that knows each token with some chance."""

    def __init__(self, seed: int, quality: float) -> None:
        self.length = 0
        self._rng = random.Random(seed)
        self._quality = quality
        self._known: list[bool] = []

    def draft(self, depth: int) -> Draft:
        return draft(
            *(p if self._knows(p) else -1 for p in range(self.length, self.length + depth))
        )

    def commit(self, block: tuple[int, ...]) -> list[int]:
        """The tokens of one round: what is right of the block, and one of the target's own."""
        start = self.length
        while self.length - start < len(block) and block[self.length - start] == self.length:
            self.length += 1
        self.length += 1
        return list(range(start, self.length))

    def _knows(self, position: int) -> bool:
        while len(self._known) <= position:
            self._known.append(self._rng.random() < self._quality)
        return self._known[position]


def rounds(
    engine: Speculation, right: int, count: int, name: str = "r", depth: int = 4
) -> list[int]:
    """So many rounds at which the first `right` tokens of a block come true; rows verified."""
    taken = []
    for _ in range(count):
        if not engine.ask(name, depth):
            taken.append(0)
            engine.settle(name, [7])
            continue
        block = tuple(range(depth))
        chosen = engine.select({name: draft(*block)}, 1)
        verified = len(chosen[name].tokens) if name in chosen else 0
        taken.append(verified)
        accepted = min(right, verified)
        if verified:
            engine.verified(name, verified, accepted)
        engine.settle(name, [*block[:accepted], block[accepted] if accepted < right else 99])
        for token in [*block[accepted + 1 : right], 99][: right - accepted]:
            engine.settle(name, [token])
    return taken


def test_blocks_that_come_true_are_verified_whole_where_rows_are_cheap() -> None:
    assert rounds(Speculation(CHEAP), right=4, count=40)[-10:] == [4] * 10


def test_blocks_that_are_asked_for_as_evidence_are_not_asked_for_in_vain() -> None:
    """No plan lets any of them be verified yet: that says nothing of what they are worth."""
    engine = Speculation(CHEAP)
    for written in (99, *[7] * 4 * PATIENCE):
        assert engine.ask("r", 4, "any") == 4
        assert engine.select({"r": draft(7)}, 1, most={"r": 0}) == {}
        engine.settle("r", [written])
        assert engine.proven("any") == (written == 7)
    assert not engine.proven("another")


def test_evidence_that_is_wrong_from_its_first_token_was_asked_for_in_vain() -> None:
    """After a cold start a drafter of no use would else be asked in each round, until there is
    evidence enough for a plan."""
    engine = Speculation(CHEAP)
    asked = []
    for _ in range(PATIENCE + 4 * REST):
        asked.append(engine.ask("r", 4, "any"))
        if asked[-1]:
            assert engine.select({"r": draft(7, 8)}, 1, most={"r": 0}) == {}
        engine.settle("r", [99])
    assert asked[:PATIENCE] == [4] * PATIENCE
    assert asked[PATIENCE:].count(4) == 4


def test_of_a_drafter_that_is_known_to_be_of_no_use_evidence_is_not_asked_for_in_each_round() -> (
    None
):
    engine = Speculation(CHEAP)
    engine.price_s = lambda mechanism: 0.01
    rounds(engine, right=0, count=100 * REST)
    asked = 0
    for _ in range(PATIENCE):
        if engine.ask("new", 4):
            asked += 1
            engine.select({"new": draft(7)}, 1, most={"new": 0})
        engine.settle("new", [99])
    assert asked == 1


def test_of_a_drafter_of_no_use_to_anybody_what_has_come_true_counts_not_what_was_expected() -> (
    None
):
    """Chances are believed again as soon as texts have turned; what asks have brought is not."""
    engine = Speculation(CHEAP)
    engine.price_s = lambda mechanism: 0.01
    rounds(engine, right=0, count=100 * REST)
    engine.doubt()
    assert rounds(engine, right=0, count=REST, name="another")[1:] == [0] * (REST - 1)
    assert all(rounds(engine, right=4, count=4, name="copies"))


def test_blocks_that_never_come_true_are_given_up_and_rarely_asked_for() -> None:
    engine = Speculation(CHEAP)
    taken = rounds(engine, right=0, count=400)
    assert sum(taken[:40]) > 0
    assert sum(taken[-100:]) == 0
    asked = [engine.ask("r", 4) for _ in range(10 * REST)]
    assert asked.count(4) == 10


def test_where_asking_has_a_price_a_drafter_of_no_use_is_asked_ever_less() -> None:
    engine = Speculation(CHEAP)
    engine.price_s = lambda mechanism: 0.01
    rounds(engine, right=0, count=100 * REST)
    asked = [engine.ask("r", 4) for _ in range(10 * LONGEST)]
    assert asked.count(4) == 10
    assert engine.period("r") == LONGEST
    assert rounds(engine, right=4, count=4 * LONGEST)[-1] == 4  # and comes back
    assert engine.period("r") == REST


def test_blocks_that_save_less_than_asking_takes_are_verified_and_no_longer_asked_for() -> None:
    engine = Speculation(CHEAP)
    engine.price_s = lambda mechanism: 10.0  # of a round: a block of four saves three
    taken = rounds(engine, right=4, count=40)
    assert 0 < sum(size > 0 for size in taken[-16:]) <= 3


def test_only_the_part_that_comes_true_is_verified() -> None:
    taken = rounds(Speculation(profiled([(1, 1.0), (65, 10.0)])), right=2, count=200)
    assert set(taken[-20:]) == {2}


def test_where_each_row_costs_a_step_nothing_is_verified_but_certainty() -> None:
    assert sum(rounds(Speculation(LINEAR), right=2, count=100)[-50:]) == 0


def test_a_block_that_was_not_verified_is_scored_by_what_is_committed_after_it() -> None:
    engine = Speculation(LINEAR)
    for _ in range(PATIENCE * 40):
        assert engine.select({"r": draft(1, 2, 3)}, 1) == {}
        for token in (1, 2, 3):  # standard decode writes one token a round
            engine.settle("r", [token])
    engine.cost = CHEAP
    assert engine.select({"r": draft(1, 2, 3)}, 1)["r"].tokens == (1, 2, 3)


def test_it_comes_back_when_the_text_becomes_predictable() -> None:
    engine = Speculation(CHEAP)
    rounds(engine, right=0, count=100)
    assert rounds(engine, right=4, count=40 * REST)[-1] == 4


def test_requests_are_told_apart_and_nothing_of_them_stays() -> None:
    engine = Speculation(profiled([(1, 1.0), (65, 15.0)]))
    for _ in range(100):
        chosen = engine.select({"good": draft(1, 2), "bad": draft(1, 2)}, 2)
        engine.settle("good", [1, 2, 3])
        engine.settle("bad", [9])
    assert chosen.keys() == {"good"}
    engine.forget("good")
    engine.forget("bad")
    assert len(engine) == 0


@pytest.mark.parametrize("clients", [1, 4, 12, 32])
@pytest.mark.parametrize("slope", [0.02, 0.15, 0.6, 1.0])
def test_never_slower_than_standard_decode_on_a_simulated_clock(clients: int, slope: float) -> None:
    """L4, on a clock that is computed: tokens a second against standard decode's, for drafters of
    every quality, with the exploring at the start included."""

    def step_s(rows: int) -> float:
        return 1.0 + slope * (rows - 1)

    for quality in (0.0, 0.2, 0.5, 0.8, 0.95):
        engine = Speculation(profiled([(1, 1.0), (257, step_s(257))]))
        texts = {str(i): Text(i, quality) for i in range(clients)}
        elapsed = 0.0
        for _ in range(600):
            asked = [name for name in texts if engine.ask(name, 4)]
            chosen = engine.select({name: texts[name].draft(4) for name in asked}, clients)
            elapsed += step_s(clients + sum(len(d.tokens) for d in chosen.values()))
            for name, text in texts.items():
                engine.settle(name, text.commit(chosen[name].tokens if name in chosen else ()))
        tokens = sum(text.length for text in texts.values())
        assert tokens / elapsed >= 0.98 * clients / step_s(clients), quality


def test_beside_prompts_rows_are_worth_no_more_than_without() -> None:
    """A row that brings 0.45 tokens for 0.3 of what a token takes would look cheap in a step that a
    prompt has made four times as long."""
    curve = profiled([(1, 1.0), (4, 4.0), (65, 4.0 + 61 * 0.6)])
    engine = Speculation(curve)
    engine._of("").acceptance = Acceptance((1000.0,) * 3, (450.0,) * 3)
    assert engine.select({"r": draft(1, 2, 3)}, 4, other_rows=32) == {}
    engine._of("").acceptance = Acceptance((1000.0,) * 3, (900.0,) * 3)
    assert engine.select({"r": draft(1, 2, 3)}, 4, other_rows=32).keys() == {"r"}


def test_of_blocks_alike_by_the_record_the_one_its_drafter_is_sure_of_is_verified() -> None:
    """Half of this request's blocks come true, and the drafter knows which."""
    engine = Speculation(profiled([(1, 1.0), (65, 40.0)]))
    told = {True: (0.95,) * 3, False: (0.3,) * 3}
    taken: dict[bool, list[int]] = {True: [], False: []}
    for i in range(60):
        good = i % 2 == 0
        engine.ask("r", 3)
        block = replace(draft(1, 2, 3), confidence=told[good])
        chosen = engine.select({"r": block}, 1)
        taken[good].append(len(chosen["r"].tokens) if "r" in chosen else 0)
        assert all(len(c.confidence) == len(c.tokens) for c in chosen.values())
        engine.settle("r", [1, 2, 3, 4] if good else [9])
    assert taken[True][-10:] == [3] * 10
    assert taken[False][-10:] == [0] * 10
