"""The law of `rejection` and `block` through the code that serves: drafts as a draft model draws
them, processors and cuts on both sides, broken rows; against the naive definition, exactly."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from actors.drafters.law import draw, draw_next
from actors.sampling.decide import Span, Verdict, decide
from actors.sampling.dice import Place
from actors.sampling.law import TokenLaw
from actors.sampling.params import SamplingParams
from actors.sampling.processors import Processors
from actors.sampling.rules import Rule
from tests.law.explore import Branch, law_of, scripted
from tests.unit.actors.sampling import reference

torch.set_num_threads(1)

VOCAB, DEPTH = 4, 2
PROMPT = (1, 2)
EOS = frozenset([3])
RULES: tuple[Rule, ...] = ("rejection", "block")
Logits = Callable[[Sequence[int]], list[float]]


def random_logits(side: str) -> Logits:
    def logits(prefix: Sequence[int]) -> list[float]:
        rng = random.Random(f"{side} {tuple(prefix)}")
        return [rng.gauss(0.0, 1.5) for _ in range(VOCAB)]

    return logits


TARGET, DRAFTER = random_logits("target"), random_logits("drafter")
SETTINGS = {
    "plain": SamplingParams(),
    "hot": SamplingParams(temperature=1.7),
    "top_k": SamplingParams(temperature=0.8, top_k=2),
    "top_p": SamplingParams(top_p=0.7),
    "min_p": SamplingParams(min_p=0.3),
    "penalties": SamplingParams(
        repetition_penalty=1.5, presence_penalty=0.4, frequency_penalty=-0.8
    ),
    "bias and end": SamplingParams(
        logit_bias=((0, 1.5), (2, -100.0)), min_tokens=2, stop_token_ids=frozenset([1])
    ),
}


def by_the_book(tokens: Sequence[int], params: SamplingParams) -> list[float]:
    """The target's law after `tokens`."""
    row = reference.process(TARGET(tokens), params, tokens, len(PROMPT), EOS)
    kept = reference.survivors(row, params)
    mass = [math.exp((row[i] - max(row)) / params.temperature) for i in kept]
    return [mass[kept.index(i)] / sum(mass) if i in kept else 0.0 for i in range(VOCAB)]


def drafted(
    params: SamplingParams, drafter: Logits, ids_kept: int
) -> tuple[list[int], list[TokenLaw]]:
    tokens, laws = list(PROMPT), list[TokenLaw]()
    for _ in range(DEPTH):
        row = torch.tensor(drafter(tokens), dtype=torch.float64)
        output_len = len(tokens) - len(PROMPT)
        process = Processors(params, tokens, len(PROMPT), EOS, output_len)
        place = Place(params.seed, len(PROMPT), len(tokens))
        token, law = draw(row, process, params, place, ids_kept)
        tokens.append(token)
        laws.append(law)
    return tokens[len(PROMPT) :], laws


def verify(
    block: Sequence[int],
    laws: Sequence[TokenLaw] | None,
    params: SamplingParams,
    rule: Rule,
    target: Logits = TARGET,
) -> Verdict:
    rows = [target([*PROMPT, *block[:i]]) for i in range(len(block) + 1)]
    span = Span(0, block, params, PROMPT, len(PROMPT), EOS, laws, rule)
    return decide(torch.tensor(rows, dtype=torch.float64), [span])[0]


def joint_error(
    run: Callable[[Branch], tuple[int, ...]],
    params: SamplingParams,
    broken: Callable[[Sequence[int]], bool] = lambda text: False,
) -> float:
    """Between the law of `run`'s text, gone on with by standard decode, and standard decode's; a
    text ends where the target is broken."""

    def complete(joint: dict[tuple[int, ...], float], text: tuple[int, ...], chance: float) -> None:
        if len(text) > DEPTH or broken(text):
            joint[text] += chance
            return
        for token, mass in enumerate(by_the_book((*PROMPT, *text), params)):
            if mass > 0.0:
                complete(joint, (*text, token), chance * mass)

    found: dict[tuple[int, ...], float] = defaultdict(float)
    right: dict[tuple[int, ...], float] = defaultdict(float)
    for text, chance in law_of(run).items():
        complete(found, text, chance)
    complete(right, (), 1.0)
    return max(abs(found[t] - right[t]) for t in {*found, *right})


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_joint_law_is_the_processed_targets(setting: str, rule: Rule) -> None:
    """Whatever cuts and penalties, each row with its own history; also where the draft's law is cut
    harder than the target's."""
    params = SETTINGS[setting]
    for ids_kept in (VOCAB, 2):

        def run(branch: Branch) -> tuple[int, ...]:
            with scripted(branch):
                block, laws = drafted(params, DRAFTER, ids_kept)
                return verify(block, laws, params, rule).tokens

        assert joint_error(run, params) < 1e-12


