"""A profile is kept beside the compiled executor, so that a restart knows its costs at once.

One JSON file for each kind of engine: whatever decides about a forward's time is in its name and
once more inside. The figures are where estimates begin; live steps correct them, so an old file
costs a few steps and never a wrong answer. One forward at each start says whether it still holds:
it may have been measured while the machine was busy, or the machine may be busy now. What does not
hold, is damaged or of another kind is said and measured anew.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from actors.engine.profile_kind import Kind
from policies.estimate_cost import Sample

logger = logging.getLogger(__name__)

FORMAT = 2
HOLDS = 1.5
"""A forward takes at most so many times what was kept, and no less than the same part of it."""
MOST_SAMPLES = 256
MOST_BYTES = 1 << 16


def kept(
    folder: str,
    kind: Kind,
    measure: Callable[[], list[Sample]],
    look: Callable[[], Sample] | None = None,
) -> list[Sample]:
    """The samples of such an engine, from the folder, or measured and put there. look: one of them
    measured now; None believes nothing that was kept. Without a folder (empty) they are measured.
    """
    if not folder:
        return measure()
    path = place(folder, kind)
    if look is not None and (known := read(path, kind)) is not None:
        now = look()
        if holds(known, now):
            logger.info("costs as %s has them", path)
            return known
        logger.info("%s does not hold (a row takes %.4f s now): measured anew", path, now.seconds)
    samples = measure()
    write(path, kind, samples)
    return samples


def holds(known: list[Sample], now: Sample) -> bool:
    """Whether a forward that was looked at now takes what it took then."""
    then_s = [
        sample.seconds
        for sample in known
        if (sample.rows, sample.sequences, sample.context) == (now.rows, now.sequences, now.context)
    ]
    return bool(then_s) and 1.0 / HOLDS <= now.seconds / then_s[0] <= HOLDS


def place(folder: str, kind: Kind) -> Path:
    """Where its profile lies, or will."""
    digest = hashlib.sha256(json.dumps(asdict(kind), sort_keys=True).encode()).hexdigest()
    return Path(folder) / f"profile-{digest[:32]}.json"


def read(path: Path, kind: Kind) -> list[Sample] | None:
    """None where there is none, or none that can be used."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        logger.warning("the profile cannot be read: %s", error)
        return None
    try:
        return _samples(text, kind)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        logger.warning("%s is not used, costs are measured anew: %s", path, error)
        return None


def _samples(text: bytes, kind: Kind) -> list[Sample]:
    """Raises ValueError, TypeError or KeyError."""
    if len(text) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    said = json.loads(text)
    if said["format"] != FORMAT or said["kind"] != asdict(kind):
        raise ValueError("it is of another kind of engine")
    samples = [_sample(**one) for one in said["samples"]]
    if not 0 < len(samples) <= MOST_SAMPLES:
        raise ValueError(f"it has {len(samples)} samples")
    return samples


def _sample(rows: int, seconds: float, sequences: int, context: int) -> Sample:
    """Raises ValueError or TypeError."""
    whole = all(type(number) is int for number in (rows, sequences, context))
    if not whole or not 0 < sequences <= rows or context < 0:
        raise ValueError(f"{rows} rows of {sequences} sequences over {context} tokens")
    if not math.isfinite(seconds) or seconds <= 0.0:
        raise ValueError(f"{seconds} seconds")
    return Sample(rows, float(seconds), sequences, context)


def write(path: Path, kind: Kind, samples: list[Sample]) -> None:
    """Whole or not at all; a folder that cannot be written costs the next start its profile."""
    said = {"format": FORMAT, "kind": asdict(kind), "samples": [asdict(s) for s in samples]}
    fresh = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=".profile-", delete=False, encoding="utf-8"
        ) as file:
            fresh = file.name
            json.dump(said, file, allow_nan=False)
        os.replace(fresh, path)
    except (OSError, ValueError) as error:
        logger.warning("the profile is not kept: %s", error)
        if fresh:
            Path(fresh).unlink(missing_ok=True)
