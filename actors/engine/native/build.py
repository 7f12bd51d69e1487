"""Compiling the executor: in seconds, once per machine and version, in a process of low priority.

The library is cached under a fingerprint of the sources, the compiler, its flags and the CPU, so
that nothing stale or foreign is ever loaded; a build that two processes start at once ends in one
file, moved into place whole.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path

from actors.engine.errors import EngineError
from actors.engine.native.library import Library

SOURCES = Path(__file__).parent / "src"
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-std=c++17", "-fPIC", "-shared", "-pthread")
COMPILERS = ("c++", "g++", "clang++")
TIMEOUT_S = 300.0
NICENESS = 10


class BuildError(EngineError):
    """The executor cannot be compiled here; the message says why."""


def find_compiler(environ: Mapping[str, str] = os.environ) -> str:
    """$CXX (a program, without arguments), else the first C++ compiler on the path; empty when
    there is none."""
    names = (environ["CXX"],) if environ.get("CXX") else COMPILERS
    return next((found for name in names if (found := shutil.which(name))), "")


def fingerprint(compiler: str) -> str:
    """Digest of everything that decides about the library's code."""
    version = subprocess.run([compiler, "--version"], capture_output=True, timeout=30, check=False)
    digest = hashlib.sha256()
    for part in (version.stdout, " ".join(FLAGS).encode(), _cpu().encode()):
        digest.update(len(part).to_bytes(8, "little") + part)
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:32]


def _cpu() -> str:
    """What -march=native looks at."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    wanted = ("model name", "flags", "Features")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def cached(folder: Path, compiler: str) -> Path:
    """Where the library lies, or will."""
    return folder / f"executor-{fingerprint(compiler)}.so"


def build(folder: Path, compiler: str = "") -> Path:
    """The library's path, compiled if it is not there. Raises BuildError."""
    compiler = compiler or find_compiler()
    if not compiler:
        raise BuildError("there is no C++ compiler (install g++ or clang++, or set CXX)")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = cached(folder, compiler)
        _trust(folder)
        if path.exists():
            _trust(path)
            return path
        with tempfile.TemporaryDirectory(dir=folder) as work:
            fresh = Path(work) / path.name
            _compile(compiler, fresh)
            with fresh.open("rb") as written:
                os.fsync(written.fileno())
            os.replace(fresh, path)
    except (OSError, subprocess.SubprocessError) as error:
        raise BuildError(f"the executor cannot be built: {error}") from error
    return path


def _trust(path: Path) -> None:
    """Code is loaded only from where nobody else can have put it. Raises BuildError."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode) or status.st_uid not in (0, os.geteuid()):
        raise BuildError(f"{path} is a link or somebody else's")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BuildError(f"{path} can be written by others (chmod go-w {path})")


def _compile(compiler: str, output: Path) -> None:
    units = [str(path) for path in sorted(SOURCES.glob("*.cpp"))]
    command = [compiler, *FLAGS, *units, "-o", str(output)]
    if nice := shutil.which("nice"):
        command = [nice, "-n", str(NICENESS), *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        tail = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise BuildError(f"{compiler} ended with {done.returncode}:\n{tail}")


def load(folder: Path, compiler: str = "") -> Library:
    """Build if need be and load. Raises BuildError."""
    path = build(folder, compiler)
    try:
        return Library(path)
    except OSError as error:
        raise BuildError(f"{path} cannot be loaded: {error}") from error


def load_in_background(folder: str) -> Future[Library]:
    """`load` on a thread of its own, so that the model is read meanwhile. Without a folder the
    library is built for this process alone."""
    future: Future[Library] = Future()

    def work() -> None:
        try:
            if folder:
                future.set_result(load(Path(folder)))
                return
            with tempfile.TemporaryDirectory(prefix="pilotfish-") as own:
                future.set_result(load(Path(own)))  # once loaded, the file is not needed
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name="pilotfish-build", daemon=True).start()
    return future
