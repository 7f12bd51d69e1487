"""How much memory is really there: of the device, of the machine, and of the container in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from actors.engine.errors import ModelLoadError

_V2 = ("memory.max", "memory.current", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def free_memory(device: str) -> int:
    """Bytes that could still be allocated on the device. On a CPU the least of what the machine
    has and what each control group around this process still allows."""
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    return min([machine_memory(), *control_groups()])


def machine_memory(root: Path = Path("/")) -> int:
    """Bytes the kernel can hand out without swapping."""
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise ModelLoadError("cannot read the free memory", param="kv_cache_memory_bytes")


def control_groups(root: Path = Path("/")) -> list[int]:
    """Bytes left in each control group with a limit, versions 1 and 2; the page cache that a group
    can drop counts as left. Source: Linux, Documentation/admin-guide/cgroup-v2.rst, "memory"."""
    try:
        own = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    left: list[int] = []
    for line in own:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            left += _along(root / "sys/fs/cgroup", path, *_V2)
        elif "memory" in controllers.split(","):
            left += _along(root / "sys/fs/cgroup/memory", path, *_V1)
    return left


def _along(mount: Path, path: str, limit: str, usage: str, cache: str) -> Iterator[int]:
    """Of the group and those it lies in. A container often sees its own group as the mount."""
    group = mount.joinpath(*(part for part in path.split("/") if part not in ("", "..")))
    for folder in [group, *group.parents]:
        try:
            most = (folder / limit).read_text().strip()
            if most != "max":
                used = int((folder / usage).read_text())
                yield max(0, int(most) - used + _statistic(folder, cache))
        except OSError:
            pass  # not visible from inside the container
        if folder == mount:
            return


def _statistic(folder: Path, name: str) -> int:
    for line in (folder / "memory.stat").read_text().splitlines():
        key, value = line.split()
        if key == name:
            return int(value)
    return 0
