"""The sampler's law, and L1 for `coupled` where it is decided.

The standard sampler over a million consecutive seeds, the law of a processed row, the acceptance
of coupled drafts, and: whatever a drafter says and however long its blocks are, the text is the
one that the definition writes token by token (a toy fp64 target, every row a function of its
prefix).
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from actors.sampling.choose import choose_row
from actors.sampling.decide import Span, decide
from actors.sampling.params import MAX_SEED, SamplingParams
from tests.unit.actors.sampling import reference

torch.set_num_threads(1)
EOS = frozenset([0])

# ------------------------------------------------------------------------ the standard sampler

RARE = 1e-6
LAW = (0.45, 0.3, 0.15, 0.08, 0.0189, 0.001, 5e-5, *[RARE] * 50)


def make_logits(law: Sequence[float]) -> torch.Tensor:
    return torch.tensor(law, dtype=torch.float64).log()


@pytest.mark.parametrize(
    ("first", "position"), [(0, 0), (42, 1), (2**32 - 500_000, 77), (2**63 - 500_000, 8191)]
)
def test_a_million_consecutive_seeds_draw_from_the_law(first: int, position: int) -> None:
    """Chi-square over the common tokens, exact counts for the fifty of probability 1e-6."""
    assert sum(LAW) == pytest.approx(1.0)
    seeds = np.uint64(first) + np.arange(1_000_000, dtype=np.uint64)
    drawn = np.concatenate([reference.winners(LAW, part, position) for part in np.split(seeds, 20)])
    counts = np.bincount(drawn, minlength=len(LAW))
    table = np.array([*counts[:7], counts[7:].sum()])
    expected = 1e6 * np.array([*LAW[:7], 50 * RARE])
    assert 1e-3 < stats.chisquare(table, expected).pvalue < 1 - 1e-3  # too even is wrong too
    assert stats.poisson.sf(counts[7:].max() - 1, 1.0) * 50 > 1e-3
    assert (counts[7:] > 0).sum() > 20
    changes = (drawn[1:] != drawn[:-1]).mean()  # no memory from one seed to the next
    own = 1 - sum(p * p for p in LAW)
    assert abs(changes - own) < 5 * (own * (1 - own) / 1e6) ** 0.5


def test_the_sampler_in_use_is_the_one_that_was_tested() -> None:
    """Every rare draw among 200,000 seeds, and 2,000 others, through the code that serves."""
    seeds = np.arange(200_000, dtype=np.uint64)
    drawn = reference.winners(LAW, seeds, 3)
    rare = np.flatnonzero(drawn >= 6)
    assert len(rare) > 5
    logits = make_logits(LAW)
    for seed in [*range(2000), *rare.tolist()]:
        assert choose_row(logits, SamplingParams(seed=seed), 3) == drawn[seed]


def test_positions_and_tokens_of_one_seed_are_as_independent_as_seeds() -> None:
    """One request of 100,000 tokens: the law holds along the text, and pairs are independent."""
    positions = np.arange(100_000, dtype=np.uint64)
    law = np.array([0.5, 0.3, 0.2])
    race = np.stack(
        [-np.log1p(-reference.uniforms(7, positions, i)) / p for i, p in enumerate(law)]
    )
    drawn = race.argmin(0)
    pairs = np.bincount(drawn[:-1] * 3 + drawn[1:], minlength=9)
    assert stats.chisquare(pairs, np.outer(law, law).ravel() * pairs.sum()).pvalue > 1e-3


# ------------------------------------------------------------------------ CONST laws


def test_min_p_and_bias_hold_in_every_row_of_a_block() -> None:
    """S17: CONST p = (.5, .3, .15, .05), min_p = .4, logit_bias {2: -100}, an oracle at D = 3."""
    rows = make_logits((0.5, 0.3, 0.15, 0.05)).expand(4, 4)
    counts = np.zeros(4, np.int64)
    for seed in range(2500):
        params = SamplingParams(min_p=0.4, logit_bias=((2, -100.0),), seed=seed)
        block = [choose_row(rows[0], params, 1 + i) for i in range(3)]
        verdict = decide(rows, [Span(0, block, params, (0,), 1, frozenset())])[0]
        assert verdict.accepted == 3
        counts += np.bincount(verdict.tokens, minlength=4)
    assert counts.sum() == 10_000
    assert counts[2] == counts[3] == 0
    assert stats.binomtest(int(counts[0]), 10_000, 0.625).pvalue > 1e-3


@pytest.mark.parametrize("drafted", ["coupled", "argmax", "stuck", "none"])
def test_no_drafter_bends_the_law(drafted: str) -> None:
    """CONST p against q over 10,000 seeds: the emitted token has the law p, whatever was drafted;
    coupled drafts are accepted with probability sum_i 1 / sum_j max(p_j/p_i, q_j/q_i) = .6935."""
    p, q = (0.5, 0.3, 0.2), (0.2, 0.5, 0.3)
    rows, draft_row = make_logits(p).expand(2, 3), make_logits(q)
    counts, accepted, n = np.zeros(3, np.int64), 0, 10_000
    for seed in range(n):
        params = SamplingParams(seed=seed)
        block = {
            "coupled": lambda: [choose_row(draft_row, params, 2)],
            "argmax": lambda: [1],
            "stuck": lambda: [-1],
            "none": list,
        }[drafted]()
        verdict = decide(rows, [Span(0, block, params, (0, 0), 2, frozenset())])[0]
        counts[verdict.tokens[0]] += 1
        accepted += verdict.accepted
    assert stats.chisquare(counts, np.array(p) * n).pvalue > 1e-3
    rate = {"coupled": coupled_acceptance(p, q), "argmax": p[1]}.get(drafted, 0.0)
    assert abs(accepted / n - rate) <= 4 * (rate * (1 - rate) / n) ** 0.5


def coupled_acceptance(p: Sequence[float], q: Sequence[float]) -> float:
    def shared(i: int) -> float:
        return 1 / sum(max(a / p[i], b / q[i]) for a, b in zip(p, q, strict=True))

    return sum(shared(i) for i in range(len(p)))


def test_the_acceptance_of_coupled_drafts_is_the_known_figure() -> None:
    """A million seeds: .6935 within five standard errors, far above independent draws (.31)."""
    p, q = (0.5, 0.3, 0.2), (0.2, 0.5, 0.3)
    rate = coupled_acceptance(p, q)
    assert rate == pytest.approx(0.6935, abs=5e-5)
    seeds = np.arange(1_000_000, dtype=np.uint64)
    same = (reference.winners(p, seeds, 9) == reference.winners(q, seeds, 9)).mean()
    assert abs(same - rate) < 5 * (rate * (1 - rate) / 1e6) ** 0.5


# ------------------------------------------------------------------------ L1


VOCAB = 40
LENGTH = 14


def target_row(prefix: Sequence[int]) -> torch.Tensor:
    """The toy target: fp64 logits as a fixed function of the whole prefix."""
    generator = torch.Generator().manual_seed(zlib.crc32(bytes(prefix)))
    return torch.randn(VOCAB, generator=generator, dtype=torch.float64) * 2


def by_the_book(prompt: Sequence[int], params: SamplingParams) -> list[int]:
    """Standard decode by the naive definition."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + LENGTH:
        tokens.append(reference.choose(target_row(tokens), params, tokens, len(prompt), EOS))
    return tokens


