"""Free memory is what is really there: the machine's, or less where a container says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.engine.errors import ModelLoadError
from actors.engine.memory import control_groups, free_memory, machine_memory


def put(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def make_v2(root: Path, group: str, limit: str, used: int, cache: int) -> None:
    files = {
        "memory.max": f"{limit}\n",
        "memory.current": f"{used}\n",
        "memory.stat": f"anon 1\ninactive_file {cache}\n",
    }
    put(root / "sys/fs/cgroup" / group.strip("/"), files)


def test_free_memory_is_read_from_this_machine() -> None:
    assert 2**20 < free_memory("cpu") <= machine_memory()


def test_the_kernels_own_estimate_counts_in_kibibytes(tmp_path: Path) -> None:
    put(tmp_path / "proc", {"meminfo": "MemTotal: 9 kB\nMemAvailable:   7 kB\n"})
    assert machine_memory(tmp_path) == 7 * 1024
    put(tmp_path / "proc", {"meminfo": "MemTotal: 9 kB\n"})
    with pytest.raises(ModelLoadError) as refusal:
        machine_memory(tmp_path)
    assert refusal.value.param == "kv_cache_memory_bytes"


def test_a_containers_limit_counts_what_it_could_drop_as_left(tmp_path: Path) -> None:
    put(tmp_path / "proc/self", {"cgroup": "0::/pod/box\n"})
    make_v2(tmp_path, "/pod/box", "1000", used=700, cache=100)
    make_v2(tmp_path, "/pod", "max", used=900, cache=0)
    assert control_groups(tmp_path) == [400]
    make_v2(tmp_path, "/pod", "950", used=900, cache=0)
    assert min(control_groups(tmp_path)) == 50


def test_a_group_that_is_mounted_as_the_root_is_found(tmp_path: Path) -> None:
    """A container with a namespace of its own sees neither its path nor its parents."""
    put(tmp_path / "proc/self", {"cgroup": "0::/../../pod/box\n"})
    make_v2(tmp_path, "", "1000", used=400, cache=0)
    assert control_groups(tmp_path) == [600]


def test_version_one_groups_are_read_where_they_are_mounted(tmp_path: Path) -> None:
    put(tmp_path / "proc/self", {"cgroup": "5:cpu,cpuacct:/box\n4:memory:/box\n"})
    put(
        tmp_path / "sys/fs/cgroup/memory/box",
        {
            "memory.limit_in_bytes": "800\n",
            "memory.usage_in_bytes": "500\n",
            "memory.stat": "cache 5\ntotal_inactive_file 50\n",
        },
    )
    assert control_groups(tmp_path) == [350]


def test_no_groups_are_no_limit(tmp_path: Path) -> None:
    assert control_groups(tmp_path) == []
    put(tmp_path / "proc/self", {"cgroup": "0::/\n"})
    assert control_groups(tmp_path) == []
