"""L1 for `rejection` and `block` through the whole engine, exactly: every draw of drafter and
target over a text of several rounds is enumerated, with lengths that the engine chooses itself."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from actors.engine.core import Engine
from actors.engine.speculation import Speculation
from actors.exchange.local import LocalPort
from actors.sampling import dice
from actors.sampling.params import SamplingParams
from actors.sampling.rules import Rule
from policies.cost import Cost, profiled
from tests.drafters.drawing import DrawingDrafter
from tests.law.explore import Branch, explore, law_of, scripted
from tests.law.harness import SchedulePort, assert_pools_full, make_engine, request, run
from tests.models import make_const

RULES: tuple[Rule, ...] = ("rejection", "block")
Table = Sequence[Sequence[float]]
EXACT = 1e-12

P2: Table = ((0.7, 0.3), (0.2, 0.8))
Q2: Table = ((0.4, 0.6), (0.65, 0.35))
P3: Table = ((0.5, 0.3, 0.2), (0.0, 0.6, 0.4), (0.25, 0.25, 0.5))
Q3: Table = ((0.2, 0.5, 0.3), (0.3, 0.7, 0.0), (0.25, 0.25, 0.5))

ALL_OR_NOTHING = profiled([(1, 1.0), (2, 2.0), (3, 2.05), (4, 2.1), (8, 2.2)])
"""One drafted row never pays, several do."""


def make_markov(table: Table) -> Any:
    """A target whose law after token t is table[t]: one-hot rows, normalised to sqrt(hidden)."""
    model = make_const(table[0])
    hidden = model.config.hidden_size
    logs = [[math.log(x) if x > 0 else -1e9 for x in row] for row in table]
    columns = torch.tensor(logs, dtype=torch.float64).T / hidden**0.5
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(torch.eye(len(table), hidden))
        model.lm_head.weight.zero_()
        model.lm_head.weight[:, : len(table)] = columns
    return model


@torch.inference_mode()
def target_joint(table: Table, length: int) -> dict[tuple[int, ...], float]:
    """Of `length` tokens after a 0, by the model's own rows: its norm rounds in fp32."""
    model = make_markov(table)
    rows = model(torch.arange(len(table))[:, None], use_cache=False).logits[:, -1]
    laws = rows.softmax(-1).tolist()
    joint = {}
    for text in itertools.product(range(len(table)), repeat=length):
        chance = math.prod(laws[a][b] for a, b in itertools.pairwise((0, *text)))
        if chance > 0.0:
            joint[text] = chance
    return joint


@dataclass
class Writer:
    """Writes the same request again and again, each time as the branch's dice fall."""

    engine: Engine
    length: int
    cost: Cost | None = None
    rounds_before: int = 30
    texts: int = 0
    verified: int = 0

    def __call__(self, branch: Branch) -> tuple[int, ...]:
        if self.cost is not None:  # what was learned is the same in every branch
            self.engine.speculation = Speculation(self.cost, self.engine.rule)
            for _ in range(self.rounds_before):
                self.engine.speculation.verified("before", 2, 2)
        self.texts += 1
        params = SamplingParams(max_tokens=self.length)
        before = self.engine.stats.drafted
        with scripted(branch):
            text = run(self.engine, request(str(self.texts), [0], params))[str(self.texts)]
        self.verified += self.engine.stats.drafted - before
        return tuple(text)


def error(found: dict[tuple[int, ...], float], right: dict[tuple[int, ...], float]) -> float:
    return max(abs(found.get(t, 0.0) - right.get(t, 0.0)) for t in found.keys() | right.keys())


def make_writer(
    p: Table, drafter: DrawingDrafter, rule: Rule, length: int, cost: Cost | None = None, **kw: Any
) -> Writer:
    return Writer(make_engine(make_markov(p), drafter, rule=rule, **kw), length, cost)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("p", "q", "length"), [(P2, Q2, 5), (P3, Q3, 4)], ids=["two", "three"])
def test_the_law_of_a_whole_text_is_the_targets(
    p: Table, q: Table, length: int, rule: Rule
) -> None:
    writer = make_writer(p, DrawingDrafter(q), rule, length, depth=2)
    assert error(law_of(writer), target_joint(p, length)) < EXACT
    assert writer.verified > 0
    assert_pools_full(writer.engine)
    assert not writer.engine.port._guard._drafter.sessions  # type: ignore[attr-defined]


