from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.gateway import detokenizer as module
from cluster.gateway.byte_text import ByteText, TextStream
from cluster.gateway.detokenizer import REPLACEMENT, Detokenizer
from tests.unit.cluster.gateway.builders import (
    TEXTS,
    make_bpe_tokenizer,
    make_byte_fallback_tokenizer,
    make_char_tokenizer,
    make_codec,
)

BPE = make_bpe_tokenizer()
FALLBACK = make_byte_fallback_tokenizer()
SIZE = BPE.get_vocab_size()


def stream(detokenizer: TextStream, ids: list[int]) -> list[str]:
    return [detokenizer.push(token) for token in ids] + [detokenizer.flush()]


@given(st.text(max_size=40))
def test_pieces_concatenate_to_the_whole_decode_and_show_no_broken_character(text: str) -> None:
    ids = BPE.encode(text).ids
    pieces = stream(Detokenizer(BPE), ids)
    assert "".join(pieces) == BPE.decode(ids) == text
    if REPLACEMENT not in text:
        assert all(REPLACEMENT not in piece for piece in pieces)


@given(st.lists(st.integers(1, SIZE - 1), max_size=120))
def test_any_token_sequence_ends_as_the_whole_decode(ids: list[int]) -> None:
    assert "".join(stream(Detokenizer(BPE), ids)) == BPE.decode(ids)


@pytest.mark.parametrize("text", TEXTS)
def test_an_output_cut_inside_a_character_flushes_as_the_whole_decode(text: str) -> None:
    ids = BPE.encode(text).ids
    for end in range(len(ids) + 1):
        assert "".join(stream(Detokenizer(BPE), ids[:end])) == BPE.decode(ids[:end])


def test_broken_bytes_without_end_are_shown_in_bounded_work() -> None:
    broken = BPE.token_to_id("ÿ")  # byte 0xFF, part of no character
    detokenizer = Detokenizer(BPE)
    pieces = []
    for _ in range(1000):
        pieces.append(detokenizer.push(broken))
        assert len(detokenizer._window) <= module._LIMIT + 1
    assert len("".join(pieces)) > 900
    assert "".join(pieces) + detokenizer.flush() == REPLACEMENT * 1000


def test_a_character_after_endless_broken_bytes_is_whole() -> None:
    emoji = BPE.encode("🦈").ids
    ids = [BPE.token_to_id("ÿ")] * 77 + emoji + BPE.encode(" end").ids
    pieces = stream(Detokenizer(BPE), ids)
    assert "".join(pieces) == BPE.decode(ids) == REPLACEMENT * 77 + "🦈 end"
    assert pieces[77 + len(emoji) - 1].endswith("🦈")


def test_special_tokens_show_nothing_only_when_skipped() -> None:
    codec = make_codec(make_char_tokenizer())
    assert "".join(stream(codec.detokenizer(True, ()), [1, 16, 2])) == "bc"
    assert "".join(stream(codec.detokenizer(False, ()), [1, 16, 2])) == "b<eos>c"


def test_a_skipped_token_inside_a_character_does_not_break_it() -> None:
    ids = BPE.encode("🎉").ids
    assert len(ids) > 1
    torn = [ids[0], 0, *ids[1:]]
    assert "".join(stream(Detokenizer(BPE, skipped={0}), torn)) == "🎉"


def test_skipped_and_empty_tokens_do_not_grow_the_window() -> None:
    detokenizer = Detokenizer(BPE, skipped={0})
    for token in [0, SIZE + 5] * 500:  # an id beyond the vocabulary decodes to nothing
        assert detokenizer.push(token) == ""
        assert len(detokenizer._window) <= module._LIMIT + 1


def test_a_continued_prompt_keeps_the_leading_space() -> None:
    hello, world = FALLBACK.token_to_id("▁hello"), FALLBACK.token_to_id("▁world")
    assert "".join(stream(Detokenizer(FALLBACK), [hello, world])) == "hello world"
    assert "".join(stream(Detokenizer(FALLBACK, context=[hello]), [world])) == " world"


def test_byte_fallback_characters_come_whole() -> None:
    ids = [FALLBACK.token_to_id(f"<0x{b:02X}>") for b in "你好".encode()]
    pieces = stream(Detokenizer(FALLBACK), [FALLBACK.token_to_id("a"), *ids])
    assert pieces == ["a", "", "", "你", "", "", "好", ""]


def test_byte_fallback_shows_a_broken_end_once() -> None:
    ids = [FALLBACK.token_to_id(f"<0x{b:02X}>") for b in "你".encode() + b"\xe5"]
    assert "".join(stream(Detokenizer(FALLBACK), ids)) == "你" + REPLACEMENT


def byte_text(skipped: frozenset[int] = frozenset()) -> TextStream:
    """What a codec gives for a byte-level vocabulary."""
    return ByteText(make_codec(BPE)._shown_bytes, skipped)


def test_a_byte_level_vocabulary_is_read_byte_by_byte() -> None:
    assert isinstance(make_codec(BPE).detokenizer(True, ()), ByteText)
    assert isinstance(make_codec(FALLBACK).detokenizer(True, ()), Detokenizer)


@given(st.lists(st.integers(0, SIZE + 3), max_size=120))
def test_bytes_end_as_the_whole_decode_whatever_they_are(ids: list[int]) -> None:
    """Ids that do not exist among them, and the special one; U+FFFD where the decoder puts it."""
    pieces = stream(byte_text(), ids)
    assert "".join(pieces) == BPE.decode(ids, skip_special_tokens=False)


@given(st.text(max_size=40))
def test_bytes_come_out_as_whole_characters(text: str) -> None:
    ids = BPE.encode(text).ids
    pieces = stream(byte_text(), ids)
    assert "".join(pieces) == text
    if REPLACEMENT not in text:
        assert all(REPLACEMENT not in piece for piece in pieces)
        assert pieces == stream(Detokenizer(BPE), ids)


@pytest.mark.parametrize("text", TEXTS)
def test_bytes_cut_inside_a_character_end_as_the_whole_decode(text: str) -> None:
    ids = BPE.encode(text).ids
    for end in range(len(ids) + 1):
        assert "".join(stream(byte_text(), ids[:end])) == BPE.decode(ids[:end])


def test_a_skipped_token_between_bytes_does_not_break_their_character() -> None:
    ids = BPE.encode("🎉").ids
    assert "".join(stream(byte_text(frozenset({0})), [ids[0], 0, *ids[1:]])) == "🎉"


def test_an_added_token_with_characters_of_no_byte_is_shown_as_it_is() -> None:
    tokenizer = make_bpe_tokenizer()
    tokenizer.add_tokens(["<a b>", "<é>", "你"])
    codec, size = make_codec(tokenizer), tokenizer.get_vocab_size()
    ids = list(range(size - 4, size))
    assert "".join(stream(codec.detokenizer(False, ()), ids)) == tokenizer.decode(ids)


def test_a_prompt_that_ends_inside_a_character_is_no_context() -> None:
    ids = BPE.encode("🎉 go").ids
    pieces = stream(Detokenizer(BPE, context=ids[:1]), BPE.encode("ok").ids)
    assert "".join(pieces) == "ok"
