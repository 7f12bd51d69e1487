"""A crowd of entries is refused by its size, before any of them is looked at: complaining of each
would take seconds in which every other stream waits."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.gateway import requests
from cluster.gateway.errors import InvalidRequest


@pytest.mark.parametrize(
    ("model", "document", "field"),
    [
        (requests.CompletionRequest, {"prompt": [1, ""] * 100_000}, "prompt"),
        (requests.CompletionRequest, {"prompt": [1.5] * 100_000}, "prompt"),
        (requests.CompletionRequest, {"prompt": "a", "stop": [1] * 100_000}, "stop"),
        (
            requests.CompletionRequest,
            {"prompt": "a", "logit_bias": {str(i): 1 for i in range(50_000)}},
            "logit_bias",
        ),
        (requests.ChatRequest, {"messages": [{}] * 100_000}, "messages"),
    ],
)
def test_a_crowd_is_refused_by_the_fields_name(
    model: Any, document: dict[str, Any], field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "model_validate", lambda *_: pytest.fail("looked at every entry"))
    with pytest.raises(InvalidRequest) as refusal:
        requests.parse_as(model, document)
    assert refusal.value.param == field


def test_token_ids_may_be_many() -> None:
    parsed = requests.parse_as(requests.CompletionRequest, {"prompt": [1] * 100_000})
    assert len(parsed.prompt) == 100_000
