"""DSpark and DFlash in training: blocks at many anchors of an answer, in one pass
(arXiv 2602.06036 §3, 2607.05147 §3)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from actors.drafters.learned.block_head import (
    BlockHead,
    BlockHeadSpec,
    ConfidenceSpec,
    MarkovSpec,
)
from actors.drafters.learned.block_model import BlockSpec
from actors.drafters.learned.target_parts import TargetParts
from actors.training.acceptance import following, run_of_right
from actors.training.attend import Blocks
from actors.training.examples import Example
from actors.training.laws import TargetLaw
from actors.training.look_back import look_back
from actors.training.losses import (
    LossWeights,
    RowTargets,
    StateLoss,
    confidence_loss,
    head_loss,
    slot_weights,
)
from actors.training.packing import (
    Packed,
    all_anchors,
    answer_states,
    choose_anchors,
    context_rows,
    pack,
)
from actors.training.trainee import StepLoss


@dataclass(frozen=True, slots=True)
class BlockTraining:
    """anchors: at most so many of one answer in a step, drawn anew each time. sizes: numbers of
    drafts a block is trained with, one drawn for each step: a server that wants fewer asks for
    fewer slots, and the mask rows that are not there change the ones that are. gamma: of the
    weights exp(-(k-1)/γ)."""

    anchors: int = 64
    sizes: tuple[int, ...] = (6, 3, 3, 2, 2, 2)
    gamma: float = 3.0
    terms: LossWeights = field(default_factory=LossWeights)


class BlockTrainee:
    """markov_rank 0: DFlash, else DSpark with a vanilla Markov head and a confidence head.

    The embedding and the head are the target's own and stay as they are.
    """

    def __init__(
        self,
        spec: BlockSpec,
        parts: TargetParts,
        law: TargetLaw,
        markov_rank: int,
        training: BlockTraining | None = None,
    ) -> None:
        self.mechanism = "dspark" if markov_rank else "dflash"
        self.spec, self.law = spec, law
        self.depth = spec.drafts
        self.training = training or BlockTraining()
        self.module = _module(spec, parts.vocab, law.head.shape[0], markov_rank)
        self._embedding = parts.embedding
        self._state_loss = StateLoss(parts.head)
        self._width = len(spec.taps) * spec.target_hidden
        self.inverse = torch.ones(self._width)

    def set_scale(self, scale: torch.Tensor) -> None:
        self.inverse = 1.0 / scale[: self._width]

    def look_back(self, examples: Sequence[Example]) -> None:
        """Begin with attention to the rows just before (`actors.training.look_back`)."""
        look_back(self.module, self._embedding, self.inverse, examples, self.spec.mask_token)

    # -- the step ---------------------------------------------------------------------------

    def loss(self, examples: Sequence[Example], rng: random.Random) -> StepLoss:
        drafts = min(rng.choice(self.training.sizes), self.depth)
        chosen = [choose_anchors(e, self.training.anchors, rng) for e in examples]
        packed = pack(examples, chosen, drafts)
        hidden = self._hidden(examples, packed, drafts).flatten(0, 1)
        after = packed.tokens[:, 1:]
        places = self.law.places[after]
        states = answer_states(examples, self.law, self.spec.target_hidden)
        weights = slot_weights(drafts, self.training.gamma).to(hidden.device)
        weights = weights * packed.valid * (places >= 0)
        targets = RowTargets(
            self.law(states),
            packed.rows.flatten(),
            places.flatten(),
            weights.flatten().to(hidden.dtype),
        )
        markov, confidence = self.module.markov_head, self.module.confidence_head
        e = bias = None
        if markov is not None:
            e = markov.markov_w1(packed.tokens[:, :-1].flatten())
            bias = markov.markov_w2.weight
        loss, distance, right = head_loss(
            hidden, self.law.head, targets, self.training.terms, e, bias
        )
        figures = {"loss": float(loss.detach())}
        if self.training.terms.state:
            near = self._state_loss(hidden, states[targets.laws], targets.weights)
            figures["state"] = float(near.detach())
            loss = loss + self.training.terms.state * near
        if confidence is not None and e is not None:
            sure = confidence_loss(confidence(hidden, e), distance, targets.weights)
            figures["confidence"] = float(sure.detach())
            loss = loss + sure
        hits = (right.view(-1, drafts) & packed.valid).float()
        counted = packed.valid.sum(0).clamp(min=1)
        for k in (0, 1):
            if k < drafts:
                figures[f"top1@{k + 1}"] = float(hits[:, k].sum() / counted[k])
        return StepLoss(loss, len(packed.anchors), figures)

    def _hidden(self, examples: Sequence[Example], packed: Packed, drafts: int) -> torch.Tensor:
        """Normed states of the slots that draft, [anchors, drafts, hidden]."""
        model, next_token = self.module, self.spec.next_token
        slots = drafts if next_token else drafts + 1
        features, positions = context_rows(examples, slice(0, self._width))
        attend = Blocks(
            packed.spans,
            model.context_kv(model.context(features * self.inverse), positions),
            causal=self.spec.causal,
        )
        ids = torch.full((len(packed.anchors), slots), self.spec.mask_token)
        ids[:, 0] = packed.tokens[:, 0]
        at = packed.anchors[:, None] + torch.arange(slots)
        hidden: torch.Tensor = model(self._embedding[ids], at, attend)
        return hidden if next_token else hidden[:, 1:]

    # -- validation -------------------------------------------------------------------------

    @torch.no_grad()
    def right(self, examples: Sequence[Example]) -> list[list[int]]:
        out: list[list[int]] = []
        for example in examples:
            packed = pack([example], [all_anchors(example)], self.depth)
            drafts = self._drafts(self._hidden([example], packed, self.depth), packed.tokens[:, 0])
            text = following(example.tokens, example.prompt_len, self.depth)
            out.append(run_of_right(drafts, text).tolist())
        return out

    def _drafts(self, hidden: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """Greedy drafts, token ids [anchors, drafts]."""
        logits, markov = hidden @ self.law.head.T, self.module.markov_head
        drafts: list[torch.Tensor] = []
        for k in range(hidden.shape[1]):
            row = logits[:, k]
            if markov is not None:
                row = row + markov.markov_w2(markov.markov_w1(before))
            before = self.law.draft_ids[row.argmax(-1)]
            drafts.append(before)
        return torch.stack(drafts, -1)

    # -- export -----------------------------------------------------------------------------

    def export(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        tensors = dict(self.module.state_dict())
        tensors["fc.weight"] = tensors["fc.weight"] * self.inverse
        facts: dict[str, Any] = {
            "num_hidden_layers": self.spec.layers,
            "taps": list(self.spec.taps),
            "block_size": self.spec.block,
            "mask_token_id": self.spec.mask_token,
        }
        if self.module.markov_head is not None:
            facts |= {
                "markov_rank": self.module.markov_head.rank,
                "markov_head_type": self.module.markov_head.kind,
                "enable_confidence_head": True,
                "confidence_head_with_markov": True,
            }
        return tensors, facts


def _module(spec: BlockSpec, vocab: int, draft_vocab: int, rank: int) -> BlockHead:
    """Serial heads begin as none at all: no bias, one confidence for everything."""
    markov = MarkovSpec("vanilla", rank, vocab, draft_vocab) if rank else None
    confidence = ConfidenceSpec(rank) if rank else None
    made = BlockHead(BlockHeadSpec(spec, draft_vocab, markov=markov, confidence=confidence))
    if made.markov_head is not None and made.confidence_head is not None:
        nn.init.zeros_(made.markov_head.markov_w2.weight)
        nn.init.zeros_(made.confidence_head.proj.weight)
        nn.init.zeros_(made.confidence_head.proj.bias)
    return made
