"""EAGLE-3 and P-EAGLE over many sessions at once.

Law of a session: KV row j is the entry (feature row j, token j + 1), for rows 0 … done-1; `last`
is the state at row done-1, so that a block can be drafted again without a commit. Entries of
drafts stand behind row done-1 until the next committed ones overwrite them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from typing_extensions import override

from actors.drafters.config import DrafterConfig
from actors.drafters.errors import refusal
from actors.drafters.learned.assemble import assemble
from actors.drafters.learned.attend import Causal
from actors.drafters.learned.base import Absorb, Chain
from actors.drafters.learned.chain import ChainDrafter
from actors.drafters.learned.eagle_model import EagleModel
from actors.drafters.learned.ends import Ends
from actors.drafters.learned.pack import Pack
from actors.drafters.learned.packed_chain import packed_chain
from actors.drafters.learned.picking import extend, plain, take
from actors.drafters.learned.projection import digest_of
from actors.drafters.learned.words import Words


class EagleDrafter(ChainDrafter):
    """One forward absorbs what was committed; then one a token, or one for all (P-EAGLE)."""

    mechanism = "eagle3"

    def __init__(
        self,
        model: EagleModel,
        ends: Ends,
        words: Words,
        config: DrafterConfig,
        dtype: torch.dtype,
        name: str = "local",
    ) -> None:
        spec = model.spec
        if spec.slots and not 0 <= spec.mask_token < ends.tokens:
            raise refusal(f"the mask token {spec.mask_token} is none of {ends.tokens} embeddings")
        super().__init__(
            model,
            spec.layer,
            spec.layers,
            spec.taps,
            spec.target_hidden,
            ends,
            words,
            config,
            dtype,
            name,
            spec.slots,
        )
        self.model = model.eval()
        self._packed = packed_chain(model, ends, words.vocab, ends.draft_ids)

    @classmethod
    def load(cls, config: DrafterConfig) -> Self:
        """Raises DrafterLoadError."""
        found = assemble(config, cls.mechanism, EagleModel)
        drafter = cls(found.model, found.ends, found.words, config, found.dtype, found.name)
        drafter.threads = found.threads
        if config.feature_format == "auto":
            drafter.takes_projected(digest_of(found.head), found.head.spec.layer.hidden)
        return drafter

    @override
    def first_map(self, rows: torch.Tensor) -> torch.Tensor:
        return self.model.fuse(rows)

    @override
    def absorb(self, parts: Sequence[Absorb]) -> None:
        pack = Pack(self.device)
        for part in parts:
            session = part.session
            pack.add(session.kv, part.next_tokens, session.done, session.done)
        features = torch.cat([part.features for part in parts])
        fused = self.fused(features.to(self.device, self.dtype))
        z = self._forward(pack, fused)[pack.ends]
        for part, row in zip(parts, torch.split(z, 1), strict=True):
            part.session.last = row

    @override
    def draft(self, chains: Sequence[Chain]) -> None:
        if self.model.spec.slots:
            self._draft_slots(chains)
            return
        if self._packed is None:
            super().draft(chains)
            return
        whole, rest = [c for c in chains if plain(c)], [c for c in chains if not plain(c)]
        if whole:
            take(whole, *self._packed.draft(whole, [self.first(c) for c in whole]), self.words)
        if rest:
            super().draft(rest)

    @override
    def first(self, chain: Chain) -> torch.Tensor:
        assert chain.session.last is not None  # a row is absorbed
        return chain.session.last

    @override
    def step(
        self, chains: Sequence[Chain], states: Sequence[torch.Tensor], number: int
    ) -> list[torch.Tensor]:
        pack = Pack(self.device)
        for chain in chains:
            row = chain.session.done + number - 1
            pack.add(chain.session.kv, chain.drafts[-1:], row, row)
        z = self._forward(pack, self.model.recycled(torch.cat(list(states))))
        return list(torch.split(z, 1))

    @override
    def logits(self, z: torch.Tensor) -> torch.Tensor:
        return self.ends.logits(self.model.output(z))

    def _draft_slots(self, chains: Sequence[Chain]) -> None:
        """The first slot is the last true entry, whose state is there; the others are masks."""
        pack, spec = Pack(self.device), self.model.spec
        for chain in chains:
            masks = [spec.mask_token] * (chain.depth - 1)
            pack.add(chain.session.kv, masks, chain.session.done, chain.session.done)
        slots = self.first(chains[0]).new_empty(0, spec.layer.hidden)
        if pack.tokens.numel():
            masked = self.model.masked().to(self.dtype)
            slots = self._forward(pack, masked.expand(pack.tokens.shape[0], -1))
        starts = [span.start for span in pack.spans]
        held = torch.cat([self.first(chain) for chain in chains])
        for slot in range(max(chain.depth for chain in chains)):
            live = [i for i, chain in enumerate(chains) if chain.open]
            if not live:
                return
            z = slots[[starts[i] + slot - 1 for i in live]] if slot else held[live]
            extend([chains[i] for i in live], self.logits(z), self.words)

    def _forward(self, pack: Pack, hidden: torch.Tensor) -> torch.Tensor:
        """[rows, hidden] -> z [rows, hidden]."""
        attend = Causal(pack.spans, self.model.spec.layer.window)
        z: torch.Tensor = self.model(self.embed(pack.tokens), hidden, pack.positions, attend)
        return z
