"""From a configuration to a learned drafter's head and the target's parts, checked against each
other before any session."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from actors.drafters.checkpoints.files import open_checkpoint
from actors.drafters.checkpoints.fit import misfits, rope_note, tokenizer_misfit
from actors.drafters.checkpoints.head import LoadedHead, TargetShape
from actors.drafters.checkpoints.locate import drafter_folder, target_folder
from actors.drafters.checkpoints.table import read_head
from actors.drafters.config import DrafterConfig
from actors.drafters.errors import refusal
from actors.drafters.learned.placing import weight_dtype
from actors.drafters.learned.spec import LayerSpec
from actors.drafters.learned.target_parts import TargetParts, target_config, target_parts

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """name: for people and revisions."""

    head: LoadedHead
    parts: TargetParts
    name: str


def find(config: DrafterConfig, mechanism: str) -> Found:
    """Raises DrafterLoadError: no such folder, not this mechanism's, not for this target."""
    parts = target_parts(target_folder(config), weight_dtype(config), config.device)
    shape = TargetShape(parts.hidden, parts.layers, parts.vocab)
    folder, head = _read(config, mechanism, shape)
    if note := rope_note(head, parts.config):
        logger.warning("%s: %s", folder, note)
    return Found(head, parts, folder.name)


def feature_taps(config: DrafterConfig) -> tuple[int, ...]:
    """What a verifier must tap for the drafters of this configuration, wherever they run; empty
    for methods that need no features. Raises DrafterLoadError, as `find` would on the drafter."""
    from actors.drafters.table import LEARNED

    if config.method not in LEARNED:
        return ()
    return _read(config, config.method, target_shape(target_folder(config)))[1].taps


def target_shape(folder: Path) -> TargetShape:
    """From config.json alone. Raises DrafterLoadError."""
    config = target_config(folder)
    try:
        return TargetShape(
            int(config["hidden_size"]), int(config["num_hidden_layers"]), int(config["vocab_size"])
        )
    except (KeyError, TypeError, ValueError) as error:
        raise refusal(f"the target's config.json in {folder} has no usable {error}") from error


def _read(config: DrafterConfig, mechanism: str, shape: TargetShape) -> tuple[Path, LoadedHead]:
    folder = drafter_folder(config)
    head = read_head(open_checkpoint(folder), shape)
    if head.mechanism != mechanism:
        raise refusal(
            f"{folder} is a {head.mechanism} drafter ({head.producer}); "
            f'write "method": "{head.mechanism}"'
        )
    other = tokenizer_misfit(folder, Path(config.target_tokenizer or config.target))
    if reasons := [*misfits(head, shape), *([other] if other else [])]:
        raise refusal(f"{folder} does not fit the target: {'; '.join(reasons)}")
    return folder, head


def context_of(layer: LayerSpec, config: DrafterConfig) -> int:
    """Positions that drafter and server both have; 0 when neither has a bound."""
    return min(filter(None, (layer.max_context, config.max_context)), default=0)
