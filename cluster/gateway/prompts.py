"""A client's text to the model's token ids, the same through both doors.

Text that surely does not fit is refused before it is tokenised: that takes a second a megabyte.
"""

from __future__ import annotations

from collections.abc import Sequence

from cluster.gateway.resolve import check_room
from cluster.gateway.text import Message, TextCodec
from cluster.gateway.types import ModelInfo


async def text_ids(text: str, codec: TextCodec, info: ModelInfo) -> list[int]:
    """Ids of a plain prompt. "" has none, even where the tokenizer would add one of its own.
    Raises `InvalidRequest`, param `prompt`."""
    if not text:
        return []
    check_room(codec.least_tokens(text), info, "prompt", least=True)
    return await codec.encode(text)


async def chat_ids(
    messages: Sequence[Message],
    codec: TextCodec,
    info: ModelInfo,
    *,
    add_generation_prompt: bool = True,
) -> list[int]:
    """Ids of a conversation under the model's chat template. Raises `InvalidRequest`, param
    `messages`."""
    text = await codec.render_chat(messages, add_generation_prompt=add_generation_prompt)
    check_room(codec.least_tokens(text), info, "messages", least=True)
    return await codec.encode(text, add_special_tokens=False)
