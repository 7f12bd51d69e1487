"""The door as real clients see it: openai's Python client, transformers' tokenizer."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import openai
import pytest
from tokenizers import processors
from transformers import PreTrainedTokenizerFast

from cluster.gateway.errors import InvalidRequest
from cluster.gateway.text import TextCodec
from tests.unit.cluster.gateway.builders import (
    FakeChatTokenizer,
    ScriptedBackend,
    make_app,
    make_bpe_tokenizer,
    make_char_tokenizer,
    make_chunks,
    make_client,
    successors,
)

TEMPLATE = (
    "{% if messages[0]['role'] != 'user' %}{{ raise_exception('user first') }}{% endif %}"
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


async def test_the_openai_client_streams_a_chat_with_usage() -> None:
    backend = ScriptedBackend(lambda spec: make_chunks(successors(9), 3))
    http = make_client(make_app(backend))
    async with openai.AsyncOpenAI(
        api_key="none", base_url="http://gateway/v1", http_client=http, max_retries=0
    ) as client:
        text, usage = "", None
        stream = await client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "a"}],
            stream=True,
            stream_options={"include_usage": True},
            temperature=0,
        )
        async for chunk in stream:
            if chunk.choices:
                text += chunk.choices[0].delta.content or ""
            usage = chunk.usage or usage
        assert text == "bcdefghij"
        assert usage is not None
        assert usage.completion_tokens == 9
        assert usage.completion_tokens_details is not None
        assert usage.completion_tokens_details.accepted_prediction_tokens == 6
        with pytest.raises(openai.BadRequestError) as raised:
            await client.completions.create(model="tiny", prompt="a", temperature=-1)
        assert raised.value.param == "temperature"
        with pytest.raises(openai.NotFoundError):
            await client.completions.create(model="gpt", prompt="a")


async def test_transformers_fast_tokenizer_fits_and_its_template_errors_are_the_clients() -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=make_bpe_tokenizer())
    tokenizer.chat_template = TEMPLATE
    codec = TextCodec(tokenizer)
    ids = await codec.encode_chat([{"role": "user", "content": "héllo"}])
    assert codec.decode(ids) == "<user>héllo<assistant>"
    without = await codec.encode_chat(
        [{"role": "user", "content": "héllo"}], add_generation_prompt=False
    )
    assert codec.decode(without) == "<user>héllo"
    with pytest.raises(InvalidRequest, match="user first") as raised:
        await codec.encode_chat([{"role": "system", "content": "x"}])
    assert raised.value.param == "messages"


async def test_a_model_without_a_chat_template_refuses_chat() -> None:
    codec = TextCodec(PreTrainedTokenizerFast(tokenizer_object=make_char_tokenizer()))
    with pytest.raises(InvalidRequest, match="template"):
        await codec.encode_chat([{"role": "user", "content": "a"}])


async def test_a_bos_token_comes_once_from_the_tokenizer_or_the_template() -> None:
    backend = make_char_tokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="<eos> $A", special_tokens=[("<eos>", 16)]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    tokenizer.chat_template = "<eos>{{ messages[0]['content'] }}"
    codec = TextCodec(tokenizer)
    assert await codec.encode("ab") == [16, 0, 1]
    assert await codec.encode("ab", add_special_tokens=False) == [0, 1]
    assert await codec.encode_chat([{"role": "user", "content": "ab"}]) == [16, 0, 1]


async def test_the_bytes_of_the_tokens_join_to_the_text() -> None:
    codec = TextCodec(PreTrainedTokenizerFast(tokenizer_object=make_bpe_tokenizer(0)))
    ids = await codec.encode("né 你 🎉")
    assert len(ids) > 6
    assert b"".join(codec.token_bytes(token) for token in ids).decode() == "né 你 🎉"


async def test_a_long_prompt_is_tokenised_off_the_event_loop() -> None:
    class Recording:
        """A tokenizer that notes where it runs."""

        decoder = model = None
        threads: list[int] = []

        def no_truncation(self) -> None: ...

        def no_padding(self) -> None: ...

        def get_added_tokens_decoder(self) -> dict[int, object]:
            return {}

        def encode_batch_fast(
            self, texts: list[str], add_special_tokens: bool
        ) -> list[SimpleNamespace]:
            self.threads.append(threading.get_ident())
            return [SimpleNamespace(ids=[0]) for _ in texts]

    backend = Recording()
    codec = TextCodec(FakeChatTokenizer(backend))  # type: ignore[arg-type]
    await codec.encode("x" * 10_000)
    await codec.encode_chat([{"role": "user", "content": "x" * 10_000}])
    assert len(backend.threads) == 2
    assert threading.get_ident() not in backend.threads
