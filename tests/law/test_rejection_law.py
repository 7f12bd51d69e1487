"""L1 for `rejection` and `block`: the law of what is written is the target's, exactly.

Nothing is sampled: every draft, every outcome of every test and every remainder is enumerated. A
system is a target p and a drafter q as functions of the prefix, random, with zeros, with equal
rows, with mass where the other has none.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import pytest
import torch

from actors.sampling.law import TokenLaw, one_hot
from actors.sampling.rejection import block_wise, token_wise
from actors.sampling.row_law import RowLaw
from actors.sampling.rules import Rule
from policies.budget import allot
from tests.law.explore import Branch, explore, law_of

torch.set_num_threads(1)

Tokens = tuple[int, ...]
Model = Callable[[Tokens], list[float]]
Joint = dict[Tokens, float]
Length = Callable[[Tokens], int]
"""How much of a block is verified, as a function of the block."""

RULES: tuple[Rule, ...] = ("rejection", "block")
EXACT = 1e-12


def as_law(q: Sequence[float]) -> TokenLaw:
    """Its numbers are the law; they are fp32, as on the wire."""
    ids = np.array([i for i, mass in enumerate(q) if mass > 0.0], np.int64)
    return TokenLaw(ids, np.array(q, np.float32)[ids])


def as_row(p: Sequence[float]) -> RowLaw:
    return RowLaw(torch.tensor(p, dtype=torch.float64), math.fsum(p))


class System:
    """p and q by prefix, drawn once; `kind` says what is special about them."""

    def __init__(self, seed: int, vocab: int, depth: int, kind: str = "plain") -> None:
        self.vocab, self.depth, self.kind = vocab, depth, kind
        self._seed, self._known = seed, dict[tuple[str, Tokens], list[float]]()

    def p(self, prefix: Tokens) -> list[float]:
        return self._row("p", prefix)

    def q(self, prefix: Tokens) -> list[float]:
        if self.kind == "equal":
            return self._row("p", prefix)
        return self._row("q", prefix)

    def _row(self, side: str, prefix: Tokens) -> list[float]:
        if (side, prefix) not in self._known:
            rng = random.Random(f"{self._seed} {side} {prefix}")
            mass = [rng.gammavariate(0.7, 1.0) + 1e-3 for _ in range(self.vocab)]
            if self.kind == "zeros" or (self.kind == "cut" and side == "p"):
                for token in rng.sample(range(self.vocab), rng.randrange(self.vocab)):
                    mass[token] = 0.0
            if self.kind == "one-hot" and side == "q":
                hot = rng.randrange(self.vocab)
                mass = [float(token == hot) for token in range(self.vocab)]
            law = np.array(mass, np.float32).astype(np.float64)
            self._known[side, prefix] = (law / law.sum()).tolist()
        return self._known[side, prefix]


def outcomes(p: Model, q: Model, block: Tokens, rule: Rule) -> list[tuple[float, int, list[float]]]:
    """(chance, accepted, law of the target's own token) of a verified block, by the code that
    serves."""
    laws = [as_law(q(block[:i])) for i in range(len(block))]
    rows = [as_row(p(block[:i])) for i in range(len(block) + 1)]
    verify = token_wise if rule == "rejection" else block_wise

    def run(branch: Branch) -> tuple[int, float]:
        return verify(lambda i: rows[i], block, laws, lambda _, chance: branch.passes(chance))

    found = []
    for chance, (accepted, scale) in explore(run):
        row = rows[accepted]
        whole = accepted == len(block)
        weights = row.weights if whole else row.residual(laws[accepted], scale)
        found.append((chance, accepted, (weights / weights.sum()).tolist()))
    return found


def blocks(q: Model, vocab: int, depth: int) -> list[tuple[float, Tokens]]:
    """Every block that can be drafted, with its probability under the law as it is reported."""
    found = []
    for block in itertools.product(range(vocab), repeat=depth):
        chance = math.prod(as_law(q(block[:i])).of(block[i]) for i in range(depth))
        if chance > 0.0:
            found.append((chance, block))
    return found


def written(
    p: Model, q: Model, vocab: int, depth: int, rule: Rule, length: Length = len
) -> tuple[Joint, float]:
    """The joint law of depth + 1 tokens (one round, then standard decode), and the expected number
    of accepted tokens."""
    joint: Joint = defaultdict(float)
    expected = 0.0
    for drafted, whole in blocks(q, vocab, depth):
        block = whole[: length(whole)]
        for chance, accepted, own in outcomes(p, q, block, rule):
            expected += drafted * chance * accepted
            for token, mass in enumerate(own):
                if mass > 0.0:
                    text = (*block[:accepted], token)
                    _complete(joint, p, text, drafted * chance * mass, depth + 1)
    return dict(joint), expected


def target_joint(p: Model, length: int) -> Joint:
    joint: Joint = defaultdict(float)
    _complete(joint, p, (), 1.0, length)
    return dict(joint)


def _complete(joint: Joint, p: Model, text: Tokens, chance: float, length: int) -> None:
    if len(text) >= length:
        joint[text[:length]] += chance
        return
    for token, mass in enumerate(p(text)):
        if mass > 0.0:
            _complete(joint, p, (*text, token), chance * mass, length)


def error(a: Joint, b: Joint) -> float:
    return max(abs(a.get(text, 0.0) - b.get(text, 0.0)) for text in a.keys() | b.keys())


def const(law: Sequence[float]) -> Model:
    return lambda prefix: list(law)


KINDS = ("plain", "zeros", "cut", "equal", "one-hot")
SHAPES = ((3, 3), (2, 4), (5, 2), (8, 1))


# ------------------------------------------------------------------------ the law


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_joint_law_of_what_is_written_is_the_targets(kind: str, rule: Rule) -> None:
    for seed, (vocab, depth) in itertools.product(range(3), SHAPES):
        system = System(seed, vocab, depth, kind)
        joint, _ = written(system.p, system.q, vocab, depth, rule)
        assert error(joint, target_joint(system.p, depth + 1)) < EXACT


@pytest.mark.parametrize("kind", KINDS)
def test_block_verification_accepts_at_least_as_much_and_one_hot_drafts_just_as_much(
    kind: str,
) -> None:
    gains = []
    for seed, (vocab, depth) in itertools.product(range(4), SHAPES):
        system = System(seed, vocab, depth, kind)
        single = written(system.p, system.q, vocab, depth, "rejection")[1]
        whole = written(system.p, system.q, vocab, depth, "block")[1]
        assert whole >= single - EXACT
        gains.append(whole - single)
    if kind in ("equal", "one-hot"):
        assert max(gains) < 1e-6
    if kind == "plain":
        assert max(gains) > 0.05


def test_the_known_figures() -> None:
    """Block verification's own example: 10/9 tokens become 11/9 (arXiv 2403.10444, section 2)."""
    p, q = const((1 / 3, 2 / 3)), const((2 / 3, 1 / 3))
    assert written(p, q, 2, 2, "rejection")[1] == pytest.approx(10 / 9, abs=1e-7)
    assert written(p, q, 2, 2, "block")[1] == pytest.approx(11 / 9, abs=1e-7)


@pytest.mark.parametrize("rule", RULES)
def test_a_law_is_weighed_and_a_draft_without_one_is_taken_as_fixed(rule: Rule) -> None:
    """S11, S12: p = (.5, .3, .2) against q = (.2, .5, .3): accepted .7; with the same drafts and no
    law .31, and the law of the text is p either way."""
    p, q = const((0.5, 0.3, 0.2)), const((0.2, 0.5, 0.3))
    joint, expected = written(p, q, 3, 1, rule)
    assert expected == pytest.approx(0.7, abs=1e-7)
    assert error(joint, target_joint(p, 2)) < EXACT
    joint, expected = defaultdict(float), 0.0
    for drafted, block in blocks(q, 3, 1):
        for chance, accepted, own in outcomes(p, one_hot_model(block), block, rule):
            expected += drafted * chance * accepted
            for token, mass in enumerate(own):
                text = (*block[:accepted], token)
                _complete(joint, p, text, drafted * chance * mass, 2)
    assert expected == pytest.approx(0.31, abs=1e-7)
    assert error(joint, target_joint(p, 2)) < EXACT


def one_hot_model(block: Tokens) -> Model:
    return lambda prefix: [float(t == block[len(prefix)]) for t in range(3)]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("nudge", [0.0, 6e-8])
def test_where_nothing_is_left_of_the_target_its_own_law_stands_in(
    nudge: float, rule: Rule
) -> None:
    """S14: p = q exactly, and but for one step of fp32; the first token refused by force."""
    row, law = as_row((0.5 + nudge, 0.25 - nudge, 0.25)), as_law((0.5, 0.25, 0.25))
    verify = token_wise if rule == "rejection" else block_wise
    accepted, scale = verify(lambda i: row, (0,), [law], lambda i, chance: False)
    rest = row.residual(law, scale)
    assert accepted == 0
    if nudge:
        assert float(rest.sum()) == pytest.approx(nudge, rel=1e-6)
        assert rest.tolist()[1:] == [0.0, 0.0]
    else:
        assert rest.tolist() == row.weights.tolist()


def test_a_one_hot_law_has_the_residual_of_the_target_without_the_token() -> None:
    rest = as_row((0.5, 0.3, 0.2)).residual(one_hot(1), 1.0)
    assert (rest / rest.sum()).tolist() == pytest.approx([5 / 7, 0.0, 2 / 7])


# ------------------------------------------------------------------------ lengths


def likely(q: Model) -> Length:
    """Verify while the drafter was sure enough of whatever it drew: the law decides, not the
    token."""

    def length(block: Tokens) -> int:
        sure = (i for i in range(len(block)) if max(q(block[:i])) < 0.6)
        return next(sure, len(block))

    return length


def lucky(q: Model) -> Length:
    """Verify while the drawn token itself is likely: the token decides about itself."""

    def length(block: Tokens) -> int:
        unlikely = (i for i, token in enumerate(block) if q(block[:i])[token] < 0.5)
        return next(unlikely, len(block))

    return length


@pytest.mark.parametrize("rule", RULES)
def test_a_length_that_the_token_has_no_part_in_keeps_the_joint_law(rule: Rule) -> None:
    for seed, (vocab, depth) in itertools.product(range(6), SHAPES):
        system = System(seed, vocab, depth)
        joint, _ = written(system.p, system.q, vocab, depth, rule, likely(system.q))
        assert error(joint, target_joint(system.p, depth + 1)) < EXACT


@pytest.mark.parametrize("rule", RULES)
def test_a_length_that_looks_at_the_token_bends_the_law(rule: Rule) -> None:
    """S16: this is what must not be done, and that these tests would notice it. p = q = (.7, .3),
    drafts of q(x) < .5 dropped: .91 instead of .7."""
    p = const((0.7, 0.3))
    joint, _ = written(p, p, 2, 1, rule, lucky(p))
    first = sum(mass for text, mass in joint.items() if text[0] == 0)
    assert first == pytest.approx(0.91, abs=1e-7)
    worst = 0.0
    for seed in range(6):
        system = System(seed, 3, 3)
        joint, _ = written(system.p, system.q, 3, 3, rule, lucky(system.q))
        worst = max(worst, error(joint, target_joint(system.p, 4)))
    assert worst > 0.03


@pytest.mark.parametrize("rule", RULES)
def test_lengths_from_counts_keep_the_law_and_lengths_from_what_was_drafted_do_not(
    rule: Rule,
) -> None:
    """S16, the example of the DSpark paper (arXiv 2607.05147, appendix A): steps a second by rows
    1, .5, .45; the second draft is hopeless if the first is b. A budget that is told so drops the
    first because of what it is: .85 instead of .7."""
    p, q = const((0.7, 0.3)), const((0.5, 0.5))
    step_s = {1: 1.0, 2: 1 / 0.5, 3: 1 / 0.45}

    def length_of(second: Callable[[Tokens], float]) -> Length:
        def length(block: Tokens) -> int:
            chances = [0.8, 0.8 * second(block)]
            return allot([chances], 1, step_s.__getitem__, margin=0.0)[0]

        return length

    for second, first_a in ((lambda block: 0.9, 0.7), (lambda b: 0.9 if b[0] == 0 else 0.0, 0.85)):
        joint, _ = written(p, q, 2, 2, rule, length_of(cast("Callable[[Tokens], float]", second)))
        assert sum(m for text, m in joint.items() if text[0] == 0) == pytest.approx(first_a)


# ------------------------------------------------------------------------ the dice themselves


def test_an_exploration_is_a_law() -> None:
    law = law_of(lambda branch: (branch.choose([0.2, 0.0, 0.8]), branch.passes(0.25)))
    assert law == pytest.approx(
        {(0, True): 0.05, (0, False): 0.15, (2, True): 0.2, (2, False): 0.6}
    )
