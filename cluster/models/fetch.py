"""A resumable download of a file whose size and digest are known beforehand."""

from __future__ import annotations

import hashlib
import os
import shutil
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx

from cluster.models.errors import DigestMismatch, FetchFailed

TIMEOUT = httpx.Timeout(30.0, connect=15.0)
RETRYABLE = frozenset({408, 425, 429, 500, 502, 503, 504})

OnBytes = Callable[[int, int], None]


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(
    url: str,
    part: Path,
    *,
    size: int,
    sha256: str,
    on_bytes: OnBytes = lambda done, total: None,
    stalls: int = 4,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Fill `part` from `url` (http, https, file) until it is the file of that size and digest.

    Bytes already in `part` are kept and only the rest is asked for. Gives up after `stalls`
    attempts in a row that brought nothing; the part stays for the next call. Raises FetchFailed
    or DigestMismatch (then the part is gone).
    """
    resumed = part.exists()
    _fill(url, part, size, on_bytes, stalls, sleep)
    if sha256_of(part) == sha256:
        return
    part.unlink()
    if resumed:
        # The old part may have been damaged on disk; what the server sends is judged alone.
        fetch(url, part, size=size, sha256=sha256, on_bytes=on_bytes, stalls=stalls, sleep=sleep)
        return
    raise DigestMismatch(f"{_shown(url)}: the bytes do not have the pinned sha256 {sha256[:12]}…")


def _fill(
    url: str,
    part: Path,
    size: int,
    on_bytes: OnBytes,
    stalls: int,
    sleep: Callable[[float], None],
) -> None:
    if urlsplit(url).scheme == "file":
        _copy(url, part, size, on_bytes)
        return
    stalled = 0
    while (have := _length(part)) != size:
        if have > size:
            part.unlink()
        try:
            reason = _continue(url, part, size, on_bytes)
        except (httpx.TransportError, httpx.StreamError) as error:
            reason = f"{type(error).__name__} {error}".strip()
        stalled = 0 if _length(part) > have else stalled + 1
        if stalled >= stalls:
            raise FetchFailed(f"{_shown(url)}: {reason} ({have} of {size} bytes so far)")
        if stalled:
            sleep(min(0.25 * 2**stalled, 4.0))


def _continue(url: str, part: Path, size: int, on_bytes: OnBytes) -> str:
    """One request for what is missing. Returns why it may have ended early; a refusal that no
    repetition can change raises FetchFailed."""
    have = _length(part)
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with httpx.stream(
        "GET", url, headers=headers, follow_redirects=True, timeout=TIMEOUT, verify=_trust()
    ) as answer:
        if answer.status_code == 416:
            part.unlink(missing_ok=True)
            return "the server refuses the range"
        if answer.status_code in RETRYABLE:
            return f"HTTP {answer.status_code}"
        if answer.status_code not in (200, 206):
            raise FetchFailed(f"{_shown(url)}: HTTP {answer.status_code}")
        fits = answer.headers.get("content-range", "").startswith(f"bytes {have}-")
        resume = answer.status_code == 206 and fits
        done = have if resume else 0
        with part.open("ab" if resume else "wb") as file:
            for chunk in answer.iter_raw():
                done += len(chunk)
                if done > size:
                    raise FetchFailed(f"{_shown(url)}: more than the expected {size} bytes")
                file.write(chunk)
                on_bytes(done, size)
    return "the connection ended early"


def _copy(url: str, part: Path, size: int, on_bytes: OnBytes) -> None:
    source = Path(unquote(urlsplit(url).path))
    try:
        if source.stat().st_size != size:
            raise FetchFailed(f"{source}: not the expected {size} bytes")
        shutil.copyfile(source, part)
    except OSError as error:
        raise FetchFailed(f"{source}: {error.strerror}") from error
    on_bytes(size, size)


def _length(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _trust() -> ssl.SSLContext | bool:
    """pip's certificate bundle where one is named, else httpx's own choice."""
    named = os.environ.get("PIP_CERT", "")
    return ssl.create_default_context(cafile=named) if Path(named).is_file() else True


def _shown(url: str) -> str:
    """Host and file name only: credentials and signed queries stay out of messages."""
    parts = urlsplit(url)
    return f"{parts.hostname or ''}/…/{parts.path.rsplit('/', 1)[-1]}"
