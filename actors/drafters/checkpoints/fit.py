"""Whether a drafter was made for a target, and why not. What is found here would otherwise show as
an acceptance near zero, or as a crash in the middle of a request."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from actors.drafters.checkpoints.head import LoadedHead, TargetShape
from actors.drafters.checkpoints.shape import rope_of
from actors.drafters.errors import DrafterLoadError
from actors.exchange.compat import read_vocabulary


def misfits(head: LoadedHead, target: TargetShape) -> list[str]:
    """Reasons, one sentence each; empty when it fits."""
    found: list[str] = []
    if head.target_hidden != target.hidden:
        found.append(
            f"it reads hidden states of width {head.target_hidden}, the target's are "
            f"{target.hidden} wide"
        )
    outside = [tap for tap in head.taps if not 0 <= tap <= target.layers]
    if outside:
        found.append(
            f"it reads hidden state {outside[0]} ({head.taps_from}), the target has layers 1 to "
            f"{target.layers}"
        )
    if head.target_layers and head.target_layers != target.layers:
        found.append(
            f"it is for a target of {head.target_layers} layers, this one has {target.layers}"
        )
    if head.vocab and head.vocab != target.vocab:
        found.append(f"its vocabulary has {head.vocab} ids, the target's {target.vocab}")
    if head.draft_ids is not None and int(head.draft_ids.max()) >= target.vocab:
        found.append(
            f"it drafts token {int(head.draft_ids.max())}, the target knows {target.vocab}"
        )
    return found


def rope_note(head: LoadedHead, target: Mapping[str, Any]) -> str:
    """Where a drafter turns positions by another rule than its target, of that config; "" where
    it does not. No reason to refuse, since the rule is the drafter's own; but one that a conversion
    has lost shows nowhere else than in acceptance that falls with the position (pitfalls S37)."""
    layer = getattr(getattr(head.spec, "block", head.spec), "layer", None)
    if layer is None or getattr(head.spec, "body", None) is not None:
        return ""  # a body of transformers' own has the config it is from
    try:
        theirs = rope_of(target)
    except DrafterLoadError:
        return ""  # one rule for each type of attention: none of them is the target's
    ours = dict(layer.rope)
    if ours == theirs:
        return ""
    return (
        f"it turns positions by {ours}, the target by {theirs}; if acceptance falls with the "
        "position, its config.json has lost its rule"
    )


def tokenizer_misfit(drafter: Path, target: Path) -> str:
    """Where both folders have a `tokenizer.json`: the first id that means something else in each
    (pitfalls S34); empty where none does, or nothing can be compared."""
    ours, theirs = _tokens(drafter), _tokens(target)
    for index in sorted(ours.keys() & theirs.keys()):
        if ours[index] != theirs[index]:
            return (
                f"token id {index} is {theirs[index]!r} in the target's vocabulary and "
                f"{ours[index]!r} in the drafter's"
            )
    return ""


def _tokens(folder: Path) -> dict[int, str]:
    try:
        return {index: token for token, index in read_vocabulary(folder).items()}
    except (OSError, ValueError):
        return {}
