from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from tokenizers import processors

from cluster.gateway.errors import NoVerifier, Overloaded, RequestFailed
from cluster.gateway.types import BackendHealth, DrafterState, ModelInfo
from tests.unit.cluster.gateway.builders import (
    ScriptedBackend,
    make_app,
    make_char_tokenizer,
    make_chunks,
    make_client,
    successors,
)

CHAT = {"messages": [{"role": "user", "content": "a"}], "temperature": 0, "max_tokens": 6}
COMPLETION = {"prompt": "a", "temperature": 0, "max_tokens": 6}


async def post(path: str, body: Any, backend: Any = None, **more: Any) -> httpx.Response:
    settings, headers = more.pop("settings", {}), more.pop("headers", {})
    async with make_client(make_app(backend, **settings)) as client:
        if isinstance(body, bytes):
            return await client.post(path, content=body, headers=headers)
        return await client.post(path, json=body, headers=headers)


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    blocks = response.text.split("\n\n")
    assert blocks.pop() == ""
    assert all(block.startswith("data: ") for block in blocks)
    assert blocks.pop() == "data: [DONE]"
    return [json.loads(block.removeprefix("data: ")) for block in blocks]


async def test_a_chat_answer_has_openais_shape_and_vllms_additions() -> None:
    body = CHAT | {"return_token_ids": True, "return_spec_tokens_details": True}
    answer = (await post("/v1/chat/completions", body)).json()
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    assert answer["model"] == "tiny"
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": "cdefgh", "refusal": None}
    assert (choice["finish_reason"], choice["stop_reason"]) == ("length", None)
    assert choice["token_ids"] == [2, 3, 4, 5, 6, 7]
    assert answer["prompt_token_ids"] == [0, 1]
    assert answer["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 6,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {
            "accepted_prediction_tokens": 4,
            "rejected_prediction_tokens": 2,
            "reasoning_tokens": 0,
        },
    }
    assert answer["sglext"]["spec_tokens_details"]["spec_verify_ct"] == 2
    metrics = answer["metrics"]
    assert metrics["queue_time_ms"] == 250.0
    assert metrics["time_to_first_token_ms"] >= 0
    assert metrics["speculative_decoding"] == {
        "mean_acceptance_length": 3.0,
        "draft_acceptance_rate": 4 / 6,
        "acceptance_histogram": [0, 1, 0, 1],
        "num_spec_steps": 2,
        "num_accepted_draft_tokens": 4,
        "num_draft_tokens": 6,
        "num_spec_tokens": 3,
        "per_step_accepted": None,
        "per_step_drafted": None,
    }


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_streamed_and_whole_answers_agree(path: str) -> None:
    base = CHAT | {"logprobs": True} if "chat" in path else COMPLETION | {"logprobs": 1}
    base |= {"stop": "g", "return_token_ids": True}
    script = ScriptedBackend(lambda spec: make_chunks(successors(9, 2), 3, logprobs=True))
    whole = (await post(path, base, script)).json()
    options = {"stream": True, "stream_options": {"include_usage": True}}
    events = events_of(await post(path, base | options, script))
    *chunks, closing = events
    key = "content" if "chat" in path else "tokens"
    choices = [chunk["choices"][0] for chunk in chunks]
    ids = [token for choice in choices for token in choice.get("token_ids", [])]
    scores = [s for c in choices for s in ((c.get("logprobs") or {}).get(key) or [])]
    if "chat" in path:
        text = "".join(choice["delta"].get("content", "") for choice in choices)
        assert choices[0]["delta"] == {"role": "assistant", "content": ""}
        assert text == whole["choices"][0]["message"]["content"] == "cdef"
    else:
        text = "".join(choice["text"] for choice in choices)
        assert text == whole["choices"][0]["text"] == "cdef"
        offsets = [o for c in choices for o in c["logprobs"]["text_offset"]]
        assert offsets == whole["choices"][0]["logprobs"]["text_offset"] == [0, 1, 2, 3, 4]
    assert ids == whole["choices"][0]["token_ids"] == [2, 3, 4, 5, 6]
    assert scores == whole["choices"][0]["logprobs"][key]
    assert len(scores) == 5
    assert [c["finish_reason"] for c in choices].count("stop") == 1
    assert (choices[-1]["finish_reason"], choices[-1]["stop_reason"]) == ("stop", "g")
    assert closing["choices"] == []
    assert closing["usage"] == whole["usage"]
    assert closing["metrics"].keys() == whole["metrics"].keys()
    assert all(chunk["usage"] is None for chunk in chunks)


