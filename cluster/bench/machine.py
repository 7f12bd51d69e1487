"""What a figure was taken on: without it no two records can be compared."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cluster.serving_local import usable_cores

PACKAGES = ("pilotfish", "torch", "transformers", "ray", "grpcio", "numpy")


@dataclass(frozen=True, slots=True)
class Machine:
    """cores: those this process may use. memory_gib: of the machine, whole GiB."""

    cpu: str
    cores: int
    memory_gib: int
    gpus: tuple[str, ...]
    system: str

    def like(self, other: Machine) -> bool:
        """Whether absolute figures of one say anything about the other."""
        mine = (self.cpu, self.cores, self.gpus)
        return mine == (other.cpu, other.cores, other.gpus)

    @property
    def title(self) -> str:
        gpus = f", {', '.join(self.gpus)}" if self.gpus else ""
        return f"{self.cpu}, {self.cores} cores, {self.memory_gib} GiB{gpus}"


def this_machine() -> Machine:
    return Machine(_cpu(), usable_cores(), _memory_gib(), _gpus(), platform.platform(terse=True))


def versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # run from a source tree that was never installed
            found[name] = "not installed"
    return found


def _cpu() -> str:
    """The processor's name and, as some hosts hide it, its family and model."""
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return platform.processor() or platform.machine()
    fields: dict[str, str] = {}
    for line in info.read_text().splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    name = fields.get("model name", platform.machine())
    family, model = fields.get("cpu family"), fields.get("model")
    return f"{name} (family {family}, model {model})" if family and model else name


def _memory_gib() -> int:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    except (AttributeError, ValueError, OSError):
        return 0


def _gpus() -> tuple[str, ...]:
    """Names by the driver's own tool, so that looking for none does not load a framework."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    command = [tool, "--query-gpu=name", "--format=csv,noheader"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(line.strip() for line in listed.stdout.splitlines() if listed.returncode == 0)
