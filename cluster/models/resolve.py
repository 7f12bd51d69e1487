"""From what the user wrote after `serve` to something transformers can load."""

from __future__ import annotations

import re
from pathlib import Path

from cluster.models.catalogue import CATALOGUE, unknown
from cluster.models.errors import ModelStoreError, UnknownModel
from cluster.models.progress import PullProgress
from cluster.models.pull import pull

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)


def resolve(
    name: str, revision: str | None = None, progress: PullProgress | None = None
) -> Path | str:
    """A catalogue name becomes its cached folder (pulled on demand), a folder itself, and
    anything shaped owner/name goes through as a Hugging Face id.

    A catalogue name wins over a folder of that name in the working directory: `./smollm2` says
    the folder. Raises UnknownModel, or another ModelStoreError from a pull.
    """
    if name in CATALOGUE:
        _refuse_revision(name, revision)
        return pull(name, progress=progress)
    folder = Path(name).expanduser()
    if folder.is_dir():
        _refuse_revision(name, revision)
        if not (folder / "config.json").is_file() and not any(folder.glob("*.gguf")):
            raise UnknownModel(f"{name}: the folder has neither config.json nor a GGUF file", name)
        return folder.absolute()
    if _HUB_ID.fullmatch(name):
        return name
    if "/" in name or name.startswith(("~", ".")):
        raise UnknownModel(f"{name}: no such folder", name)
    raise unknown(name)


def _refuse_revision(name: str, revision: str | None) -> None:
    if revision is not None:
        raise ModelStoreError(
            f"revision {revision!r}: only a Hugging Face id has revisions, not {name}"
        )
