"""The gateway's tokenizer: prompts to ids, ids to text; the only room that knows its library."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tokenizers import decoders

from cluster.gateway.byte_text import ByteText, TextStream
from cluster.gateway.detokenizer import Detokenizer
from cluster.gateway.errors import InvalidRequest
from cluster.gateway.reach import most_characters

LONG_TEXT = 2048  # characters; longer input is tokenised on a thread, off the event loop
Message = Mapping[str, str]


class ChatTokenizer(Protocol):
    """What is used of transformers' fast tokenizer (`PreTrainedTokenizerFast`)."""

    @property
    def backend_tokenizer(self) -> Any:
        """A `tokenizers.Tokenizer`."""
        ...

    def apply_chat_template(
        self, conversation: Any, *, tokenize: bool, add_generation_prompt: bool
    ) -> Any: ...


class TextCodec:
    """Text and ids of one model. Safe to use from several tasks: it goes around transformers'
    call, which changes the tokenizer's truncation state on each use."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._chat = tokenizer
        self._backend = tokenizer.backend_tokenizer
        self._backend.no_truncation()
        self._backend.no_padding()
        added = self._backend.get_added_tokens_decoder()
        self._special = frozenset(i for i, token in added.items() if token.special)
        self._bytes = _byte_table(self._backend.decoder)
        self._reach = most_characters(self._backend)
        self._token_texts: dict[int, str] = {}
        self._token_bytes: dict[int, bytes] = {}

    async def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        if len(text) > LONG_TEXT:
            return await asyncio.to_thread(self._encode, text, add_special_tokens)
        return self._encode(text, add_special_tokens)

    def least_tokens(self, text: str) -> int:
        """Tokens the text has at least, without tokenising it; 0 where nothing can be said."""
        return 0 if self._reach is None else -(-len(text) // self._reach)

    async def render_chat(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True
    ) -> str:
        """The conversation as the model's chat template writes it, special tokens included; its
        errors are the client's (roles in a wrong order, no template): `InvalidRequest`, param
        `messages`."""
        if sum(len(message["content"]) for message in messages) > LONG_TEXT:
            return await asyncio.to_thread(self._render_chat, messages, add_generation_prompt)
        return self._render_chat(messages, add_generation_prompt)

    async def encode_chat(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True
    ) -> list[int]:
        """Ids of the conversation as `render_chat` writes it."""
        text = await self.render_chat(messages, add_generation_prompt=add_generation_prompt)
        return await self.encode(text, add_special_tokens=False)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return str(self._backend.decode(ids, skip_special_tokens=skip_special_tokens))

    def detokenizer(self, skip_special_tokens: bool, context: Sequence[int]) -> TextStream:
        """Of one output that continues the prompt `context`."""
        skipped = self._special if skip_special_tokens else ()
        if isinstance(self._backend.decoder, decoders.ByteLevel):
            return ByteText(self._shown_bytes, skipped)
        return Detokenizer(self._backend, skipped, context)

    def token_text(self, token: int) -> str:
        """The token alone, special tokens shown; U+FFFD for part of a character."""
        text = self._token_texts.get(token)
        if text is None:
            text = self._token_texts[token] = self.decode([token])
        return text

    def token_bytes(self, token: int) -> bytes:
        """The token's own bytes, also where they are only part of a character."""
        raw = self._backend.id_to_token(token)
        if raw is None or token in self._special:
            return self.token_text(token).encode()
        if self._bytes is not None and all(c in self._bytes for c in raw):
            return bytes(self._bytes[c] for c in raw)
        if len(raw) == 6 and raw.startswith("<0x"):  # byte fallback: <0xE2>
            return bytes([int(raw[3:5], 16)])
        return self.token_text(token).encode()

    def _shown_bytes(self, token: int) -> bytes:
        """What the byte-level decoder makes of a token, special ones too: the bytes that its
        characters stand for or, where one stands for none, those of the characters."""
        shown = self._token_bytes.get(token)
        if shown is None:
            raw, table = self._backend.id_to_token(token) or "", self._bytes or {}
            known = all(c in table for c in raw)
            shown = bytes(table[c] for c in raw) if known else raw.encode()
            self._token_bytes[token] = shown
        return shown

    def token_string(self, token: int) -> str:
        """The token's entry in the vocabulary."""
        return str(self._backend.id_to_token(token) or "")

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        # The batch call releases the interpreter while it works, the single one does not: a long
        # prompt must not stop the streams of others.
        (encoding,) = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return list(encoding.ids)

    def _render_chat(self, messages: Sequence[Message], add_generation_prompt: bool) -> str:
        try:
            return str(
                self._chat.apply_chat_template(
                    [dict(message) for message in messages],
                    tokenize=False,
                    add_generation_prompt=add_generation_prompt,
                )
            )
        except Exception as error:  # a template is the model's own program: anything may come
            raise InvalidRequest(
                f"The chat template refuses these messages: {str(error)[:500]}",
                param="messages",
                code="chat_template_error",
            ) from error


def _byte_table(decoder: object) -> dict[str, int] | None:
    """Byte-level BPE's alphabet, character -> byte (GPT-2): printable latin-1 stands for itself,
    the other 68 bytes for U+0100 on. None for tokenizers without it."""
    if "ByteLevel" not in repr(decoder):
        return None
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in own}
    others = (byte for byte in range(256) if byte not in set(own))
    table.update({chr(0x100 + i): byte for i, byte in enumerate(others)})
    return table
