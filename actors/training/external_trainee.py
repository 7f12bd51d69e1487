"""An external draft model in training: a few layers of the target, taught the target's law at every
position of what it read and wrote (distillation, arXiv 1503.02531).

It reads tokens alone, so a whole text is one pass, and its draft at a position depends on nothing
that was drafted before but on the text: what it drafts in training is what it drafts when serving.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from actors.drafters.learned.target_parts import TargetParts
from actors.training.beginning import START
from actors.training.chain_rows import TEMPLATE
from actors.training.columns import by_frequency, choose_columns
from actors.training.cut import Cut, cut_module
from actors.training.errors import TrainingError
from actors.training.examples import Example
from actors.training.laws import TargetLaw
from actors.training.losses import LossWeights, RowTargets, StateLoss, head_loss
from actors.training.trainee import StepLoss


@dataclass(frozen=True, slots=True)
class ExternalTraining:
    """prompt_weight: of a position of a prompt beside one of an answer. columns: about so many of
    the head's are looked at in a step; 0 is all of them."""

    prompt_weight: float = 0.3
    columns: int = 4096
    terms: LossWeights = field(default_factory=lambda: LossWeights(ce=0.0, kl=1.0, tv=0.0))


class ExternalTrainee:
    """depth: drafts of a block when validated. taps: of the recorded features. draft_ids: the
    tokens that it may draft, all by default; it is taught the law of all."""

    mechanism = "external"

    def __init__(
        self,
        parts: TargetParts,
        cut: Cut,
        taps: Sequence[int],
        depth: int = 6,
        training: ExternalTraining | None = None,
        draft_ids: torch.Tensor | None = None,
    ) -> None:
        self.parts, self.cut, self.depth = parts, cut, depth
        self.training = training or ExternalTraining()
        self.module: nn.Module = cut_module(parts, cut)
        if cut.kept and cut.kept not in taps:
            raise TrainingError(f"hidden state {cut.kept} is not recorded", "cut")
        start = list(taps).index(cut.kept) * parts.hidden if cut.kept else 0
        self._columns = slice(start, start + parts.hidden)
        self._order = torch.arange(parts.vocab)
        ids = self._order if draft_ids is None else draft_ids
        self.draft_ids = ids.to(parts.head.device)
        self._state_loss = StateLoss(parts.head)
        with torch.no_grad():
            dict(self.module.named_parameters())["model.norm.weight"].mul_(START)

    def set_scale(self, scale: torch.Tensor) -> None:
        """Nothing: the layers know the target's states as they are."""

    def look_back(self, examples: Sequence[Example]) -> None:
        """The frequent tokens of `examples` are among the columns of every step from now on."""
        self._order = by_frequency(examples, self.parts.vocab)

    def loss(self, examples: Sequence[Example], rng: random.Random) -> StepLoss:
        """Of every position but those of the template."""
        training, hidden = self.training, self.parts.hidden
        weights = torch.cat([row_weights(e, training.prompt_weight) for e in examples])
        rows = weights.nonzero().flatten()
        weights = weights[rows]
        following = torch.cat([e.tokens[1:] for e in examples])[rows]
        law = self._law_of_step(following, rng)
        near = law.states(torch.cat([e.features[:, -hidden:] for e in examples])[rows])
        states = self.states(examples)[rows]
        own = torch.arange(len(rows))
        targets = RowTargets(law(near), own, law.places[following], weights)
        loss, _, right = head_loss(states, law.head, targets, training.terms)
        if training.terms.state:
            loss = loss + training.terms.state * self._state_loss(states, near, weights)
        top1 = (right.float() * (weights == 1)).sum() / (weights == 1).sum().clamp(min=1)
        return StepLoss(loss, len(rows), {"loss": float(loss.detach()), "top1": float(top1)})

    def states(self, examples: Sequence[Example]) -> torch.Tensor:
        """What the head reads, of all rows of the texts one after another, [rows, hidden]."""
        lengths = [e.length - 1 for e in examples]
        inputs = torch.cat([self._inputs(e) for e in examples])
        positions = torch.cat([torch.arange(n) for n in lengths])
        model: Any = self.module.model
        found: torch.Tensor = model(
            inputs_embeds=inputs[None],
            position_ids=positions[None],
            use_cache=False,
            lengths=lengths,
        ).last_hidden_state[0]
        return found

    def _inputs(self, example: Example) -> torch.Tensor:
        """What goes into the first layer that is trained."""
        if self.cut.kept:
            return example.features[:, self._columns].float()
        return self.parts.embedding[example.tokens[:-1]].float()

    def _law_of_step(self, tokens: torch.Tensor, rng: random.Random) -> TargetLaw:
        count = self.training.columns
        if not count:
            return TargetLaw.of(self.parts, torch.arange(self.parts.vocab))
        return TargetLaw.of(self.parts, choose_columns(tokens, self._order, count, rng))

    @torch.no_grad()
    def right(self, examples: Sequence[Example]) -> list[list[int]]:
        """Drafts after right ones are those after the text, and what follows a wrong one does not
        count: so one pass over the text tells the blocks at all positions."""
        out: list[list[int]] = []
        head = self.parts.head[self.draft_ids]
        for example in examples:
            states = self.states([example])[example.prompt_len :]
            drafts = self.draft_ids[(states @ head.T).argmax(-1)]
            agreed = drafts == example.tokens[example.prompt_len + 1 :]
            ahead = nn.functional.pad(agreed.int(), (0, self.depth - 1)).unfold(0, self.depth, 1)
            out.append(ahead.cumprod(-1).sum(-1).tolist())
        return out

    def export(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """The tensors that were trained."""
        return dict(self.module.named_parameters()), {"num_hidden_layers": len(self.cut.layers)}


def row_weights(example: Example, prompt_weight: float) -> torch.Tensor:
    """Of the rows 0 … T - 2 of a text; [T - 1]. What a chat template begins all of them with
    counts nothing."""
    weights = torch.zeros(example.length - 1)
    weights[TEMPLATE:] = prompt_weight
    weights[example.prompt_len :] = 1.0
    return weights
