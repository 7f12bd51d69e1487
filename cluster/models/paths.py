"""Where the cache lives."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def cache_root(environ: Mapping[str, str] | None = None) -> Path:
    """$PILOTFISH_CACHE, else $XDG_CACHE_HOME/pilotfish, else ~/.cache/pilotfish.

    A relative XDG_CACHE_HOME is ignored, as the XDG base directory specification asks.
    """
    environ = os.environ if environ is None else environ
    if own := environ.get("PILOTFISH_CACHE"):
        return Path(own).expanduser().absolute()
    xdg = environ.get("XDG_CACHE_HOME", "")
    base = Path(xdg) if os.path.isabs(xdg) else Path(environ.get("HOME") or Path.home()) / ".cache"
    return base / "pilotfish"


def models_folder(root: Path) -> Path:
    return root / "models"


def downloads_folder(root: Path) -> Path:
    return root / "downloads"
