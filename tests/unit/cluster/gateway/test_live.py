"""The live page: by cohort what is decided and why, what it brought, and nothing else."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from typing import Any, get_args

from actors.exchange import status as port
from cluster.deployments.reports import verifier_status
from cluster.gateway import metrics
from cluster.gateway.cells import OTHER
from cluster.gateway.cohort_counts import FALLBACKS
from cluster.gateway.http import create_app
from cluster.gateway.live_page import load_page
from cluster.gateway.live_words import WORDS
from cluster.gateway.service import GenerationService
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
LINK: dict[str, Any] = {"drafter": "d0", "mechanism": "suffix", "up": True, "state": "up"}
STATS: dict[str, Any] = {
    "pid": 1,
    "running": 2,
    "waiting": 1,
    "free_blocks": 30,
    "total_blocks": 40,
    "decisions": {
        ("code", "suffix", "remote", "gain"): 30,
        ("code", "", "", "control"): 10,
    },
    "depths": {("code", "suffix"): 5, ("code", ""): 0},
    "ratios": {"code": (1.4, 1.2, 1.6)},
    "alarms": {"code": 2},
    "links": [
        LINK
        | {"blocks_used": 9, "blocks_late": 2, "blocks_stale": 1}
        | {"blocks_answered": 125, "draft_s": 0.25, "block_s": 0.625}
    ],
}


def chunks(spec: GenerateSpec) -> list[Chunk]:
    """A round that accepts 2 of 4, one that was late, one that had no gain."""
    return [
        Chunk((1,), reason="prefill"),
        Chunk((2, 3, 4), drafted=4, accepted=2, mechanism="suffix", remote=True),
        Chunk((5,), reason="late"),
        Chunk((6,), reason="no-gain", finish="length"),
    ]


async def states(*answers: Any, plan: pb.CohortPlan | None = None) -> list[dict[str, Any]]:
    """/live/state after one request of cohort `code`, with the engines' answers in turn, a second
    between two of them. An answer: figures of a verifier or of several, or what is raised."""
    left, now_s = list(answers), 100.0

    async def status() -> pb.Status:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        several = answer if isinstance(answer, list) else [answer]
        found = pb.Status(
            verifiers=[verifier_status(f"v{k}", stats) for k, stats in enumerate(several)]
        )
        if plan is not None:
            found.snapshot.fallback.CopyFrom(plan)
        return found

    settings = GatewaySettings(
        served_model_name="tiny", cohorts=COHORTS, num_speculative_tokens=5 if plan else 0
    )
    chat, backend = FakeChatTokenizer(make_char_tokenizer()), ScriptedBackend(chunks)
    service = GenerationService(backend, chat, settings)
    service.metrics.engines.decisions.clock = lambda: now_s
    app = create_app(backend, chat, settings, service=service, status=status)
    found = []
    async with make_client(app) as client:
        body = {"prompt": "a", "max_tokens": 6, "metadata": {"task": "code"}}
        assert (await client.post("/v1/completions", json=body)).status_code == 200
        for _ in answers:
            found.append((await client.get("/live/state")).json())
            now_s += 1.0
    return found


async def test_a_cohort_shows_every_decision_with_its_reason_and_what_was_delivered() -> None:
    (state,) = await states(STATS)
    assert (state["model"], state["verifiers"], state["kv_usage"]) == ("tiny", 1, 0.25)
    assert (state["running"], state["waiting"]) == (2, 1)
    assert state["rounds"] == {"drafted": 1, "late": 1, "no-gain": 1}
    assert state["cohorts"] == [
        {
            "cohort": "code",
            "decisions": [
                {
                    "mechanism": "suffix",
                    "placement": "remote",
                    "depth": 5,
                    "reason": "gain",
                    "share": 0.75,
                },
                {
                    "mechanism": None,
                    "placement": None,
                    "depth": 0,
                    "reason": "control",
                    "share": 0.25,
                },
            ],
            "decided_s": None,
            "ratio": 1.4,
            "ratio_low": 1.2,
            "ratio_high": 1.6,
            "drafts": 1,
            "drafted": 4,
            "accepted": 2,
            "acceptance": 0.5,
            "acceptance_length": 3.0,
            "fallbacks": {"late": 1},
            "changes": 2,
        }
    ]


async def test_what_is_not_known_is_null_and_never_a_rate_of_nothing() -> None:
    decided_alone = {"decisions": {("chat", "", "", "no-gain"): 3}, "depths": {("chat", ""): 0}}
    (state,) = await states(decided_alone)
    chat, code = state["cohorts"]
    (decision,) = chat["decisions"]
    assert (decision["mechanism"], decision["placement"], decision["depth"]) == (None, None, 0)
    assert (decision["reason"], decision["share"]) == ("no-gain", 1.0)
    assert (chat["acceptance"], chat["acceptance_length"], chat["ratio"]) == (None, None, None)
    assert (code["cohort"], code["decisions"]) == ("code", [])
    assert state["kv_usage"] is None


async def test_decisions_age_from_the_look_before_they_were_seen() -> None:
    """The first look may show what an engine decided an hour ago; later ones know better."""
    more = STATS | {"decisions": STATS["decisions"] | {("code", "suffix", "remote", "gain"): 31}}
    ages = [state["cohorts"][0]["decided_s"] for state in await states(STATS, STATS, more, more)]
    assert ages == [None, None, 1.0, 2.0]


async def test_an_engine_that_decides_nothing_shows_its_configured_depth() -> None:
    plan = pb.CohortPlan(depth=4, reason="configured")
    (state,) = await states({"running": 1}, plan=plan)
    assert state["policy"]
    assert state["cohorts"][0]["decisions"] == [
        {
            "mechanism": "suffix",
            "placement": "remote",
            "depth": 4,
            "reason": "configured",
            "share": None,
        }
    ]


async def test_engines_that_do_not_answer_leave_their_last_figures_and_say_how_old_they_are() -> (
    None
):
    never, first, second = await states(RuntimeError("not yet"), STATS, RuntimeError("gone"))
    assert never["age_s"] is None
    assert never["verifiers"] is None
    assert 0.0 <= first["age_s"] < second["age_s"]
    assert {**second, "age_s": 0, "cohorts": 0} == {**first, "age_s": 0, "cohorts": 0}
    assert second["cohorts"][0]["decisions"] == first["cohorts"][0]["decisions"]


async def test_a_drafter_is_shown_as_all_verifiers_see_it_and_why_it_is_not_up() -> None:
    down = LINK | {"up": False, "state": "refused", "detail": "FAILED_PRECONDITION: vocabulary"}
    (state,) = await states([STATS, STATS | {"links": [down]}, STATS | {"links": [down]}])
    assert state["drafters"] == [
        {
            "drafter": "d0",
            "mechanism": "suffix",
            "up": 1,
            "links": 3,
            "troubles": ["refused: FAILED_PRECONDITION: vocabulary"],
            "used": 9,
            "late": 2,
            "stale": 1,
            "draft_ms": 2.0,
            "wire_ms": 3.0,
        }
    ]
    (state,) = await states(STATS | {"links": [{"drafter": "d0", "up": False}]})
    (drafter,) = state["drafters"]
    assert (drafter["troubles"], drafter["draft_ms"]) == (["down"], None)


def test_every_reason_has_a_meaning_on_the_page() -> None:
    said = {"drafted", OTHER, *metrics.REASONS, *get_args(port.Reason), *MEANING, *FALLBACKS}
    assert said <= WORDS.keys()
    assert {word: WORDS[word] for word in MEANING} == MEANING


async def test_the_page_loads_nothing_from_elsewhere_and_shows_every_field_of_the_state() -> None:
    async with make_client(make_app()) as client:
        response = await client.get("/live")
        empty = (await client.get("/live/state")).json()
    page = response.text
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.headers["content-security-policy"] == load_page().policy
    assert not re.search(r"https?:|//[a-z]", page)
    assert not re.search(r"innerHTML|insertAdjacent|document\.write|\bstyle=|\bon[a-z]+=", page)
    assert (empty["age_s"], empty["cohorts"], empty["drafters"]) == (None, [], [])
    (state,) = await states(STATS)
    (cohort,), (drafter,) = state["cohorts"], state["drafters"]
    fields = {*cohort, *drafter} - {"drafts"}
    assert [name for name in fields if f"of.{name}" not in page] == []
    assert [name for name in state if f"state.{name}" not in page] == []


def test_the_policy_lets_the_pages_own_script_and_style_run_and_no_other() -> None:
    page = load_page()
    for tag in ("script", "style"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page.html, re.DOTALL)
        digest = b64encode(sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}';" in page.policy
    assert page.policy.startswith("default-src 'none'; ")
    assert "unsafe" not in page.policy
