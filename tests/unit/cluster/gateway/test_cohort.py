"""From a request at either door to the cohort that the rules name."""

from __future__ import annotations

from typing import Any

import grpc.aio
import pytest

from cluster.gateway.cohort import declared, resolve_task, shape_of
from cluster.gateway.errors import InvalidRequest
from cluster.gateway.settings import GatewaySettings
from cluster.gateway.sharing import TENANT_HEADER
from pilotfish.v1 import inference_pb2 as pb
from pilotfish.v1.inference_pb2_grpc import InferenceStub
from policies.cohorts import DEFAULT, Cohorts, Rule
from tests.unit.cluster.gateway.builders import ScriptedBackend, make_app, make_client
from tests.unit.cluster.gateway_grpc.fakes import Script, make_gateway

COHORTS = Cohorts(
    [
        Rule("gold", tenant=("acme",)),
        Rule("{task}-{prompt}", task=("code", "chat")),
        Rule("alias", model=("big",)),
        Rule("fallback", task=("other",)),
    ]
)


async def over_http(body: dict[str, Any] | None = None, **headers: str) -> str:
    """The cohort of a completion with these fields and headers (`_` for `-`)."""
    backend = ScriptedBackend()
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    app = make_app(backend, served_model_name="big", cohorts=COHORTS)
    async with make_client(app) as client:
        document = {"prompt": "a", "max_tokens": 2, "model": "tiny"} | (body or {})
        response = await client.post("/v1/completions", json=document, headers=given)
    assert response.status_code == 200, response.text
    return backend.specs[0].cohort


async def test_what_is_declared_over_http_chooses_among_the_rules_names() -> None:
    assert await over_http(x_pilotfish_cohort="code") == "code-short"
    assert await over_http({"metadata": {"cohort": "chat"}}) == "chat-short"
    assert await over_http({"metadata": {"task": "other"}}) == "fallback"
    assert await over_http({"model": "big"}) == "alias"
    assert await over_http({"model": None}) == "alias"
    assert await over_http(x_pilotfish_tenant="acme", x_pilotfish_cohort="code") == "gold"


async def test_an_unknown_declaration_is_as_good_as_none() -> None:
    assert await over_http(x_pilotfish_cohort="code-short") == DEFAULT
    assert await over_http({"metadata": {"cohort": "gold"}}) == DEFAULT
    assert await over_http() == DEFAULT


async def test_the_bodys_word_counts_before_the_headers() -> None:
    body = {"metadata": {"cohort": "chat", "task": "other"}}
    assert await over_http(body, x_pilotfish_cohort="code") == "chat-short"
    assert await over_http({"metadata": {"cohort": ""}}, x_pilotfish_cohort="code") == "code-short"


async def test_a_declaration_over_grpc_is_the_field_and_the_tenant_comes_from_metadata() -> None:
    settings = GatewaySettings(served_model_name="big", cohorts=COHORTS)
    async with (
        make_gateway(Script(), settings=settings) as gateway,
        grpc.aio.insecure_channel(gateway.target) as channel,
    ):
        stub = InferenceStub(channel)
        await stub.Generate(pb.GenerateRequest(prompt="a", max_tokens=1, cohort="code"))
        tenant = [(TENANT_HEADER, "acme")]
        await stub.Generate(pb.GenerateRequest(prompt="a", max_tokens=1), metadata=tenant)
        await stub.Generate(pb.GenerateRequest(prompt="a", max_tokens=1, model="tiny"))
        submits = gateway.stand.verifiers[0].submits
    assert [submit.cohort for submit in submits] == ["code-short", "gold", DEFAULT]


@pytest.mark.parametrize("bad", ["a b", "x" * 65, "é", "a\n", "{task}", "*"])
def test_a_bad_declaration_is_refused_by_the_name_it_came_under(bad: str) -> None:
    for give, param in (
        (lambda: resolve_task(bad, "cohort"), "cohort"),
        (lambda: declared({"task": bad}, None), "metadata.task"),
        (lambda: declared({"cohort": bad}, "code"), "metadata.cohort"),
        (lambda: declared({}, bad), "x-pilotfish-cohort"),
    ):
        with pytest.raises(InvalidRequest) as caught:
            give()
        assert caught.value.param == param


async def test_a_header_of_any_length_is_a_typed_error() -> None:
    backend = ScriptedBackend()
    async with make_client(make_app(backend, cohorts=COHORTS)) as client:
        response = await client.post(
            "/v1/completions", json={"prompt": "a"}, headers={"x-pilotfish-cohort": "x" * 4000}
        )
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "x-pilotfish-cohort"
    assert not backend.specs


@pytest.mark.parametrize(
    ("document", "shape"),
    [
        ({}, (False, False)),
        ({"response_format": {"type": "text"}, "tools": [], "structured_outputs": None}, (0, 0)),
        ({"response_format": {"type": "json_object"}}, (True, False)),
        ({"structured_outputs": {"regex": "a+"}}, (True, False)),
        ({"tools": [{"type": "function"}]}, (False, True)),
        ({"tools": [{"type": "function"}], "tool_choice": "none"}, (False, False)),
        ({"functions": [{"name": "f"}], "response_format": {"type": "json_schema"}}, (True, True)),
    ],
)
def test_the_shape_is_what_the_body_asks_for(
    document: dict[str, Any], shape: tuple[bool, bool]
) -> None:
    assert shape_of(document) == shape
