"""Detokenisation for byte-level vocabularies: the text is the UTF-8 of the tokens' bytes.

The general way decodes a window of tokens twice for each token; here a token is its bytes, looked
up, and an incremental decoder holds back an open character by itself.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection
from typing import Protocol


class TextStream(Protocol):
    """One output's tokens to text. The texts of all pushes and the flush concatenate to the decode
    of its tokens; no text ends in half a character."""

    def push(self, token: int) -> str: ...

    def flush(self) -> str: ...


class ByteText:
    """A `TextStream`. bytes_of: a token's own bytes. skipped: tokens that show nothing.

    Broken bytes become U+FFFD, one for each maximal part of a character, as the tokenizer's own
    decoder has it (the Unicode standard's practice, which both libraries follow).
    """

    def __init__(self, bytes_of: Callable[[int], bytes], skipped: Collection[int] = ()) -> None:
        self._bytes_of = bytes_of
        self._skipped = skipped
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def push(self, token: int) -> str:
        return "" if token in self._skipped else self._decode(self._bytes_of(token))

    def flush(self) -> str:
        return self._decode(b"", True)
