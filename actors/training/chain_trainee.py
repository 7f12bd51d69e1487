"""EAGLE-3 and MTP in training: chains of drafts after many anchors, each step fed with what the
step before made of itself (training-time test, arXiv 2503.01840 §3).

A chain goes on while its drafts are right. What follows a wrong draft is never kept, so a step
learns from exactly those chains that reach it when drafting: a young drafter's are short and cheap,
and they grow as it learns.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import nn

from actors.drafters.learned.blocks import Attend
from actors.drafters.learned.spec import LayerSpec
from actors.drafters.learned.target_parts import TargetParts
from actors.training.acceptance import following
from actors.training.attend import Chain, KeyValue
from actors.training.chain_models import EagleChain
from actors.training.chain_rows import Starts, choose, lay_out
from actors.training.columns import by_frequency, choose_columns
from actors.training.examples import Example
from actors.training.laws import TargetLaw
from actors.training.look_around import look_around
from actors.training.losses import LossWeights, RowTargets, StateLoss, head_loss
from actors.training.packing import all_anchors, context_rows
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
    """anchors: at most so many of one answer in a step; prompt_anchors: of its prompt (`choose`),
    each of which weighs prompt_weight. steps: the longest chain in training. columns: about so
    many of the head's are looked at in a step; 0 is the draft vocabulary."""

    anchors: int = 128
    prompt_anchors: int = 128
    prompt_weight: float = 0.5
    steps: int = 5
    columns: int = 4096
    terms: LossWeights = field(default_factory=lambda: LossWeights(ce=0.0, kl=1.0, tv=0.0))


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
        self._parts = parts
        self._order = torch.arange(parts.vocab)
        self._state_loss = StateLoss(parts.head)

    def set_scale(self, scale: torch.Tensor) -> None:
        self.model.set_scale(scale)
        if isinstance(self.model, EagleChain):
            self.model.begin(scale)

    def look_back(self, examples: Sequence[Example]) -> None:
        """Attention begins where it will look, and the frequent tokens of `examples` are among the
        columns of every step from now on."""
        self._order = by_frequency(examples, self._parts.vocab)
        if isinstance(self.model, EagleChain):
            look_around(self.model, self._parts.embedding, examples)

    def loss(self, examples: Sequence[Example], rng: random.Random) -> StepLoss:
        """Every draft of a chain that was right so far counts alike."""
        training = self.training
        chosen = [
            choose(e, training.anchors, training.prompt_anchors, rng).to(e.tokens.device)
            for e in examples
        ]
        starts = lay_out(examples, chosen, training.prompt_weight)
        law = self._law_of_step(starts, rng)
        last = torch.cat([e.features[:, -self._parts.hidden :] for e in examples])
        chains = Chains(self.model, self._parts.embedding, examples, starts)
        seen, laws = _reached(starts, training.steps)
        p = law(law.states(last[seen]))
        loss, figures = torch.zeros(()), dict[str, float]()
        for s in range(training.steps):
            hidden = chains.step()
            rows, tokens = laws[chains.rows], law.places[chains.following]
            weights = chains.weights * (tokens >= 0)
            targets = RowTargets(p, rows, tokens, weights)
            part, _, right = head_loss(hidden, law.head, targets, training.terms)
            if training.terms.state:
                near = law.states(last[chains.rows])
                part = part + training.terms.state * self._state_loss(hidden, near, weights)
            loss = loss + weights.sum() / starts.weights.sum() * part
            if s < 2:
                figures[f"top1@{s + 1}"] = float(right.float().mean())
            if not chains.keep(right):
                break
        return StepLoss(loss, len(starts.anchors), {"loss": float(loss.detach()), **figures})

    def _law_of_step(self, starts: Starts, rng: random.Random) -> TargetLaw:
        count = self.training.columns
        if not count:
            return self.law
        return TargetLaw.of(self._parts, choose_columns(starts.tokens, self._order, count, rng))

    @torch.no_grad()
    def right(self, examples: Sequence[Example]) -> list[list[int]]:
        """A chain is fed with its own drafts. Up to the first wrong one they are the text, and
        what comes after a wrong one does not count, so the text may be fed in their place."""
        out: list[list[int]] = []
        for example in examples:
            starts = lay_out([example], [all_anchors(example)])
            chains = Chains(self.model, self._parts.embedding, [example], starts)
            text = following(example.tokens, example.prompt_len, self.depth)
            right = torch.zeros(len(starts.anchors), dtype=torch.long)
            for s in range(self.depth):
                drafts = self.law.draft_ids[(chains.step() @ self.law.head.T).argmax(-1)]
                agreed = drafts == text[chains.going, s]
                right[chains.going] += agreed.long()
                if not chains.keep(agreed):
                    break
            out.append(right.tolist())
        return out

    def export(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        return self.model.export()


class Chains:
    """The chains of a step, as far as they have come. going: which ones still go on."""

    def __init__(
        self,
        model: ChainModel,
        embedding: torch.Tensor,
        examples: Sequence[Example],
        starts: Starts,
    ) -> None:
        features, positions = context_rows(examples, model.columns)
        first = model.first(features)
        after = torch.cat([e.tokens[1 : e.length - 1] for e in examples])
        self._attend = Chain(starts.spans, model.keys(embedding[after], first, positions))
        entries = torch.cat([span.row + span.anchors - 1 for span in starts.spans])
        self._hidden = first[entries]
        self._model, self._embedding, self._starts = model, embedding, starts
        self._steps = 0
        self.going = torch.arange(len(starts.anchors))

    @property
    def rows(self) -> torch.Tensor:
        """Of the rows whose law the last step drafted by."""
        return self._starts.rows[self.going] + self._steps - 1

    @property
    def following(self) -> torch.Tensor:
        """The text's tokens that the last step drafted."""
        return self._starts.tokens[self._starts.at[self.going] + self._steps]

    @property
    def weights(self) -> torch.Tensor:
        return self._starts.weights[self.going]

    def step(self) -> torch.Tensor:
        """What the head reads, [chains, hidden]; fed with the text's own token."""
        starts, s = self._starts, self._steps
        embedded = self._embedding[starts.tokens[starts.at[self.going] + s]]
        positions = starts.anchors[self.going] - 1 + s
        self._hidden, out = self._model.step(embedded, self._hidden, positions, self._attend)
        self._steps += 1
        return out

    def keep(self, right: torch.Tensor) -> bool:
        """Go on with chains whose last draft was right, and whose text goes on; whether any do."""
        kept = right & (self._starts.left[self.going] > self._steps)
        self._attend.keep(kept)
        self._hidden, self.going = self._hidden[kept], self.going[kept]
        return bool(len(self.going))


def _reached(starts: Starts, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows [laws] that chains of so many steps may be held against, and where each row is
    among them [rows]."""
    ahead = torch.arange(steps, device=starts.rows.device)
    ahead = torch.minimum(ahead[None], starts.left[:, None] - 1)
    seen = torch.bincount((starts.rows[:, None] + ahead).flatten()).nonzero().flatten()
    places = torch.full((int(seen[-1]) + 1,), -1, dtype=torch.long, device=seen.device)
    places[seen] = torch.arange(len(seen), device=seen.device)
    return seen, places
