"""Of several policy actors the one that speaks is found."""

from __future__ import annotations

import asyncio

import pytest

from actors.policy.errors import Superseded
from cluster.deployments import speaking
from cluster.deployments.speaking import of_the_speaker


class Policies:
    """Asked in turn, as Serve might: `silent` of them before the one that speaks."""

    def __init__(self, silent: int, fault: Exception | None = None) -> None:
        self.silent = silent
        self.fault = fault
        self.asked = 0

    async def __call__(self) -> str:
        self.asked += 1
        if self.asked <= self.silent:
            raise Superseded("another one speaks")
        if self.fault is not None:
            raise self.fault
        return "the word"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speaking, "ASK_AGAIN_S", 0.0)


async def test_it_is_asked_again_until_the_one_that_speaks_answers() -> None:
    policies = Policies(silent=5)
    assert await of_the_speaker(policies, 60.0) == "the word"
    assert policies.asked == 6


async def test_where_none_speaks_it_is_given_up() -> None:
    with pytest.raises(TimeoutError):
        await of_the_speaker(Policies(silent=10**9), 0.01)


async def test_an_answer_that_does_not_come_is_given_up() -> None:
    with pytest.raises(TimeoutError):
        await of_the_speaker(asyncio.Event().wait, 0.01)


async def test_what_it_refuses_for_other_reasons_is_not_asked_again() -> None:
    policies = Policies(silent=1, fault=ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await of_the_speaker(policies, 60.0)
    assert policies.asked == 2
