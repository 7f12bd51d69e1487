"""Drafters that know the target: from a function, or by running the target model themselves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from actors.sampling.params import SamplingParams
from tests.drafters.base import NextToken, Session, TokenDrafter

Continuation = Callable[[Sequence[int], SamplingParams, int], int]
"""NextToken with the prompt's length, which penalties and min_tokens need."""


class KnowingDrafter(TokenDrafter):
    """`right(session, prefix)` is the token the target will write after `prefix`.

    next_token: the target as a function; or model: the target itself (a transformers model, or a
    folder for drafters in processes of their own), run without a cache, greedy and coupled.
    """

    def __init__(
        self,
        next_token: NextToken | None = None,
        vocab_size: int = 0,
        *,
        model: Any = None,
        dtype: str = "float64",
        max_block: int = 32,
    ) -> None:
        if (next_token is None) == (model is None):
            raise ValueError("give either next_token or model")
        self._next_token = next_token
        self._continuation: Continuation | None = None
        if model is not None:
            model = load(model, dtype) if isinstance(model, str) else detached(model)
            vocab_size = vocab_size or model.config.vocab_size
            self._continuation = partial(continuation, model)
        super().__init__(vocab_size, max_block)

    def right(self, session: Session, prefix: Sequence[int]) -> int:
        if self._next_token is not None:
            return self._next_token(prefix, session.sampling)
        assert self._continuation is not None
        return self._continuation(prefix, session.sampling, session.prompt_len)

    def block(self, session: Session, depth: int) -> Sequence[int]:
        tokens = list(session.tokens)
        for _ in range(depth):
            tokens.append(self.right(session, tokens))
        return tokens[len(session.tokens) :]


def next_token_of(model: Any) -> NextToken:
    """The target `model` as a function, every token of the prefix counted as prompt."""
    known = detached(model)
    return lambda prefix, sampling: continuation(known, prefix, sampling, len(prefix))


def detached(model: Any) -> Any:
    """A copy with plain attention: the engine may change the attention of its own."""
    known = copy.deepcopy(model)
    known.set_attn_implementation("eager")
    return known


def load(path: str, dtype: str) -> Any:
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    return AutoModelForCausalLM.from_pretrained(
        path, dtype=getattr(torch, dtype), attn_implementation="eager", use_safetensors=True
    ).eval()


@torch.inference_mode()
def continuation(
    model: Any, prefix: Sequence[int], sampling: SamplingParams, prompt_len: int
) -> int:
    """The token standard decode writes after `prefix`: one full forward, the sampler's one row."""
    from actors.sampling.decide import Span, decide

    logits = model(input_ids=torch.tensor([list(prefix)]), use_cache=False).logits[0, -1:]
    eos = model.generation_config.eos_token_id
    ends = frozenset([eos] if isinstance(eos, int) else eos or [])
    span = Span(0, (), sampling, list(prefix), prompt_len, ends)
    return int(decide(logits, [span])[0].tokens[0])
