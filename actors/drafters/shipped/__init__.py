"""Drafters that come with the project, each in a folder TARGET-MECHANISM of public format with its
`provenance.json`. A target is known by the digest of its embedding and head, whatever it is called
and wherever it lies."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import torch

from actors.drafters.errors import DrafterLoadError, refusal

FOLDER = Path(__file__).parent
PROVENANCE = "provenance.json"
METHODS = {"external": "draft_model"}
"""What serves a mechanism, where that has another name."""


@cache
def catalogue(folder: Path = FOLDER) -> dict[tuple[str, str], Path]:
    """(method, target's digest) -> the drafter's folder. Raises DrafterLoadError for a folder
    whose provenance cannot be read."""
    found: dict[tuple[str, str], Path] = {}
    for path in sorted(folder.glob(f"*/{PROVENANCE}")):
        try:
            facts = json.loads(path.read_text("utf-8"))
            method = METHODS.get(facts["mechanism"], facts["mechanism"])
            found[method, facts["target"]["shared_weights"]] = path.parent
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise refusal(f"{path} is damaged: {error}") from error
    return found


def shipped(method: str, target: Path) -> Path | None:
    """The folder of the drafter for the target in that folder; None when none is shipped."""
    held = catalogue()
    if not any(name == method for name, _ in held):
        return None
    from actors.drafters.learned.target_parts import target_parts

    try:
        digest = target_parts(target, torch.bfloat16).digest
    except DrafterLoadError:
        return None  # no learned drafter fits it, and whoever loads one says why
    return held.get((method, digest))
