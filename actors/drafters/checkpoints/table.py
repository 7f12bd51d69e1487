"""Public checkpoint formats. A new one is a module and a line here; the first that matches reads
(mechanisms: what is said outright in config.json comes first, then architectures, then what is
inside a target's own checkpoint)."""

from __future__ import annotations

import importlib
from typing import cast

from actors.drafters.checkpoints.files import Checkpoint, refusal
from actors.drafters.checkpoints.head import LoadedHead, Reader, TargetShape

READERS: tuple[str, ...] = (
    "block_speculators",
    "eagle3_speculators",
    "mtp_speculators",
    "known",
    "block_plain",
    "eagle3_plain",
    "mtp_target",
)


def reader_of(checkpoint: Checkpoint) -> Reader | None:
    """The module whose format this is."""
    for name in READERS:
        reader = cast(Reader, importlib.import_module(f"actors.drafters.checkpoints.{name}"))
        if reader.matches(checkpoint):
            return reader
    return None


def read_head(checkpoint: Checkpoint, target: TargetShape | None = None) -> LoadedHead:
    """Raises DrafterLoadError: no format matches, or the one that does refuses."""
    reader = reader_of(checkpoint)
    if reader is None:
        said = checkpoint.config.get("speculators_model_type") or checkpoint.architecture
        raise refusal(
            f"{checkpoint.folder}: {said or 'a checkpoint without architectures'} is no drafter "
            "that is known here"
        )
    return reader.read(checkpoint, target)
