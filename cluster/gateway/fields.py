"""Request fields this server knows and does not honour: refused by name, never dropped.

Each maps to the values that ask for nothing beyond what the server does anyway; those pass (many
clients send every field they know).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from cluster.gateway.errors import InvalidRequest

Neutral = tuple[Any, ...]

_SHARED: dict[str, Neutral] = {
    "n": (1,),
    "echo": (False,),
    "use_beam_search": (False,),
    "watermarking": (False,),
    "length_penalty": (1.0,),
    "spaces_between_special_tokens": (True,),
    "truncate_prompt_tokens": (),
    "truncation_side": (),
    "prompt_logprobs": (),
    "logprob_token_ids": (),
    "allowed_token_ids": (),
    "bad_words": ([],),
    "structured_outputs": (),
    "response_format": ({"type": "text"},),
    "session_id": (),
    "return_tokens_as_token_ids": (False,),
    "return_weight_versions": (False,),
    "return_token_offsets": (False,),
    "return_prompt_text": (False,),
    "routed_experts_prompt_start": (),
    "kv_transfer_params": (),
    "ec_transfer_params": (),
    "vllm_xargs": ({},),
    "repetition_detection": (),
    "stream_interval": (1,),
}

CHAT: dict[str, Neutral] = {
    **_SHARED,
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "continue_final_message": (False,),
    "add_special_tokens": (False,),
    "documents": ([],),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "media_io_kwargs": ({},),
    "mm_processor_kwargs": ({},),
    "return_mm_kwargs": (False,),
    "thinking_token_budget": (),
    "include_reasoning": (True,),
    "reasoning_effort": ("none",),
    "audio": (),
    "modalities": (["text"],),
    "prediction": (),
    "verbosity": ("medium",),
    "store": (False,),
    "service_tier": ("auto", "default"),
    "web_search_options": (),
    "safety_identifier": (),
    "prompt_cache_key": (),
    "prompt_cache_retention": (),
}

COMPLETIONS: dict[str, Neutral] = {
    **_SHARED,
    "best_of": (1,),
    "suffix": ("",),
    "prompt_embeds": (),
    "add_special_tokens": (True,),
}

MESSAGE: dict[str, Neutral] = {
    "tool_calls": ([],),
    "tool_call_id": (),
    "function_call": (),
    "refusal": (),
    "audio": (),
    "annotations": ([],),
    "reasoning": (),
    "reasoning_content": (),
}

SPECULATIVE: dict[str, Neutral] = {"n_min": (0,), "p_min": (0.0,)}


def honoured(
    document: Mapping[str, Any],
    known: Collection[str],
    refused: Mapping[str, Neutral],
    where: str = "",
) -> dict[str, Any]:
    """The honoured fields of `document`. Raises `InvalidRequest` for a field that is known and
    not honoured, or unknown (with close matches); `where` prefixes its name."""
    kept: dict[str, Any] = {}
    for name, value in document.items():
        if name in known:
            kept[name] = value
        elif name not in refused:
            raise _unknown(name, known, where)
        elif value is not None and not any(_same(value, neutral) for neutral in refused[name]):
            raise _unsupported(name, refused[name], where)
    return kept


def _same(value: object, neutral: object) -> bool:
    """JSON's equality: 1 is 1.0, but true is not 1, as it is to Python."""
    return isinstance(value, bool) == isinstance(neutral, bool) and value == neutral


def _unsupported(name: str, neutral: Neutral, where: str) -> InvalidRequest:
    other = f" other than {' or '.join(map(repr, neutral))}" if neutral else ""
    return InvalidRequest(
        f"{where}{name}{other} is not supported yet.",
        param=f"{where}{name}",
        code="unsupported_parameter",
    )


def _unknown(name: str, known: Collection[str], where: str) -> InvalidRequest:
    shown = name if len(name) <= 64 else f"{name[:61]}..."
    close = get_close_matches(name[:64], known, n=3)
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    return InvalidRequest(
        f"Unknown field {where}{shown}.{hint}", param=f"{where}{shown}", code="unknown_parameter"
    )
