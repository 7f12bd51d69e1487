"""What a finished cache folder says about itself, and whether it is still true.

The manifest is written last, into the folder that is then renamed into place: a folder without
one is unfinished. Like git's index it keeps size and modification time beside each digest, so
that the usual check costs a few `stat` calls and a touched file is hashed again.
"""

from __future__ import annotations

import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from cluster.models.catalogue import FORMAT, CatalogueEntry
from cluster.models.fetch import sha256_of

NAME = "pilotfish-manifest.json"
MAX_BYTES = 1 << 20


class FileRecord(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    bytes: int
    mtime_ns: int
    sha256: str


class Manifest(BaseModel):
    """Where the folder came from, with what it was made, and every file in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int
    model: str
    source: str
    wheel_sha256: str
    gguf_sha256: str
    licence: str
    made_with: dict[str, str]
    files: dict[str, FileRecord]


def describe(folder: Path, entry: CatalogueEntry, gguf_sha256: str) -> Manifest:
    """The manifest of a freshly converted folder."""
    return Manifest(
        format=FORMAT,
        model=entry.title,
        source=entry.requirement,
        wheel_sha256=entry.wheel_sha256,
        gguf_sha256=gguf_sha256,
        licence=entry.licence,
        made_with={name: _version(name) for name in ("torch", "transformers", "gguf")},
        files={file.name: _record(file) for file in sorted(folder.iterdir()) if file.name != NAME},
    )


def write(folder: Path, manifest: Manifest) -> None:
    """Atomic, so that a reader never sees half a manifest, whoever else writes one."""
    with tempfile.NamedTemporaryFile("w", dir=folder, encoding="utf-8", delete=False) as file:
        file.write(manifest.model_dump_json(indent=2) + "\n")
    temporary = Path(file.name)
    temporary.chmod(0o644)
    temporary.replace(folder / NAME)


def fault(folder: Path, entry: CatalogueEntry, *, thorough: bool = False) -> str | None:
    """Why the folder cannot be used, or None. `thorough` hashes every file.

    A file that was only touched is found true and its new time recorded.
    """
    try:
        raw = (folder / NAME).read_bytes()[:MAX_BYTES]
        manifest = Manifest.model_validate_json(raw)
    except FileNotFoundError:
        return "not there"
    except (OSError, ValidationError):
        return "its manifest is unreadable"
    if manifest.wheel_sha256 != entry.wheel_sha256 or manifest.format != FORMAT:
        return "made from another package"
    touched = False
    for name, record in manifest.files.items():
        found = _changed(folder / name, record, thorough)
        if found is not None:
            return found
        touched |= (folder / name).stat().st_mtime_ns != record.mtime_ns
    if touched:
        _refresh(folder, manifest)
    return None


def _changed(path: Path, record: FileRecord, thorough: bool) -> str | None:
    try:
        stat = path.stat()
    except OSError:
        return f"{path.name} is missing"
    if stat.st_size != record.bytes:
        return f"{path.name} has another size"
    if thorough or stat.st_mtime_ns != record.mtime_ns:
        try:
            digest = sha256_of(path)
        except OSError:
            return f"{path.name} is unreadable"
        if digest != record.sha256:
            return f"{path.name} has another sha256"
    return None


def _refresh(folder: Path, manifest: Manifest) -> None:
    files = {
        name: record.model_copy(update={"mtime_ns": (folder / name).stat().st_mtime_ns})
        for name, record in manifest.files.items()
    }
    try:
        write(folder, manifest.model_copy(update={"files": files}))
    except OSError:
        return  # a read-only cache is hashed again next time


def _record(path: Path) -> FileRecord:
    stat = path.stat()
    return FileRecord(bytes=stat.st_size, mtime_ns=stat.st_mtime_ns, sha256=sha256_of(path))


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "absent"
