"""Whether the generated stubs belong to the protos, without a generator and without network.

`pilotfish/v1/protos.sha256` has one line a file, sources and stubs alike, so that a proto that
was edited without `make protos` and a stub that was edited by hand both show.

    python infra/protos/stamp.py           write it (make protos does)
    python infra/protos/stamp.py --check   exit status 1, and which files, when it does not fit
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STAMP = Path("pilotfish/v1/protos.sha256")
PATTERNS = (
    "protos/pilotfish/v1/*.proto",
    "pilotfish/v1/*_pb2.py",
    "pilotfish/v1/*_pb2.pyi",
    "pilotfish/v1/*_pb2_grpc.py",
)


def digests(root: Path) -> dict[str, str]:
    """sha256 by path, of every proto and every stub."""
    files = sorted(file for pattern in PATTERNS for file in root.glob(pattern))
    return {
        file.relative_to(root).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }


def faults(root: Path) -> list[str]:
    """Paths that were changed, added or removed since the stubs were generated."""
    if not (root / STAMP).is_file():
        return [STAMP.as_posix()]
    lines = (root / STAMP).read_text(encoding="utf-8").splitlines()
    written = {path: digest for digest, _, path in (line.partition("  ") for line in lines)}
    found = digests(root)
    paths = sorted(written.keys() | found.keys())
    return [path for path in paths if written.get(path) != found.get(path)]


def main(arguments: list[str], root: Path = ROOT) -> int:
    if arguments == ["--check"]:
        wrong = faults(root)
        for path in wrong:
            print(f"{path}: not as generated; run `make protos`", file=sys.stderr)
        return 1 if wrong else 0
    text = "".join(f"{digest}  {path}\n" for path, digest in digests(root).items())
    (root / STAMP).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
