"""What DFlash and DSpark do alike: context rows are appended once, a block is one forward.

Context keys and values of committed rows 0 … n-2 lie in a session's KV; the block [anchor, mask …]
starts at the anchor's position n-1, and its own rows are scratch.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Sequence
from typing import Self

import torch
from torch import nn
from typing_extensions import override

from actors.contracts import DrafterInfo
from actors.drafters.config import DrafterConfig
from actors.drafters.errors import refusal
from actors.drafters.external_kv import Span
from actors.drafters.learned.assemble import assemble
from actors.drafters.learned.attend import Block
from actors.drafters.learned.base import Absorb, Chain, FeatureDrafter
from actors.drafters.learned.block_head import BlockHead, BlockHeadSpec
from actors.drafters.learned.ends import Ends
from actors.drafters.learned.load import context_of
from actors.drafters.learned.projection import digest_of
from actors.drafters.learned.walk import Slots
from actors.drafters.learned.words import Words
from actors.sampling.rules import weighs_laws

logger = logging.getLogger(__name__)


class BlockDrafter(FeatureDrafter):
    """A mechanism says how drafts are chosen from the slots."""

    mechanism: str

    def __init__(
        self,
        spec: BlockHeadSpec,
        model: BlockHead,
        ends: Ends,
        words: Words,
        config: DrafterConfig,
        dtype: torch.dtype,
        name: str = "local",
    ) -> None:
        block, layer, wanted = spec.block, spec.block.layer, config.num_speculative_tokens
        if wanted > block.drafts:
            logger.warning(
                "%s drafts %d tokens at most, %d are asked for", name, block.drafts, wanted
            )
        if not 0 <= block.mask_token < ends.tokens:
            raise refusal(f"the mask token {block.mask_token} is none of {ends.tokens} embeddings")
        info = DrafterInfo(
            self.mechanism,
            f"{name}@{config.revision or 'local'}",
            vocab_size=words.vocab,
            needs_features=True,
            taps=block.taps,
            max_block=min(block.drafts, wanted),
            max_ahead=min(block.drafts, config.max_ahead),
            gives_law=weighs_laws(config.rejection_sample_method),
            max_context=context_of(layer, config),
            weight_bytes=_bytes(model) + _bytes(ends),
            # keys and values, and as much again where memory has just doubled
            token_bytes=2 * 2 * block.layers * layer.kv_heads * layer.head_dim * dtype.itemsize,
        )
        super().__init__(info, len(block.taps) * block.target_hidden, config.prefill_rows)
        self.spec = spec
        self.model = model
        self.ends = ends
        self.words = words
        self.dtype = dtype
        self.device = torch.device(config.device)

    @classmethod
    def load(cls, config: DrafterConfig) -> Self:
        """Raises DrafterLoadError."""
        found = assemble(config, cls.mechanism, BlockHead)
        spec = found.head.spec
        drafter = cls(spec, found.model, found.ends, found.words, config, found.dtype, found.name)
        drafter.threads = found.threads
        if config.feature_format == "auto":
            drafter.takes_projected(digest_of(found.head), spec.block.layer.hidden)
        return drafter

    # -- the mechanism --------------------------------------------------------------------------

    @abstractmethod
    def choose(self, slots: Sequence[Slots]) -> None:
        """Fill `drafts` (and `confidence`) of the chains; may raise DrafterError."""

    @override
    def first_map(self, rows: torch.Tensor) -> torch.Tensor:
        return self.model.context(rows)

    @override
    def absorb(self, parts: Sequence[Absorb]) -> None:
        rows = torch.cat([part.features for part in parts]).to(self.device, self.dtype)
        counts = [part.features.shape[0] for part in parts]
        starts = [part.session.done for part in parts]
        positions = self._positions(starts, counts)
        made = self.model.context_kv(self.fused(rows), positions)
        for layer, (keys, values) in enumerate(made):
            per_part = zip(
                parts, torch.split(keys, counts), torch.split(values, counts), strict=True
            )
            for part, k, v in per_part:
                part.session.kv.write(
                    layer, part.session.done, k.transpose(0, 1), v.transpose(0, 1)
                )

    @override
    def draft(self, chains: Sequence[Chain]) -> None:
        self.choose(self._run(chains))

    def _run(self, chains: Sequence[Chain]) -> list[Slots]:
        """One forward for all blocks, each as long as its depth wants."""
        block = self.spec.block
        idle = 0 if block.next_token else 1  # the anchor's slot predicts itself, in DFlash
        counts = [chain.depth + idle for chain in chains]
        spans, ids = list[Span](), list[int]()
        for chain, count in zip(chains, counts, strict=True):
            session = chain.session
            spans.append(Span(session.kv, session.done, len(ids), len(ids) + count))
            ids += [session.tokens[-1], *[block.mask_token] * (count - 1)]
        hidden = self.model(
            self.embed(self.known(ids, self.ends.tokens)),
            self._positions([span.offset for span in spans], counts),
            Block(spans, block.masks),
            self._positions([0] * len(counts), counts),
        )
        parts = [h[idle:] for h in torch.split(hidden, counts)]
        logits = torch.split(self._logits(torch.cat(parts)), [part.shape[0] for part in parts])
        return [Slots(c, h, x) for c, h, x in zip(chains, parts, logits, strict=True)]

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        spec, logits = self.spec, self.ends.logits(hidden)
        if spec.logit_scale != 1.0:
            logits = logits * spec.logit_scale
        return spec.softcap * torch.tanh(logits / spec.softcap) if spec.softcap else logits

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """[n] -> [n, hidden]"""
        embedded, scale = self.ends.embed(ids).to(self.dtype), self.spec.embed_scale
        return embedded * scale if scale != 1.0 else embedded

    def known(self, tokens: Sequence[int], count: int) -> torch.Tensor:
        """int64 [n]; a token that a table of `count` rows does not have is read as id 0: positions
        stay, acceptance suffers a little."""
        return torch.tensor([t if 0 <= t < count else 0 for t in tokens], device=self.device)

    def _positions(self, starts: Sequence[int], counts: Sequence[int]) -> torch.Tensor:
        positions = [p for s, n in zip(starts, counts, strict=True) for p in range(s, s + n)]
        return torch.tensor(positions, device=self.device)


def _bytes(module: nn.Module) -> int:
    tensors = {t.data_ptr(): t for t in (*module.parameters(), *module.buffers())}
    return sum(t.numel() * t.element_size() for t in tensors.values())
