"""The engine's choice of D where laws are weighed: from verdicts, and blind to what was drafted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from actors.contracts import Draft, Gathered
from actors.engine.speculation import Speculation
from actors.sampling.law import TokenLaw
from actors.sampling.rules import Rule
from policies.acceptance import survival
from policies.cost import profiled
from policies.patience import PATIENCE, REST

CHEAP = profiled([(1, 1.0), (65, 1.32)])
DEAR = profiled([(1, 1.0), (65, 65.0)])
ALL_OR_NOTHING = profiled([(1, 1.0), (2, 2.0), (5, 2.1)])
"""One drafted row never pays, four do."""
RULES: tuple[Rule, ...] = ("rejection", "block")


def draft(*tokens: int) -> Draft:
    law = tuple(TokenLaw(np.array([t]), np.ones(1, np.float32)) for t in tokens)
    return Draft(tokens, "any", remote=False, law=law)


def verified_rows(engine: Speculation, block: Draft, asked: int = 4) -> int:
    chosen = engine.select({"r": block}, 1, asked={"r": asked})
    return len(chosen["r"].tokens) if "r" in chosen else 0


def acceptance(engine: Speculation) -> float:
    return survival(engine._track("r").acceptance, 1, engine._of("").acceptance)[0]


@pytest.mark.parametrize("rule", RULES)
def test_what_was_accepted_counts_not_what_was_written(rule: Rule) -> None:
    """Drafts that are accepted nine times in ten equal the target's own draw far less often."""
    engine = Speculation(DEAR, rule)
    for _ in range(200):
        verified_rows(engine, draft(1, 2))
        engine.settle("r", [7])  # standard decode wrote something else
    before = acceptance(engine)
    for _ in range(200):
        engine.verified("r", 2, 2)
    assert before == pytest.approx(acceptance(Speculation(DEAR, rule)))
    assert acceptance(engine) > 0.95


@pytest.mark.parametrize("rule", RULES)
def test_a_late_block_says_nothing_of_acceptance(rule: Rule) -> None:
    engine = Speculation(CHEAP, rule)
    before = acceptance(engine)
    for _ in range(50):
        engine.heard(Gathered(overtaken={"r": (3, 0)}))
    assert acceptance(engine) == before


@pytest.mark.parametrize("rule", RULES)
def test_the_same_rows_are_verified_whatever_was_drafted_and_how_much(rule: Rule) -> None:
    """S16: one token or four, these or those, with a law or without, of which the drafter is sure
    or is not, the choice is the same."""
    blocks = [draft(1, 2, 3, 4), draft(9, 9, 9, 9), draft(5), Draft((5,), "any", remote=True)]
    blocks += [replace(blocks[0], confidence=(told,) * 4) for told in (0.0, 1.0)]
    for curve in (ALL_OR_NOTHING, DEAR):
        chosen = set()
        for block in blocks:
            engine = Speculation(curve, rule)
            for _ in range(20):
                engine.verified("r", 4, 4)
            chosen.add(verified_rows(engine, block) == len(block.tokens))
        assert len(chosen) == 1
    assert len({verified_rows(Speculation(ALL_OR_NOTHING, rule), b) > 0 for b in blocks}) == 1


def test_under_coupled_a_short_block_counts_as_what_it_is() -> None:
    """It may: there the text is the same whatever is verified."""
    engine = Speculation(ALL_OR_NOTHING)
    for _ in range(20):
        verified_rows(engine, draft(1, 2, 3, 4))
        engine.settle("r", [1, 2, 3, 4])
    assert verified_rows(engine, draft(1, 2, 3, 4)) == 4
    engine.settle("r", [1, 2, 3, 4])
    assert verified_rows(engine, draft(5)) == 0


@pytest.mark.parametrize("rule", RULES)
def test_blocks_that_do_not_pay_are_verified_now_and_then_and_come_back(rule: Rule) -> None:
    """Without a verdict nothing is learned; one ask in REST is verified in whole."""
    engine = Speculation(DEAR, rule)
    for _ in range(40):
        engine.verified("r", 4, 0)
    rows = []
    for _ in range(PATIENCE + 4 * REST):
        rows.append(verified_rows(engine, draft(1, 2, 3, 4)) if engine.ask("r", 4) else 0)
        if rows[-1]:
            engine.verified("r", 4, 0)
    assert rows[:PATIENCE] == [0] * PATIENCE
    assert [r for r in rows if r] == [4] * 4
    engine.cost = CHEAP
    for _ in range(40 * REST):
        if engine.ask("r", 4) and (row := verified_rows(engine, draft(1, 2, 3, 4))):
            engine.verified("r", row, row)
    assert engine.ask("r", 4) == 4
    assert verified_rows(engine, draft(1, 2, 3, 4)) == 4


def test_a_laws_cut_goes_with_its_tokens() -> None:
    engine = Speculation(profiled([(1, 1.0), (3, 1.01), (4, 9.0)]), "rejection")
    for _ in range(40):
        engine.verified("r", 4, 4)
    chosen = engine.select({"r": draft(1, 2, 3, 4)}, 1, asked={"r": 4})["r"]
    assert chosen.tokens == (1, 2)
    assert chosen.law is not None
    assert [law.ids.tolist() for law in chosen.law] == [[1], [2]]
