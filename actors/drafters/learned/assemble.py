"""A learned drafter's parts, loaded and placed: what every mechanism of them begins with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from actors.drafters.checkpoints.head import LoadedHead
from actors.drafters.config import DrafterConfig
from actors.drafters.learned.ends import Ends, make_ends
from actors.drafters.learned.load import find
from actors.drafters.learned.placing import place
from actors.drafters.learned.target_parts import TargetParts
from actors.drafters.learned.words import Words

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True, slots=True)
class Assembled(Generic[M]):
    """dtype: of activations. name: for people and revisions. threads: for torch's operations."""

    head: LoadedHead
    model: M
    ends: Ends
    words: Words
    dtype: torch.dtype
    name: str
    threads: int | None


def assemble(
    config: DrafterConfig,
    mechanism: str,
    make: Callable[[Any], M],
    lent: Callable[[TargetParts], dict[str, torch.Tensor]] = lambda parts: {},
) -> Assembled[M]:
    """The checkpoint of `config` with weights where they compute. make: the module of a head's
    spec. lent: its tensors that are the target's own. Raises DrafterLoadError."""
    found = find(config, mechanism)
    head, parts = found.head, found.parts
    model, from_target = make(head.spec), lent(parts)
    own = {name: head.tensors[name] for name in model.state_dict() if name not in from_target}
    model.load_state_dict({**own, **from_target}, assign=True)
    ends = make_ends(head.tensors, parts, head.draft_ids)
    dtype, threads = place(nn.ModuleList((model, ends)), config)
    words = Words(parts.vocab, head.draft_ids, parts.end_tokens)
    return Assembled(head, model, ends, words, dtype, found.name, threads)
