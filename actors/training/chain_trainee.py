"""EAGLE-3 and MTP in training: chains of drafts after many anchors, each step fed with what the
step before made of itself (training-time test, arXiv 2503.01840 §3)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import nn

from actors.drafters.learned.blocks import Attend
from actors.drafters.learned.spec import LayerSpec
from actors.drafters.learned.target_parts import TargetParts
from actors.training.acceptance import following, run_of_right
from actors.training.attend import Chain, KeyValue
from actors.training.examples import Example
from actors.training.laws import TargetLaw
from actors.training.losses import LossWeights, RowTargets, StateLoss, head_loss
from actors.training.packing import (
    Packed,
    all_anchors,
    answer_states,
    choose_anchors,
    context_rows,
    pack,
)
from actors.training.trainee import StepLoss


class ChainModel(Protocol):
    """A drafter whose entry j joins row j's features, or its own state, with token j + 1."""

    @property
    def module(self) -> nn.Module: ...

    @property
    def layer_spec(self) -> LayerSpec: ...

    @property
    def columns(self) -> slice:
        """Which of a row's features it reads."""
        ...

    def set_scale(self, scale: torch.Tensor) -> None: ...

    def first(self, features: torch.Tensor) -> torch.Tensor:
        """Features [rows, …] -> what the first step gets, [rows, hidden]."""
        ...

    def keys(
        self, embedded: torch.Tensor, hidden: torch.Tensor, positions: torch.Tensor
    ) -> KeyValue:
        """Keys and values of entries, each [rows, kv_heads, dim]."""
        ...

    def step(
        self,
        embedded: torch.Tensor,
        hidden: torch.Tensor,
        positions: torch.Tensor,
        attend: Attend,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What the next step gets, and what the head reads; both [rows, hidden]."""
        ...

    def export(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class ChainTraining:
    """anchors: at most so many of one answer in a step. steps: length of a chain in training.
    decay: a step's loss weighs decay^step."""

    anchors: int = 96
    steps: int = 3
    decay: float = 0.8
    terms: LossWeights = field(default_factory=lambda: LossWeights(ce=0.1, kl=0.9, tv=0.0))


class ChainTrainee:
    """depth: drafts of a block when validated."""

    def __init__(
        self,
        mechanism: str,
        model: ChainModel,
        parts: TargetParts,
        law: TargetLaw,
        depth: int = 6,
        training: ChainTraining | None = None,
    ) -> None:
        self.mechanism, self.depth = mechanism, depth
        self.model, self.module, self.law = model, model.module, law
        self.training = training or ChainTraining()
        self._embedding, self._hidden = parts.embedding, parts.hidden
        self._state_loss = StateLoss(parts.head)

    def set_scale(self, scale: torch.Tensor) -> None:
        self.model.set_scale(scale)

    def loss(self, examples: Sequence[Example], rng: random.Random) -> StepLoss:
        training = self.training
        chosen = [choose_anchors(e, training.anchors, rng) for e in examples]
        packed = pack(examples, chosen, training.steps)
        places = self.law.places[packed.tokens[:, 1:]]
        states = answer_states(examples, self.law, self._hidden)
        laws = self.law(states)
        loss = torch.zeros(())
        figures: dict[str, float] = {}
        chain = self._chain(examples, packed)
        for s, hidden in zip(range(training.steps), chain, strict=False):
            valid = packed.valid[:, s]
            weights = (valid & (places[:, s] >= 0)).to(hidden.dtype)
            targets = RowTargets(laws, packed.rows[:, s], places[:, s], weights)
            part, _, right = head_loss(hidden, self.law.head, targets, training.terms)
            if training.terms.state:
                near = self._state_loss(hidden, states[packed.rows[:, s]], weights)
                part = part + training.terms.state * near
            loss = loss + training.decay**s * part
            if s < 2:
                hits = (right & valid).float().sum() / valid.sum().clamp(min=1)
                figures[f"top1@{s + 1}"] = float(hits)
        return StepLoss(loss, len(packed.anchors), {"loss": float(loss.detach()), **figures})

    def _chain(self, examples: Sequence[Example], packed: Packed) -> Iterator[torch.Tensor]:
        """What the head reads at each step, [anchors, hidden]; step s is fed with the text's own
        token."""
        model, tokens = self.model, packed.tokens
        features, positions = context_rows(examples, model.columns)
        first = model.first(features)
        after = torch.cat([e.tokens[1 : e.length - 1] for e in examples])
        attend = Chain(packed.spans, model.keys(self._embedding[after], first, positions))
        rows = torch.cat([span.row + span.anchors - 1 for span in packed.spans])
        hidden = first[rows]
        for s in range(tokens.shape[1] - 1):
            embedded = self._embedding[tokens[:, s]]
            hidden, out = model.step(embedded, hidden, packed.anchors - 1 + s, attend)
            yield out

    @torch.no_grad()
    def right(self, examples: Sequence[Example]) -> list[list[int]]:
        """A chain is fed with its own drafts. Up to the first wrong one they are the text, and
        what comes after a wrong one does not count, so the text may be fed in their place."""
        out: list[list[int]] = []
        for example in examples:
            packed = pack([example], [all_anchors(example)], self.depth)
            states = self._chain([example], packed)
            drafts = [self.law.draft_ids[(h @ self.law.head.T).argmax(-1)] for h in states]
            text = following(example.tokens, example.prompt_len, self.depth)
            out.append(run_of_right(torch.stack(drafts, -1), text).tolist())
        return out

    def export(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        return self.model.export()