async def test_a_stream_gives_usage_only_when_asked() -> None:
    events = events_of(await post("/v1/chat/completions", CHAT | {"stream": True}))
    assert all("usage" not in event and event["choices"] for event in events)


async def test_continuous_usage_counts_up() -> None:
    options = {"stream": True, "stream_options": {"continuous_usage_stats": True}}
    events = events_of(await post("/v1/completions", COMPLETION | options))
    assert [event["usage"]["completion_tokens"] for event in events] == [1, 5, 6]


async def test_a_chat_logprob_has_token_bytes_and_alternatives() -> None:
    script = ScriptedBackend(lambda spec: make_chunks([2, 3], 0, logprobs=True))
    body = CHAT | {"logprobs": True, "top_logprobs": 1}
    answer = (await post("/v1/chat/completions", body, script)).json()
    first = answer["choices"][0]["logprobs"]["content"][0]
    best = {"token": "c", "logprob": 0.0, "bytes": [99]}
    assert first == {**best, "top_logprobs": [best]}


async def test_every_sampling_field_reaches_the_verifier() -> None:
    backend = ScriptedBackend()
    body = {
        "prompt": [0, 1],
        "max_tokens": 5,
        "min_tokens": 1,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "min_p": 0.1,
        "seed": 2**64 - 1,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.3,
        "logit_bias": {"3": 4.5},
        "stop_token_ids": [9],
        "ignore_eos": True,
        "logprobs": 2,
        "stop": ["x", "yy"],
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
        "speculative": {"n_max": 2},
        "request_id": "mine",
        "metadata": {"purpose": "anything"},
        "user": "someone",
    }
    response = await post("/v1/completions", body, backend)
    assert response.status_code == 200
    assert response.headers["x-request-id"] == "mine"
    (spec,) = backend.specs
    sampling = spec.sampling
    assert spec.prompt_ids == (0, 1)
    assert (spec.request_id, spec.cohort, spec.max_draft_len) == ("mine", "default", 2)
    assert (spec.stop, spec.include_stop_str_in_output) == (("x", "yy"), True)
    assert not spec.skip_special_tokens
    assert (sampling.max_tokens, sampling.min_tokens, sampling.logprobs) == (5, 1, 2)
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 7)
    assert (sampling.min_p, sampling.seed, sampling.ignore_eos) == (0.1, 2**64 - 1, True)
    assert (sampling.repetition_penalty, sampling.presence_penalty) == (1.1, 0.2)
    assert (sampling.frequency_penalty, sampling.logit_bias) == (0.3, ((3, 4.5),))
    assert sampling.stop_token_ids == frozenset({9})


async def test_a_request_without_a_seed_gets_a_fresh_one() -> None:
    backend = ScriptedBackend()
    for _ in range(2):
        await post("/v1/completions", COMPLETION | {"temperature": None}, backend)
    first, second = (spec.sampling for spec in backend.specs)
    assert first.seed != second.seed
    assert first.temperature == 1.0


async def test_defaults_of_length_differ_between_chat_and_completions() -> None:
    backend = ScriptedBackend()
    await post("/v1/completions", {"prompt": "a"}, backend)
    await post("/v1/chat/completions", {"messages": CHAT["messages"]}, backend)
    assert [spec.sampling.max_tokens for spec in backend.specs] == [16, 62]


async def test_headers_name_the_request_and_its_trace() -> None:
    backend = ScriptedBackend()
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {"x-request-id": "abc", "traceparent": trace}
    response = await post("/v1/completions", COMPLETION, backend, headers=headers)
    assert response.headers["x-request-id"] == "abc"
    assert response.json()["id"] == "cmpl-abc"
    assert backend.specs[0].request_id == "abc"
    assert backend.specs[0].trace.traceparent == trace


async def test_an_unusable_request_id_header_is_replaced() -> None:
    response = await post("/v1/completions", COMPLETION, headers={"x-request-id": "a b"})
    assert response.status_code == 200
    assert response.headers["x-request-id"] != "a b"


