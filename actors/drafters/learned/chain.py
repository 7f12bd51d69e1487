"""Mechanisms that draft token by token, each from a state that the token before left behind."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import nn
from typing_extensions import override

from actors.contracts import DrafterInfo
from actors.drafters.config import DrafterConfig
from actors.drafters.learned.base import Chain, FeatureDrafter
from actors.drafters.learned.ends import Ends
from actors.drafters.learned.load import context_of
from actors.drafters.learned.picking import extend
from actors.drafters.learned.spec import LayerSpec
from actors.drafters.learned.words import Words
from actors.sampling.rules import weighs_laws


class ChainDrafter(FeatureDrafter):
    """dtype: of activations. most: the longest block that the weights allow; 0 is any."""

    mechanism: str

    def __init__(
        self,
        model: nn.Module,
        layer: LayerSpec,
        layers: int,
        taps: Sequence[int],
        target_hidden: int,
        ends: Ends,
        words: Words,
        config: DrafterConfig,
        dtype: torch.dtype,
        name: str = "local",
        most: int = 0,
    ) -> None:
        longest = most or 1 << 30
        info = DrafterInfo(
            self.mechanism,
            f"{name}@{config.revision or 'local'}",
            vocab_size=words.vocab,
            needs_features=True,
            taps=tuple(taps),
            max_block=min(longest, config.num_speculative_tokens),
            max_ahead=min(longest, config.max_ahead),
            gives_law=weighs_laws(config.rejection_sample_method),
            max_context=context_of(layer, config),
            weight_bytes=_bytes(nn.ModuleList((model, ends))),
            # keys and values, and as much again where memory has just doubled
            token_bytes=2 * 2 * layers * layer.kv_heads * layer.head_dim * dtype.itemsize,
        )
        super().__init__(info, len(taps) * target_hidden, config.prefill_rows)
        self.ends = ends
        self.words = words
        self.dtype = dtype
        self.device = torch.device(config.device)

    @abstractmethod
    def logits(self, z: torch.Tensor) -> torch.Tensor:
        """States [n, hidden] -> [n, rows of the head]."""

    @abstractmethod
    def first(self, chain: Chain) -> torch.Tensor:
        """The state at a session's last absorbed row, [1, hidden]."""

    @abstractmethod
    def step(
        self, chains: Sequence[Chain], states: Sequence[torch.Tensor], number: int
    ) -> list[torch.Tensor]:
        """States that the chains' newest drafts follow -> states behind them, for each chain
        [rows, hidden], whose last row the next draft is chosen from. number: drafts each chain
        has, at least 1."""

    @override
    def draft(self, chains: Sequence[Chain]) -> None:
        states, number = [self.first(chain) for chain in chains], 0
        while True:
            extend(chains, self.logits(torch.stack([z[-1] for z in states])), self.words)
            kept = [i for i, chain in enumerate(chains) if chain.open]
            if not kept:
                return
            chains, number = [chains[i] for i in kept], number + 1
            states = self.step(chains, [states[i] for i in kept], number)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """[rows] -> [rows, hidden]. An id that the table does not have is read as id 0: positions
        stay, acceptance suffers a little."""
        known = torch.where(tokens < self.ends.tokens, tokens, 0)
        return self.ends.embed(known).to(self.dtype)


def _bytes(module: nn.Module) -> int:
    tensors = {t.data_ptr(): t for t in (*module.parameters(), *module.buffers())}
    return sum(t.numel() * t.element_size() for t in tensors.values())
