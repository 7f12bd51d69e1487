"""Text to token ids: the same through both doors, and hopeless text refused untokenised."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers, processors

from cluster.gateway.errors import InvalidRequest
from cluster.gateway.prompts import chat_ids, text_ids
from cluster.gateway.reach import most_characters
from cluster.gateway.text import TextCodec
from tests.unit.cluster.gateway.builders import (
    FakeChatTokenizer,
    make_bpe_tokenizer,
    make_byte_fallback_tokenizer,
    make_char_tokenizer,
    make_codec,
    make_info,
)

PLAIN = make_bpe_tokenizer()
COMPOSED = make_bpe_tokenizer()
COMPOSED.normalizer = normalizers.NFC()
INFO = make_info(vocab_size=300, max_model_len=64)


@pytest.mark.parametrize("tokenizer", [PLAIN, COMPOSED], ids=["plain", "nfc"])
@given(text=st.text(max_size=60) | st.text("e\u0301\u0300\u0345\u03b1\u0313 \n", max_size=60))
def test_no_text_has_fewer_tokens_than_the_bound_says(tokenizer: Tokenizer, text: str) -> None:
    codec = TextCodec(FakeChatTokenizer(tokenizer))
    assert codec.least_tokens(text) <= len(tokenizer.encode(text).ids)


def test_the_bound_is_reached_by_the_longest_token() -> None:
    vocabulary = PLAIN.get_vocab()
    longest = max(vocabulary, key=len)
    reach = most_characters(PLAIN)
    assert reach == len(longest) > 3
    assert most_characters(COMPOSED) == 4 * reach


def stripped() -> Tokenizer:
    tokenizer = make_bpe_tokenizer()
    tokenizer.normalizer = normalizers.Strip()
    return tokenizer


def removing() -> Tokenizer:
    tokenizer = make_bpe_tokenizer()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(" "), "removed"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return tokenizer


def swallowing() -> Tokenizer:
    tokenizer = make_bpe_tokenizer()
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    return tokenizer


@pytest.mark.parametrize(
    "make",
    [make_char_tokenizer, make_byte_fallback_tokenizer, stripped, removing, swallowing],
)
async def test_a_tokenizer_that_may_drop_text_bounds_nothing(make: Any) -> None:
    codec = make_codec(make())
    assert codec.least_tokens("a" * 10_000_000) == 0


async def test_text_that_surely_does_not_fit_is_refused_before_it_is_tokenised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codec = make_codec(PLAIN)
    reach = most_characters(PLAIN)
    assert reach is not None
    monkeypatch.setattr(codec, "_encode", lambda *_: pytest.fail("tokenised"))
    text = "a" * (reach * 63 + 1)
    with pytest.raises(InvalidRequest, match="at least 64 tokens") as raised:
        await text_ids(text, codec, INFO)
    assert (raised.value.param, raised.value.code) == ("prompt", "context_length_exceeded")
    with pytest.raises(InvalidRequest, match="at least") as raised:
        await chat_ids([{"role": "user", "content": text}], codec, INFO)
    assert raised.value.param == "messages"


async def test_text_that_may_fit_is_tokenised() -> None:
    codec = make_codec(PLAIN)
    reach = most_characters(PLAIN)
    assert reach is not None
    assert len(await text_ids("a" * (reach * 63), codec, INFO)) > 63


async def test_no_text_is_no_token_even_where_the_tokenizer_adds_one() -> None:
    tokenizer = make_bpe_tokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<eos> $A", special_tokens=[("<eos>", 0)]
    )
    codec = make_codec(tokenizer)
    assert await text_ids("", codec, INFO) == []
    assert (await text_ids("a", codec, INFO))[0] == 0