@pytest.mark.parametrize(
    ("path", "change", "status", "param"),
    [
        ("chat/completions", {"model": "gpt"}, 404, "model"),
        ("chat/completions", {"temperature": -1}, 400, "temperature"),
        ("chat/completions", {"max_tokens": 0}, 400, "max_tokens"),
        ("chat/completions", {"max_tokens": 1_000_000}, 400, "max_tokens"),
        ("chat/completions", {"seed": 2**64}, 400, "seed"),
        ("chat/completions", {"seed": -1}, 400, "seed"),
        ("chat/completions", {"stop": ["x"] * 10_000}, 400, "stop"),
        ("chat/completions", {"colour": 1}, 400, "colour"),
        ("chat/completions", {"messages": []}, 400, "messages"),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": "a" * 99}]},
            400,
            "messages",
        ),
        (
            "chat/completions",
            {"messages": [{"role": "assistant", "content": "a"}]},
            400,
            "messages",
        ),
        ("chat/completions", {"stream": True, "top_k": -5}, 400, "top_k"),
        ("completions", {"prompt": ""}, 400, "prompt"),
        ("completions", {"prompt": []}, 400, "prompt"),
        ("completions", {"prompt": "a" * 64}, 400, "prompt"),
        ("completions", {"prompt": [99]}, 400, "prompt"),
        ("completions", {"echo": True}, 400, "echo"),
        ("completions", {"metadata": {"cohort": "a b"}}, 400, "metadata.cohort"),
        ("completions", {"metadata": {"task": "x" * 65}}, 400, "metadata.task"),
        ("completions", {"speculative": {"n_max": 33}}, 400, "speculative.n_max"),
        ("chat/completions", {"speculative": {"n_max": -1}}, 400, "speculative.n_max"),
    ],
)
async def test_bad_input_is_a_typed_error_with_the_fields_name(
    path: str, change: dict[str, Any], status: int, param: str
) -> None:
    backend = ScriptedBackend()
    base = CHAT if "chat" in path else COMPLETION
    response = await post(f"/v1/{path}", base | change, backend)
    assert response.status_code == status
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert not backend.specs


async def test_an_empty_prompt_is_refused_also_where_a_bos_token_is_added() -> None:
    tokenizer = make_char_tokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<eos> $A", special_tokens=[("<eos>", 16)]
    )
    async with make_client(make_app(tokenizer=tokenizer)) as client:
        answer = await client.post("/v1/completions", json=COMPLETION | {"prompt": ""})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "prompt"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"prompt": "a"', 400),
        (b'{"prompt": "\xff"}', 400),
        (b'{"prompt": "a", "temperature": NaN}', 400),
        (b'{"prompt": "a", "temperature": 1e999}', 400),
        (rb'{"prompt": "\ud800"}', 400),
        (b'{"prompt": ' + b"[" * 100_000, 400),
        (b'{"prompt": "' + b"a" * 9_000 + b'"}', 413),
    ],
)
async def test_a_bad_body_is_a_typed_error(body: bytes, status: int) -> None:
    limit = {} if status != 413 else {"max_body_bytes": 8_000}
    response = await post("/v1/completions", body, settings=limit)
    assert response.status_code == status
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert "x-request-id" in response.headers


async def test_an_error_before_the_first_token_is_a_status_also_for_a_stream() -> None:
    failure = Overloaded("busy", retry_after_s=1.2)
    for stream in (False, True):
        backend = ScriptedBackend(lambda spec: [], failure=failure)
        response = await post("/v1/completions", COMPLETION | {"stream": stream}, backend)
        assert response.status_code == 429
        assert response.headers["retry-after"] == "2"
        assert response.json()["error"]["code"] == "overloaded"


async def test_a_503_says_when_to_come_back_whoever_noticed_that_nobody_is_there() -> None:
    class Without(ScriptedBackend):
        async def info(self) -> ModelInfo:
            raise NoVerifier("No verifier answers.")

    during = ScriptedBackend(lambda spec: [], failure=NoVerifier("No verifier answers."))
    for backend in (Without(), during):
        response = await post("/v1/completions", COMPLETION, backend)
        assert response.status_code == 503
        assert response.headers["retry-after"] == "1"


@pytest.mark.parametrize("failure", [RequestFailed("lost"), ValueError("secret")])
async def test_an_error_inside_a_stream_is_an_event_and_no_done(failure: Exception) -> None:
    chunks = make_chunks(successors(9))[:2]
    backend = ScriptedBackend(lambda spec: chunks, failure=failure)
    response = await post("/v1/completions", COMPLETION | {"stream": True}, backend)
    assert response.status_code == 200
    last = response.text.rstrip("\n").split("\n\n")[-1]
    error = json.loads(last.removeprefix("data: "))["error"]
    assert error["code"] == "internal_error"
    assert "secret" not in response.text