@pytest.mark.parametrize("rule", RULES)
def test_drafts_under_other_parameters_than_the_targets_keep_the_law(rule: Rule) -> None:
    """S10's other half: q may be made in any way, if it is what the draft was drawn from."""
    params = SETTINGS["top_p"]
    colder = SamplingParams(temperature=0.3, top_k=3)

    def run(branch: Branch) -> tuple[int, ...]:
        with scripted(branch):
            block, laws = drafted(colder, DRAFTER, VOCAB)
            return verify(block, laws, params, rule).tokens

    assert joint_error(run, params) < 1e-12


@pytest.mark.parametrize("rule", RULES)
def test_a_broken_row_ends_the_block_before_it_and_the_law_stays(rule: Rule) -> None:
    """S52: after a 2 the target's rows are NaN. What comes before is the target's law still: that
    the row is broken is known only from a token that has been decided."""

    def target(prefix: Sequence[int]) -> list[float]:
        return [math.nan] * VOCAB if 2 in prefix[len(PROMPT) :] else TARGET(prefix)

    def run(branch: Branch) -> tuple[int, ...]:
        with scripted(branch):
            block, laws = drafted(SETTINGS["plain"], DRAFTER, VOCAB)
            verdict = verify(block, laws, SETTINGS["plain"], rule, target)
        assert verdict.error is None
        assert len(verdict.tokens) == verdict.accepted + 1
        return verdict.tokens

    assert joint_error(run, SETTINGS["plain"], lambda text: 2 in text) < 1e-12


@pytest.mark.parametrize("rule", RULES)
def test_a_broken_first_row_is_the_requests_error(rule: Rule) -> None:
    verdict = verify([0, 1], None, SamplingParams(), rule, lambda prefix: [math.nan] * VOCAB)
    assert verdict.tokens == ()
    assert "position 2" in (verdict.error or "")


@pytest.mark.parametrize("rule", RULES)
def test_ids_outside_the_vocabulary_are_never_accepted(rule: Rule) -> None:
    """S42, with a law and without."""
    law = TokenLaw(np.array([-1, VOCAB, 2]), np.full(3, 1 / 3, np.float32))
    for seed in range(50):
        params = SamplingParams(seed=seed)
        for block in ([-1, 2], [VOCAB, -7]):
            for laws in (None, [law, law]):
                verdict = verify(block, laws, params, rule)
                assert verdict.accepted == 0
                assert verdict.tokens[0] in range(VOCAB)


@pytest.mark.parametrize("rule", RULES)
def test_greedy_requests_do_not_know_the_rule(rule: Rule) -> None:
    greedy = SamplingParams(temperature=0.0, repetition_penalty=1.2)
    first = verify([], None, greedy, "coupled").tokens
    for block in ([*first, 0], [(first[0] + 1) % VOCAB, 0]):
        assert verify(block, None, greedy, rule) == verify(block, None, greedy, "coupled")


@pytest.mark.parametrize("rule", RULES)
def test_a_seed_repeats_its_text_and_neighbours_differ(rule: Rule) -> None:
    def text(seed: int) -> tuple[int, ...]:
        params = SamplingParams(seed=seed)
        return verify(*drafted(params, DRAFTER, VOCAB), params, rule).tokens

    assert [text(seed) for seed in range(64)] == [text(seed) for seed in range(64)]
    assert len({text(seed) for seed in range(64)}) > 8


