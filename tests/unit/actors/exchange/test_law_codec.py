"""Laws on the wire: the very numbers, and nothing that could not have been drawn from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from actors.contracts import DraftRequest, OpenSession, Proposal, SessionKey
from actors.exchange.codec import block_to_pb
from actors.exchange.frames import ROOM
from actors.exchange.guard import GuardedDrafter
from actors.exchange.law_codec import law_from_pb
from actors.exchange.limits import MAX_BLOCK, MAX_LAW
from actors.exchange.wire_error import WireError
from actors.sampling.law import TokenLaw
from actors.sampling.params import SamplingParams
from pilotfish.v1 import exchange_pb2 as pb
from tests.unit.actors.exchange.helpers import (
    Engine,
    ToyDrafter,
    View,
    ported,
    serving,
    step_until,
)

KEY = SessionKey("v0", "r0", 1)
SAMPLED = SamplingParams(seed=1, max_tokens=64)
VOCAB = 97


def make_law(*ids: int) -> TokenLaw:
    rng = np.random.default_rng(ids[0])
    probs = rng.random(len(ids)).astype(np.float32) + np.float32(0.01)
    return TokenLaw(np.array(ids, np.int64), probs / probs.sum())


LAWS = (make_law(5, 96, 0), make_law(3), make_law(9, 2))
BLOCK = Proposal(KEY, 7, (96, 3, 2), law=LAWS)


def sent(proposal: Proposal = BLOCK) -> pb.Block:
    return pb.Block.FromString(block_to_pb(proposal, 1, 2, 3).SerializeToString())


def test_laws_cross_the_wire_bit_for_bit() -> None:
    message = sent()
    laws = law_from_pb(message.law, message.tokens, VOCAB)
    for law, original in zip(laws, LAWS, strict=True):
        assert law.ids.tolist() == original.ids.tolist()
        assert law.probs.tobytes() == original.probs.tobytes()
        assert law.masses.tolist() == original.masses.tolist()
    assert not sent(replace(BLOCK, law=None)).HasField("law")


def test_the_largest_law_fits_a_frame() -> None:
    law = TokenLaw(np.arange(MAX_LAW), np.full(MAX_LAW, 1 / MAX_LAW, np.float32))
    proposal = Proposal(KEY, 7, (1,) * MAX_BLOCK, law=(law,) * MAX_BLOCK)
    assert sent(proposal).ByteSize() < ROOM


def spoiled(change: Callable[[pb.Law], None]) -> pb.Block:
    message = sent()
    change(message.law)
    return message


def probs_of(*values: float) -> Callable[[pb.Law], None]:
    """The first law's probabilities, the others as they were."""

    def change(law: pb.Law) -> None:
        law.probs = np.array(values, "<f4").tobytes() + law.probs[4 * len(values) :]

    return change


def ids_of(*values: int) -> Callable[[pb.Law], None]:
    def change(law: pb.Law) -> None:
        law.ids = np.array(values, "<u4").tobytes() + law.ids[4 * len(values) :]

    return change


def counts_of(*values: int) -> Callable[[pb.Law], None]:
    def change(law: pb.Law) -> None:
        law.counts[:] = values

    return change


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(counts_of(3, 1), id="a law too few"),
        pytest.param(counts_of(3, 1, 2, 1), id="a law too many"),
        pytest.param(counts_of(3, 0, 3), id="nothing in it"),
        pytest.param(counts_of(3, 2, 2), id="more counted than sent"),
        pytest.param(counts_of(2**32 - 1, 1, 2), id="a count beyond all"),
        pytest.param(lambda law: setattr(law, "ids", law.ids[:-1]), id="ids cut off"),
        pytest.param(lambda law: setattr(law, "probs", b""), id="no probabilities"),
        pytest.param(ids_of(5, 97, 0), id="an id outside the vocabulary"),
        pytest.param(ids_of(5, 4, 0), id="the drafted token is not in it"),
        pytest.param(ids_of(5, 96, 5), id="an id twice"),
        pytest.param(probs_of(0.5, 0.5, 0.0), id="a zero"),
        pytest.param(probs_of(1.5, 0.5, -1.0), id="below zero"),
        pytest.param(probs_of(float("nan"), 0.5, 0.5), id="nan"),
        pytest.param(probs_of(float("inf"), 0.5, 0.5), id="inf"),
        pytest.param(probs_of(0.5, 0.2, 0.1), id="the rest is missing"),
    ],
)
def test_a_law_that_the_block_was_not_drawn_from_is_refused(
    change: Callable[[pb.Law], None],
) -> None:
    message = spoiled(change)
    with pytest.raises(WireError, match=r"^law"):
        law_from_pb(message.law, message.tokens, VOCAB)


