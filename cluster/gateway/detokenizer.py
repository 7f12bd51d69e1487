"""Incremental detokenisation that never shows half a character.

A token may hold part of a character's bytes, so decoding it alone gives U+FFFD. Each push decodes
a short window of tokens and releases what no later token can change; `flush` shows the rest as a
decode of the whole output would.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

REPLACEMENT = "\ufffd"

# A UTF-8 character has at most 4 bytes, so at most the last 3 tokens wait for another. A longer
# run of U+FFFD is garbage for good: beyond _LIMIT tokens all but the last _HELD characters of it
# are shown and the window restarts at its last _KEEP tokens (more bytes than _HELD characters).
_HELD = 4
_KEEP = 16
_LIMIT = 32
_CONTEXT = 4


class Decoder(Protocol):
    """The part of `tokenizers.Tokenizer` that is used here."""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str: ...


class Detokenizer:
    """One output. The texts of all pushes and the flush concatenate to the decode of its tokens.

    skipped: token ids that show nothing (special tokens). context: the prompt's ids; decoders
    that drop a leading space do so at the start of a text, not where a prompt is continued.
    Each push costs two decodes of a few tokens.
    """

    def __init__(
        self, decoder: Decoder, skipped: Collection[int] = (), context: Sequence[int] = ()
    ) -> None:
        self._decoder = decoder
        self._skipped = skipped
        self._window = [token for token in context[-_CONTEXT:] if token not in skipped]
        self._shown = self._decode(self._window)  # of the window's text, what is out already
        if self._shown.endswith(REPLACEMENT) or not self._shown:
            self._window, self._shown = [], ""
        self._fresh = len(self._window)  # the window's tokens from here on are not all shown

    def push(self, token: int) -> str:
        """The characters that `token` completes; "" while they are still open."""
        if token in self._skipped:
            return ""
        self._window.append(token)
        text = self._decode(self._window)
        stable = len(text.rstrip(REPLACEMENT))
        whole = stable == len(text)
        crowded = len(self._window) > _LIMIT
        if crowded and not whole:
            stable = max(stable, len(text) - _HELD)
        out = text[len(self._shown) : stable]
        if whole and out:
            self._restart(len(self._window) - self._fresh, held=0)
        elif crowded:
            self._restart(_KEEP, held=max(0, len(text) - max(stable, len(self._shown))))
        elif out:
            self._shown = text[:stable]
        return out

    def flush(self) -> str:
        """What is still held, as a decode of the whole would show it; the output ends here."""
        text = self._decode(self._window)
        if not text.startswith(self._shown):  # broken bytes change how earlier ones decode
            text = self._shown + self._decode(self._window[self._fresh :])
        out = text[len(self._shown) :]
        self._shown = text
        return out

    def _restart(self, keep: int, held: int) -> None:
        """Slide the window to its last `keep` tokens; `held` characters are not shown yet."""
        self._window = self._window[-keep:]
        text = self._decode(self._window)
        self._shown = text[: max(0, len(text) - held)]
        self._fresh = len(self._window)

    def _decode(self, ids: Sequence[int]) -> str:
        return self._decoder.decode(ids, skip_special_tokens=False) if ids else ""