async def test_an_unexpected_error_is_a_500_that_tells_nothing() -> None:
    backend = ScriptedBackend(lambda spec: [], failure=ValueError("secret"))
    response = await post("/v1/completions", COMPLETION, backend)
    assert response.status_code == 500
    assert "secret" not in response.text
    assert response.headers["x-request-id"]


async def test_unknown_paths_and_methods_have_the_same_error_body() -> None:
    async with make_client(make_app()) as client:
        for response in (await client.get("/v1/nothing"), await client.get("/v1/completions")):
            assert response.status_code in (404, 405)
            assert response.json()["error"].keys() == {"message", "type", "param", "code"}


async def test_models_are_listed_with_their_context_length() -> None:
    async with make_client(make_app(served_model_name="alias")) as client:
        (card,) = (await client.get("/v1/models")).json()["data"]
        assert (card["id"], card["root"], card["max_model_len"]) == ("alias", "tiny", 64)
        assert (await client.get("/v1/models/alias")).json()["id"] == "alias"
        assert (await client.get("/v1/models/tiny")).json()["id"] == "tiny"
        assert (await client.get("/v1/models/other/one")).status_code == 404


async def test_tokenize_and_detokenize_are_inverse() -> None:
    async with make_client(make_app()) as client:
        body = {"prompt": "abc", "return_token_strs": True}
        answer = (await client.post("/tokenize", json=body)).json()
        strings = ["a", "b", "c"]
        assert answer == {
            "count": 3, "max_model_len": 64, "tokens": [0, 1, 2], "token_strs": strings
        }  # fmt: skip
        text = (await client.post("/detokenize", json={"tokens": [0, 1, 2]})).json()
        assert text == {"prompt": "abc"}
        chat = (await client.post("/tokenize", json={"messages": CHAT["messages"]})).json()
        assert chat["tokens"] == [0, 1]
        for path, bad in (("/tokenize", {}), ("/detokenize", {"tokens": [99]})):
            assert (await client.post(path, json=bad)).status_code == 400


async def test_health_needs_a_verifier_and_tells_of_drafters() -> None:
    class Reporting(ScriptedBackend):
        verifiers = 1

        async def health(self) -> BackendHealth:
            return BackendHealth(self.verifiers, (DrafterState("d", "suffix", False),))

    backend = Reporting()
    async with make_client(make_app(backend)) as client:
        answer = await client.get("/health")
        assert answer.status_code == 200
        assert answer.json()["drafting"] == "down"
        assert answer.json()["drafters"] == [{"drafter": "d", "mechanism": "suffix", "up": False}]
        backend.verifiers = 0
        assert (await client.get("/health")).status_code == 503
        assert (await client.get("/ping")).status_code == 503


async def test_health_is_503_when_no_verifier_answers_in_time() -> None:
    class Silent(ScriptedBackend):
        async def info(self) -> ModelInfo:
            return await asyncio.Event().wait()  # type: ignore[return-value]

    class Without(ScriptedBackend):
        async def info(self) -> ModelInfo:
            raise NoVerifier("no verifier")

    for backend in (Silent(), Without()):
        async with make_client(make_app(backend, health_timeout_s=0.01)) as client:
            answer = await client.get("/health")
            assert answer.status_code == 503
            assert answer.json()["status"] == "unavailable"
            assert answer.json()["reason"]


async def test_the_request_id_is_left_to_a_proxy_that_adds_it() -> None:
    response = await post("/v1/completions", COMPLETION, settings={"echo_request_id": False})
    assert response.status_code == 200
    assert "x-request-id" not in response.headers


async def test_version_is_a_string() -> None:
    async with make_client(make_app()) as client:
        assert isinstance((await client.get("/version")).json()["version"], str)


async def test_an_api_key_guards_everything_but_the_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "sécret")
    async with make_client(make_app(api_key_env="TEST_KEY")) as client:
        for path in ("/health", "/ping", "/version", "/metrics", "/live", "/live/state"):
            assert (await client.get(path)).status_code == 200
        for headers in ({}, {"authorization": "Bearer no"}, {"authorization": "Basic secret"}):
            answer = await client.get("/v1/models", headers=headers)
            assert answer.status_code == 401
            assert answer.json()["error"]["code"] == "invalid_api_key"
            assert (await client.post("/v1/completions", json=COMPLETION)).status_code == 401
        right = {"authorization": "Bearer sécret".encode()}
        assert (await client.get("/v1/models", headers=right)).status_code == 200
