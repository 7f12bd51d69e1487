"""What every reader makes of a checkpoint, whoever wrote it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from actors.drafters.checkpoints.files import Checkpoint


@dataclass(frozen=True, slots=True)
class TargetShape:
    """What a reader may know of the target. layers: decoder layers; vocab: rows of its head."""

    hidden: int
    layers: int
    vocab: int


@dataclass(frozen=True, slots=True)
class LoadedHead:
    """A drafter's weights under canonical names, and all that is needed to run them.

    mechanism: the method that runs it. producer: who writes such files, for people. spec: the
    mechanism's own (for "dflash" and "dspark" a `BlockHeadSpec`). tensors: names as in the
    mechanism's nn.Module; `embed_tokens.weight` and `lm_head.weight` only where the checkpoint
    has its own.
    taps: indices into transformers' hidden_states, pre-norm. taps_from: the key they were read
    from and its convention, for people.
    draft_ids: target ids of a reduced vocabulary, int64 [draft vocabulary], distinct; None is
    the target's own.
    target_hidden: the width of one tap. vocab: the target's vocabulary as the checkpoint knows
    it, 0 unknown. target_layers: the same, of its decoder layers. target_name: which model it
    says it is for, "" unsaid.
    notes: what a person should know, one sentence each.
    """

    mechanism: str
    producer: str
    spec: Any
    tensors: dict[str, torch.Tensor]
    taps: tuple[int, ...]
    taps_from: str
    target_hidden: int
    draft_ids: torch.Tensor | None = None
    vocab: int = 0
    target_layers: int = 0
    target_name: str = ""
    notes: tuple[str, ...] = field(default=())


class Reader(Protocol):
    """A module: one public format."""

    def matches(self, checkpoint: Checkpoint) -> bool:
        """Whether it is this format's; looks at config.json and names alone, never raises."""
        ...

    def read(self, checkpoint: Checkpoint, target: TargetShape | None) -> LoadedHead:
        """Raises DrafterLoadError. target: None where nobody knows it yet (`inspect`)."""
        ...
