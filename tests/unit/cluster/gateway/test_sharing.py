"""Priority, salt and tenant: bounded, named when wrong, and told to the verifier."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.gateway.errors import InvalidRequest
from cluster.gateway.generation import Assembler
from cluster.gateway.sharing import resolve_cache_salt, resolve_priority, resolve_tenant
from cluster.gateway.types import Chunk
from cluster.gateway.verifier_wire import submit_of
from tests.unit.cluster.gateway.builders import (
    ScriptedBackend,
    make_app,
    make_client,
    make_codec,
    make_spec,
)


@pytest.mark.parametrize(
    ("resolve", "value", "param"),
    [
        (resolve_priority, 2**31, "priority"),
        (resolve_priority, -(2**31) - 1, "priority"),
        (resolve_cache_salt, "", "cache_salt"),
        (resolve_cache_salt, "x" * 257, "cache_salt"),
        (resolve_cache_salt, "\ud800", "cache_salt"),
        (resolve_tenant, "two words", "x-pilotfish-tenant"),
        (resolve_tenant, "x" * 65, "x-pilotfish-tenant"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(resolve: Any, value: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        resolve(value)
    assert refusal.value.param == param


@pytest.mark.parametrize("body", [{"priority": 1.5}, {"priority": "1"}, {"cache_salt": 1}])
async def test_the_wrong_type_is_refused_by_name(body: dict[str, object]) -> None:
    async with make_client(make_app()) as client:
        answer = await client.post("/v1/completions", json={"prompt": "a"} | body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == next(iter(body))


async def test_priority_salt_and_tenant_reach_the_verifier() -> None:
    backend = ScriptedBackend()
    async with make_client(make_app(backend)) as client:
        for body, headers in (
            ({"priority": -3, "cache_salt": "pepper"}, {"x-pilotfish-tenant": "team/a"}),
            ({}, {}),
        ):
            sent = await client.post(
                "/v1/completions", json={"prompt": "a"} | body, headers=headers
            )
            assert sent.status_code == 200
    given, plain = (submit_of(spec, "w", ()) for spec in backend.specs)
    assert (given.priority, given.cache_salt, given.tenant) == (-3, "pepper", "team/a")
    assert (plain.priority, plain.cache_salt, plain.tenant) == (0, "", "")


def test_cached_tokens_are_those_of_the_verifier_that_wrote_the_first_token() -> None:
    assembler = Assembler(make_codec(), make_spec((1, 2, 3)))
    chunks = [
        Chunk((), cached_tokens=0),
        Chunk((4,), cached_tokens=2),
        Chunk((5,), cached_tokens=3),  # another verifier, which had computed the prompt before
        Chunk((6,), finish="length"),
    ]
    deltas = [assembler.push(chunk) for chunk in chunks]
    assert [delta.cached_tokens for delta in deltas] == [0, 2, 0, 0]
    assert deltas[-1].stats is not None
    assert deltas[-1].stats.cached_tokens == 2
