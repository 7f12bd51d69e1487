"""The live page: by cohort what is decided and why, what it brought, and nothing else."""

from __future__ import annotations

import re
from typing import Any

from cluster.deployments.reports import verifier_status
from cluster.gateway.http import create_app
from cluster.gateway.settings import GatewaySettings
from cluster.gateway.types import Chunk, GenerateSpec
from pilotfish.v1 import control_pb2 as pb
from policies.choice_reasons import MEANING
from policies.cohorts import Cohorts, Rule
from tests.unit.cluster.gateway.builders import (
    FakeChatTokenizer,
    ScriptedBackend,
    make_app,
    make_char_tokenizer,
    make_client,
)

COHORTS = Cohorts([Rule("{task}", task=("code", "chat"))])
STATS: dict[str, Any] = {
    "pid": 1,
    "running": 2,
    "waiting": 1,
    "decisions": {
        ("code", "suffix", "remote", "gain"): 30,
        ("code", "", "", "control"): 10,
    },
    "depths": {("code", "suffix"): 5, ("code", ""): 0},
    "ratios": {"code": (1.4, 1.2, 1.6)},
    "alarms": {"code": 2},
}


def chunks(spec: GenerateSpec) -> list[Chunk]:
    """A round that accepts 2 of 4, one that was late, one that had no gain."""
    return [
        Chunk((1,), reason="prefill"),
        Chunk((2, 3, 4), drafted=4, accepted=2, mechanism="suffix", remote=True),
        Chunk((5,), reason="late"),
        Chunk((6,), reason="no-gain", finish="length"),
    ]


async def states(*answers: Any) -> list[dict[str, Any]]:
    """/live/state after one request of cohort `code`, with the engines' answers in turn."""
    left = list(answers)

    async def status() -> pb.Status:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return pb.Status(verifiers=[verifier_status("v", answer)])

    settings = GatewaySettings(served_model_name="tiny", cohorts=COHORTS)
    chat = FakeChatTokenizer(make_char_tokenizer())
    app = create_app(ScriptedBackend(chunks), chat, settings, status=status)
    async with make_client(app) as client:
        body = {"prompt": "a", "max_tokens": 6, "metadata": {"task": "code"}}
        assert (await client.post("/v1/completions", json=body)).status_code == 200
        return [(await client.get("/live/state")).json() for _ in answers]


async def test_a_cohort_shows_its_commonest_decision_and_what_was_delivered() -> None:
    (state,) = await states(STATS)
    assert (state["model"], state["stale"], state["verifiers"]) == ("tiny", False, 1)
    assert (state["running"], state["waiting"]) == (2, 1)
    assert state["reasons"] == MEANING
    assert state["cohorts"] == [
        {
            "cohort": "code",
            "mechanism": "suffix",
            "placement": "remote",
            "depth": 5,
            "reason": "gain",
            "share": 0.75,
            "ratio": 1.4,
            "ratio_low": 1.2,
            "ratio_high": 1.6,
            "drafts": 1,
            "drafted": 4,
            "accepted": 2,
            "acceptance": 0.5,
            "acceptance_length": 3.0,
            "fallbacks": 1,
            "changes": 2,
        }
    ]


async def test_what_is_not_known_is_null_and_never_a_rate_of_nothing() -> None:
    decided_alone = {"decisions": {("chat", "", "", "no-gain"): 3}, "depths": {("chat", ""): 0}}
    (state,) = await states(decided_alone)
    chat, code = state["cohorts"]
    assert (chat["cohort"], chat["mechanism"], chat["placement"]) == ("chat", None, None)
    assert (chat["depth"], chat["reason"], chat["share"]) == (0, "no-gain", 1.0)
    assert (chat["acceptance"], chat["acceptance_length"], chat["ratio"]) == (None, None, None)
    assert (code["cohort"], code["reason"], code["depth"]) == ("code", None, None)


async def test_engines_that_do_not_answer_leave_their_last_figures_and_the_page_says_so() -> None:
    first, second = await states(STATS, RuntimeError("gone"))
    assert second["stale"]
    assert second["cohorts"] == first["cohorts"]


async def test_the_page_loads_nothing_from_elsewhere_and_shows_every_field_of_the_state() -> None:
    async with make_client(make_app()) as client:
        response = await client.get("/live")
        empty = (await client.get("/live/state")).json()
    page = response.text
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert not re.search(r"https?:|//[a-z]", page)
    assert "innerHTML" not in page
    assert (empty["stale"], empty["cohorts"]) == (True, [])
    (state,) = await states(STATS)
    assert [name for name in state["cohorts"][0] if f"of.{name}" not in page] == ["drafts"]
    assert [name for name in state if f"state.{name}" not in page] == []