@pytest.mark.parametrize("rule", RULES)
def test_drafts_without_a_law_keep_it_too(rule: Rule) -> None:
    """S11: a drafter that draws and does not say from what is slower, never wrong."""
    writer = make_writer(P2, DrawingDrafter(Q2, lawless=True), rule, 4, depth=2)
    assert error(law_of(writer), target_joint(P2, 4)) < EXACT


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("ends", "lawless"),
    [(frozenset[int](), False), (frozenset([1]), False), (frozenset([1]), True)],
    ids=["whole", "ends early", "ends early, no law"],
)
def test_lengths_that_the_engine_chooses_keep_the_law(
    ends: frozenset[int], lawless: bool, rule: Rule
) -> None:
    """S16, where several rows pay and one does not: blocks that end with what was drawn must not be
    left unverified for being short, or the token they end with would become rare."""
    drafter = DrawingDrafter(Q2, ends=ends, lawless=lawless)
    writer = make_writer(P2, drafter, rule, 4, ALL_OR_NOTHING, depth=2)
    assert error(law_of(writer), target_joint(P2, 4)) < EXACT
    assert writer.verified > 0


@pytest.mark.parametrize("rule", RULES)
def test_a_schedule_of_lengths_keeps_the_law(rule: Rule) -> None:
    for schedule in ([1, 2, 0], [0, 2]):
        port = SchedulePort(LocalPort(DrawingDrafter(Q2)), schedule)
        engine = make_engine(make_markov(P2), port=port, depth=2, rule=rule)

        class Replayed(Writer):
            def __call__(self, branch: Branch) -> tuple[int, ...]:
                port._turn = 0
                return super().__call__(branch)

        assert error(law_of(Replayed(engine, 4)), target_joint(P2, 4)) < EXACT


def test_block_accepts_more_than_rejection_and_rejection_more_than_without_laws() -> None:
    """Expected accepted tokens over the same text; what is written has one law."""
    accepted = {}
    for name, rule, lawless in (
        ("block", "block", False),
        ("rejection", "rejection", False),
        ("lawless", "rejection", True),
    ):
        writer = make_writer(P2, DrawingDrafter(Q2, lawless=lawless), rule, 4, depth=2)  # type: ignore[arg-type]
        accepted[name] = expected(writer)
    assert accepted["block"] > accepted["rejection"] + 0.01
    assert accepted["rejection"] > accepted["lawless"] + 0.1


def expected(writer: Writer) -> float:
    stats = writer.engine.stats

    def counted(branch: Branch) -> int:
        before = stats.accepted
        writer(branch)
        return stats.accepted - before

    return sum(chance * count for chance, count in explore(counted))


@pytest.mark.parametrize("rule", RULES)
def test_a_request_can_be_repeated_with_the_same_drafter(rule: Rule) -> None:
    """By the hash: the same seed, text for text, alone and beside others."""
    params = [SamplingParams(seed=seed, max_tokens=24) for seed in range(6)]
    texts: Callable[[Engine], dict[str, list[int]]] = lambda engine: run(  # noqa: E731
        engine, *(request(str(i), [0, 1], p) for i, p in enumerate(params))
    )
    engine = make_engine(make_markov(P3), DrawingDrafter(Q3), 3, rule=rule)
    together = texts(engine)
    assert texts(engine) == together
    alone = {}
    for i, p in enumerate(params):
        alone |= run(engine, request(str(i), [0, 1], p))
    assert alone == together
    assert len(set(map(tuple, together.values()))) > 3
    assert engine.stats.accepted > 0


@pytest.mark.parametrize("rule", RULES)
def test_no_number_is_rolled_twice_in_a_request(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a round accepts depends, under `block`, on drafts behind it as well; were their numbers
    used again for the same positions, the next round would not be independent of it."""
    rolled: list[tuple[dice.Place, dice.Use]] = []
    uniform = dice.uniform

    def noted(place: dice.Place, use: dice.Use) -> float:
        rolled.append((place, use))
        return uniform(place, use)

    monkeypatch.setattr(dice, "uniform", noted)
    engine = make_engine(make_markov(P3), DrawingDrafter(Q3), 3, rule=rule)
    run(engine, request("a", [0, 1], SamplingParams(seed=1, max_tokens=40)))
    assert len(set(rolled)) == len(rolled) > 60
    positions = [place.position for place, use in rolled if use is dice.Use.DRAFT]
    assert len(set(positions)) < len(positions)  # the same ones were drafted again