@pytest.mark.parametrize("rule", RULES)
def test_the_dice_in_use_give_the_law_that_was_enumerated(rule: Rule) -> None:
    """2,500 seeds, V = 3, with the hash: the first token's law, and acceptance."""
    p, q = (0.5, 0.3, 0.2), (0.2, 0.5, 0.3)
    rows = torch.tensor(p, dtype=torch.float64).log().expand(2, 3)
    draft_row = torch.tensor(q, dtype=torch.float64).log()
    counts, accepted, count = np.zeros(3, np.int64), 0, 2_500
    for seed in range(count):
        params = SamplingParams(seed=seed)
        token, law = draw_next(draft_row, params, 2, PROMPT, 2, EOS)
        span = Span(0, [token], params, PROMPT, 2, EOS, [law], rule)
        verdict = decide(rows, [span])[0]
        counts[verdict.tokens[0]] += 1
        accepted += verdict.accepted
    assert stats.chisquare(counts, np.array(p) * count).pvalue > 1e-3
    assert abs(accepted / count - 0.7) < 4 * (0.7 * 0.3 / count) ** 0.5


@pytest.mark.parametrize("rule", RULES)
def test_a_drafter_that_knows_the_target_has_every_draft_accepted(rule: Rule) -> None:
    """I2: p = q, sampled, with processors; fp32 in q is all that could refuse one."""
    for setting, seed in ((s, seed) for s in SETTINGS for seed in range(40)):
        params = replace(SETTINGS[setting], seed=seed)
        block, laws = drafted(params, TARGET, VOCAB)
        assert verify(block, laws, params, rule).accepted == DEPTH, setting


# ------------------------------------------------------------------------ q is what was drawn from

S10_DRAFT = (3.0, 2.6, 2.2, 1.0, 0.6, 0.2, 0.0, -0.4)
S10_TARGET = (2.2, 2.6, 3.0, 1.0, 0.6, 0.2, 0.0, -0.4)


def first_token(law: dict[tuple[int, ...], float]) -> list[float]:
    return [sum(m for text, m in law.items() if text[0] == t) for t in range(8)]


@pytest.mark.parametrize("rule", RULES)
def test_the_law_reported_is_the_law_after_the_cuts(rule: Rule) -> None:
    """S10: the first token's law is (.2120, .3162, .4718, 0 …); with a q from the raw logits it
    would be (.2490, .3472, .4038)."""
    params = SamplingParams(top_k=3)
    rows = torch.tensor(S10_TARGET, dtype=torch.float64).expand(2, 8)
    draft_row = torch.tensor(S10_DRAFT, dtype=torch.float64)
    raw = TokenLaw(np.arange(8), draft_row.softmax(0).float().numpy())

    def run(branch: Branch, told: TokenLaw | None = None) -> tuple[int, ...]:
        with scripted(branch):
            token, law = draw_next(draft_row, params, 2, PROMPT, 2, EOS)
            span = Span(0, [token], params, PROMPT, 2, EOS, [told or law], rule)
            return decide(rows, [span])[0].tokens

    right = [0.2120, 0.3162, 0.4718, 0, 0, 0, 0, 0]
    wrong = [0.2490, 0.3472, 0.4038, 0, 0, 0, 0, 0]
    assert first_token(law_of(run)) == pytest.approx(right, abs=5e-5)
    assert first_token(law_of(lambda b: run(b, raw))) == pytest.approx(wrong, abs=5e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_numbers_drawn_from_are_the_numbers_reported(dtype: torch.dtype) -> None:
    """S15: whatever the logits' precision, the law of the draw is the reported one, bit for bit."""
    logits = (torch.randn(300, generator=torch.Generator().manual_seed(3)) * 2).to(dtype)
    params = SamplingParams(temperature=0.7)
    reported: list[TokenLaw] = []

    def run(branch: Branch) -> int:
        with scripted(branch):
            token, law = draw_next(logits, params, 2, PROMPT, 2, EOS)
        reported.append(law)
        return token

    drawn = law_of(run)
    law = reported[0]
    assert law.probs.dtype == np.float32
    assert drawn == pytest.approx({int(t): law.of(int(t)) for t in law.ids}, rel=1e-12)
    assert len(law.ids) == 128
    assert min(float(logits[t]) for t in law.ids.tolist()) >= float(logits.sort().values[-128])


def test_a_law_never_holds_a_token_that_cannot_be_drawn() -> None:
    """Weights below the least fp32 number vanish before the draw, not after it."""
    logits = torch.tensor([0.0, -90.0, -200.0, -math.inf], dtype=torch.float64)
    token, law = draw_next(logits, SamplingParams(), 2, PROMPT, 2, EOS)
    assert token == 0
    assert set(law.ids.tolist()) <= {0, 1}
    assert bool((law.probs > 0.0).all())