Drafter = Callable[[Sequence[int], int], list[int]]  # (committed tokens, D) -> block


def make_drafter(kind: str, text: Sequence[int], params: SamplingParams, prompt: int) -> Drafter:
    rng = random.Random(kind)
    noise = torch.Generator().manual_seed(1)

    def own(tokens: Sequence[int], depth: int) -> list[int]:
        """A drafter with a noisy copy of the target and the shared noise."""
        block: list[int] = []
        for _ in range(depth):
            seen = [*tokens, *block]
            row = target_row(seen) + torch.randn(VOCAB, generator=noise).double() * 0.3
            block.append(choose_row(row, params, len(seen), seen, prompt, EOS))
        return block

    return {
        "oracle": lambda tokens, depth: list(text[len(tokens) : len(tokens) + depth]),
        "anti": lambda tokens, depth: [
            (t + 1) % VOCAB for t in text[len(tokens) : len(tokens) + depth]
        ],
        "garbage": lambda tokens, depth: [rng.randrange(-5, VOCAB + 5) for _ in range(depth)],
        "coupled": own,
    }[kind]


def speculate(
    prompt: Sequence[int], params: SamplingParams, draft: Drafter, depths: Sequence[int]
) -> tuple[list[int], int, int]:
    """Rounds until the text is complete: (tokens, drafted, accepted)."""
    tokens, drafted, accepted, turn = list(prompt), 0, 0, 0
    while len(tokens) < len(prompt) + LENGTH:
        block = draft(tokens, depths[turn % len(depths)])
        turn += 1
        seen = [[*tokens, *block[:i]] for i in range(len(block) + 1)]
        rows = torch.stack([target_row([t % 256 for t in prefix]) for prefix in seen])
        verdict = decide(rows, [Span(0, block, params, tokens, len(prompt), EOS)])[0]
        drafted, accepted = drafted + len(block), accepted + verdict.accepted
        assert verdict.error is None
        tokens.extend(verdict.tokens)
    return tokens[: len(prompt) + LENGTH], drafted, accepted


PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.4, 1.0, 1.6]),
    top_k=st.sampled_from([0, 5]),
    top_p=st.sampled_from([1.0, 0.8]),
    min_p=st.sampled_from([0.0, 0.05]),
    repetition_penalty=st.sampled_from([1.0, 1.4]),
    frequency_penalty=st.sampled_from([0.0, 0.6]),
    presence_penalty=st.sampled_from([0.0, -0.5]),
    logit_bias=st.sampled_from([(), ((3, 2.0), (4, -100.0))]),
    min_tokens=st.sampled_from([0, 6]),
    seed=st.integers(0, MAX_SEED),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=4),
    PARAMS,
    st.sampled_from(["oracle", "anti", "garbage", "coupled"]),
    st.lists(st.integers(0, 8), min_size=1, max_size=6),
)
def test_a_seed_gives_the_text_of_standard_decode_whatever_is_drafted(
    prompt: list[int], params: SamplingParams, kind: str, depths: list[int]
) -> None:
    text = by_the_book(prompt, params)
    draft = make_drafter(kind, text, params, len(prompt))
    written, drafted, accepted = speculate(prompt, params, draft, depths)
    assert written == text
    if kind == "oracle":
        assert accepted == drafted
    if kind == "anti":
        assert accepted == 0
