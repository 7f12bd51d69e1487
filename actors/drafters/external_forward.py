"""Who computes a draft model: transformers' classes, or on a CPU the executor that targets have."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from actors.drafters.config import DrafterConfig
from actors.drafters.external_kv import ATTENTION, DraftStep, SessionKV, Span, token_bytes
from actors.drafters.threads import torch_threads
from actors.engine.errors import EngineError
from actors.engine.loading import has_bf16_units

logger = logging.getLogger(__name__)


class Feed(NamedTuple):
    """Tokens at positions offset … of the session whose KV is `kv`."""

    kv: Any
    tokens: Sequence[int]
    offset: int


class DraftForward(Protocol):
    """A causal LM over rows of many sessions, with their keys and values.

    weight_bytes, token_bytes: of the weights, and of one token of a session at most.
    """

    weight_bytes: int
    token_bytes: int

    def session(self) -> Any:
        """The empty KV of a new session."""

    def close(self, kv: Any) -> None:
        """Nobody will feed this session any more."""

    def __call__(self, feeds: Sequence[Feed]) -> torch.Tensor:
        """Writes KV of all rows; logits [len(feeds), vocab] of each feed's last one."""


class TorchForward:
    """model: a transformers causal LM in eval mode."""

    def __init__(self, model: Any, threads: int | None) -> None:
        model.set_attn_implementation(ATTENTION)
        self.model = model
        self.weight_bytes = _weight_bytes(model)
        self.token_bytes = token_bytes(model)
        self._threads = threads

    def session(self) -> SessionKV:
        return SessionKV()

    def close(self, kv: SessionKV) -> None:
        """Its memory goes with it."""

    @torch.inference_mode()
    def __call__(self, feeds: Sequence[Feed]) -> torch.Tensor:
        ids, positions, spans = list[int](), list[int](), list[Span]()
        for kv, tokens, offset in feeds:
            start = len(ids)
            ids.extend(tokens)
            positions.extend(range(offset, offset + len(tokens)))
            spans.append(Span(kv, offset, start, len(ids)))
        device = self.model.device
        with torch_threads(self._threads):
            logits: torch.Tensor = self.model(
                input_ids=torch.tensor([ids], device=device),
                position_ids=torch.tensor([positions], device=device),
                use_cache=False,
                logits_to_keep=torch.tensor([span.stop - 1 for span in spans], device=device),
                draft_step=DraftStep(spans),
            ).logits[0]
        return logits


def forward_for(model: Any, config: DrafterConfig, context: int) -> DraftForward:
    """The executor where the model is one of its family, there is a compiler and a folder for what
    it compiles. context: positions that are ever fed, 0 for no bound. Raises DrafterLoadError."""
    from actors.drafters.external_native import PackedForward
    from actors.engine.native.build import BuildError, load
    from actors.engine.native.family import obstacle

    if config.compile_cache and config.device == "cpu":
        reason = obstacle(model) if context else "nothing bounds its context"
        try:
            if not reason:
                compiled = load(Path(config.compile_cache))
                return PackedForward(model, compiled, context, config.threads)
        except (BuildError, EngineError) as error:
            reason = str(error)
        logger.warning("the draft model computes with transformers' classes: %s", reason)
        if config.dtype == "auto" and model.dtype is torch.bfloat16 and not has_bf16_units("cpu"):
            model.float()
    return TorchForward(model, config.threads)


def _weight_bytes(model: Any) -> int:
    tensors = {t.data_ptr(): t for t in (*model.parameters(), *model.buffers())}
    return sum(t.numel() * t.element_size() for t in tensors.values())
