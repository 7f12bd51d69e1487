"""Multi-token prediction heads over many sessions at once.

Entry i of a stage embeds token i + 1 and reads the state of entry i - 1 of the stage before; that
of stage 0 is the target's own, of row i. So stage k has entries k …, in KV rows 0 …; its state
at an entry predicts the token after the next. A block's draft n + 1 is chosen behind stage n;
beyond the last stage they are used again in turn, each reading what the one before left behind.

Law of a session: every stage has its entries below `done`; `last` is [stages, hidden], each
stage's state at entry done-1. Entries of drafts stand behind, until committed ones overwrite them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from typing_extensions import override

from actors.drafters.config import DrafterConfig
from actors.drafters.learned.assemble import assemble
from actors.drafters.learned.attend import Causal
from actors.drafters.learned.base import Absorb, Chain
from actors.drafters.learned.chain import ChainDrafter
from actors.drafters.learned.ends import Ends
from actors.drafters.learned.mtp_model import MtpModel
from actors.drafters.learned.pack import Pack
from actors.drafters.learned.words import Words


class MtpDrafter(ChainDrafter):
    """One forward a stage absorbs what was committed; then one a token."""

    mechanism = "mtp"

    def __init__(
        self,
        model: MtpModel,
        ends: Ends,
        words: Words,
        config: DrafterConfig,
        dtype: torch.dtype,
        name: str = "local",
    ) -> None:
        layer, taps = model.spec.layer, (model.spec.tap,)
        super().__init__(
            model,
            layer,
            model.spec.stages,
            taps,
            layer.hidden,
            ends,
            words,
            config,
            dtype,
            name,
        )
        self.model = model.eval()

    @classmethod
    def load(cls, config: DrafterConfig) -> Self:
        """Raises DrafterLoadError."""
        found = assemble(
            config, cls.mechanism, MtpModel, lambda parts: {"final_norm.weight": parts.norm}
        )
        drafter = cls(found.model, found.ends, found.words, config, found.dtype, found.name)
        drafter.threads = found.threads
        return drafter

    @override
    def absorb(self, parts: Sequence[Absorb]) -> None:
        tapped = torch.cat([part.features for part in parts]).to(self.device, self.dtype)
        lengths = [len(part.next_tokens) for part in parts]
        hidden = list(torch.split(self.model.feature(tapped), lengths))
        states: list[list[torch.Tensor]] = [[] for _ in parts]
        for stage in range(self.model.spec.stages):
            hidden = self._absorb_stage(stage, parts, hidden)
            for i, (part, z) in enumerate(zip(parts, hidden, strict=True)):
                # A stage without entries yet has no state, and nobody will read one.
                states[i].append(z[-1] if len(z) else self._blank(part))
                if stage + 1 < self.model.spec.stages:
                    before = part.session.last
                    carried = z.new_empty(0, z.shape[1])
                    if before is not None and part.session.done > stage:
                        carried = before[stage][None]
                    hidden[i] = torch.cat((carried, z[:-1]))
        for part, last in zip(parts, states, strict=True):
            part.session.last = torch.stack(last)

    def _absorb_stage(
        self, stage: int, parts: Sequence[Absorb], hidden: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """One stage over the parts' entries that exist; its states, for each part [entries, H]."""
        pack = Pack(self.device)
        for part, states in zip(parts, hidden, strict=True):
            first = max(part.session.done, stage)
            tokens = part.next_tokens[len(part.next_tokens) - len(states) :]
            pack.add(part.session.kv, tokens, first, first - stage)
        if not pack.tokens.numel():
            return list(hidden)
        z = self._forward(stage, pack, torch.cat(list(hidden)))
        return list(torch.split(z, [len(states) for states in hidden]))

    def _blank(self, part: Absorb) -> torch.Tensor:
        return part.features.new_zeros(
            self.model.spec.layer.hidden, dtype=self.dtype, device=self.device
        )

    @override
    def first(self, chain: Chain) -> torch.Tensor:
        assert chain.session.last is not None  # a row is absorbed
        return chain.session.last[:1]

    @override
    def step(
        self, chains: Sequence[Chain], states: Sequence[torch.Tensor], number: int
    ) -> list[torch.Tensor]:
        stages = self.model.spec.stages
        if number < stages:
            return self._first_use(chains, states, number)
        pack = Pack(self.device)
        for chain in chains:
            done = chain.session.done
            # Its committed entries and those of its first use are `done` rows together.
            offset = done + number // stages - 1
            pack.add(chain.session.kv, chain.drafts[-1:], done + number - 1, offset)
        z = self._forward(number % stages, pack, torch.cat([z[-1:] for z in states]))
        return list(torch.split(z, 1))

    def _first_use(
        self, chains: Sequence[Chain], states: Sequence[torch.Tensor], stage: int
    ) -> list[torch.Tensor]:
        """Entries done … done + stage - 1 of a stage, which embed all drafts so far."""
        pack, hidden = Pack(self.device), list[torch.Tensor]()
        for chain, before in zip(chains, states, strict=True):
            session = chain.session
            assert session.last is not None
            if 1 < stage <= session.done:
                before = torch.cat((session.last[stage - 1 : stage], before))
            first = max(session.done, stage)
            pack.add(session.kv, chain.drafts[-len(before) :], first, first - stage)
            hidden.append(before)
        z = self._forward(stage, pack, torch.cat(hidden))
        return list(torch.split(z, [len(before) for before in hidden]))

    @override
    def logits(self, z: torch.Tensor) -> torch.Tensor:
        return self.ends.logits(z)

    def _forward(self, stage: int, pack: Pack, hidden: torch.Tensor) -> torch.Tensor:
        attend = Causal(pack.spans, self.model.spec.layer.window)
        embedded = self.embed(pack.tokens)
        z: torch.Tensor = self.model(stage, embedded, hidden, pack.positions, attend)
        return z