class LawfulDrafter(ToyDrafter):
    """Knows the toy target, and says with which probability; `spoil` may change that."""

    def __init__(self) -> None:
        super().__init__(gives_law=True)
        self.lawless: set[str] = set()
        self.spoil = self._with_laws

    def _with_laws(self, proposals: list[Proposal]) -> list[Proposal]:
        return [
            p
            if p.key.request in self.lawless
            else replace(p, law=tuple(make_law(t, (t + 1) % VOCAB) for t in p.tokens))
            for p in proposals
        ]


def test_a_block_comes_with_its_law_and_one_without_quarantines_its_session_alone() -> None:
    """Between two real processes' sockets: r1's laws are missing, and only r1 goes without."""
    drafter = LawfulDrafter()
    views = [View(f"r{i}", [i, i + 1], SAMPLED) for i in range(3)]
    with serving(drafter) as endpoint, ported(endpoint, vocab_size=VOCAB) as port:
        engine = Engine(port)
        engine.start(*views)
        drafts = engine.step().drafts
        assert drafts.keys() == {"r0", "r1", "r2"}
        for draft in drafts.values():
            assert draft.law is not None
            pairs = zip(draft.law, draft.tokens, strict=True)
            assert all(token in law.ids for law, token in pairs)
            assert draft.cut(2).law == draft.law[:2]
        drafter.lawless.add("r1")
        gathered = engine.step()
        assert gathered.missing == {"r1": "fault"}
        assert gathered.drafts.keys() == {"r0", "r2"}
        drafter.lawless.clear()
        step_until(engine, lambda: "r1" in engine.step().drafts)
        engine.stop()
        assert drafter.wait_empty()


def test_a_greedy_request_owes_no_law() -> None:
    drafter = LawfulDrafter()
    drafter.lawless.add("r0")
    with serving(drafter) as endpoint, ported(endpoint, vocab_size=VOCAB) as port:
        engine = Engine(port)
        engine.start(View("r0", [0, 1]))
        assert engine.step().drafts.keys() == {"r0"}
        engine.stop()


@pytest.mark.parametrize(
    "law",
    [
        pytest.param((make_law(1),), id="one for three"),
        pytest.param((make_law(96), make_law(3), make_law(5)), id="another token"),
        pytest.param((make_law(96, 97), make_law(3), make_law(2)), id="outside the vocabulary"),
        pytest.param((make_law(*range(90, 97)), make_law(3), make_law(2)), id="too large"),
        pytest.param(("law", make_law(3), make_law(2)), id="no law"),
    ],
)
def test_the_guard_lets_no_broken_law_pass(law: tuple[TokenLaw, ...]) -> None:
    drafter = ToyDrafter()
    drafter.spoil = lambda proposals: [replace(p, tokens=BLOCK.tokens, law=law) for p in proposals]
    guard = GuardedDrafter(drafter, VOCAB, max_law=6)
    guard.open([OpenSession(KEY, (1, 2), SAMPLED)])
    answer = guard.propose([DraftRequest(KEY, 3)], [2])[0]
    assert isinstance(answer, str)
    assert "law" in answer
    assert drafter.wait_empty()
