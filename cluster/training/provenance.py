"""Where a drafter comes from, beside its weights: enough to make it again, or to doubt it."""

from __future__ import annotations

import datetime
import hashlib
import json
import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from actors.training.run import Data, RunOptions
from actors.training.store import read_index

NAME = "provenance.json"


def provenance(
    options: RunOptions, data: Data, line: dict[str, Any], command: str, target: str
) -> dict[str, Any]:
    """line: the validation that the weights were chosen by. Paths of the machine stay out."""
    return {
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command,
        "mechanism": options.mechanism,
        "target": {
            "name": target,
            "shared_weights": data.parts.digest,
            "layers": data.parts.layers,
            "hidden": data.parts.hidden,
        },
        "versions": {name: _version(name) for name in ("pilotfish", "torch", "transformers")}
        | {"python": platform.python_version()},
        "seed": options.seed,
        "prompts": {"file": options.prompts.name, "sha256": _sha256(options.prompts)},
        "validation_prompts": {"file": options.valid.name, "sha256": _sha256(options.valid)},
        "answers": _answers(options.output / "answers"),
        "validation_answers": _answers(options.output / "validation"),
        "draft_vocabulary": {"tokens": len(data.draft_ids), "coverage": round(data.coverage, 4)},
        "training": {
            "options": asdict(options.loop),
            "shape": asdict(options.shape),
            "begun_from": options.init_from.name if options.init_from else None,
        },
        "validation": line,
    }


def write(folder: Path, facts: dict[str, Any]) -> None:
    (folder / NAME).write_text(json.dumps(facts, indent=2) + "\n", "utf-8")


def _answers(folder: Path) -> dict[str, Any]:
    shards = read_index(folder)
    digest = hashlib.sha256("".join(s.sha256 for s in shards).encode()).hexdigest()
    return {
        "shards": len(shards),
        "prompts": sum(len(s.names) for s in shards),
        "tokens": sum(s.answer_tokens for s in shards),
        "sha256": digest,
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "absent"
