"""A drafter's folder: config.json and safetensors, opened without reading weights.

Pickled weights are code and are never opened. Everything that is wrong with a folder is a
DrafterLoadError that names the file, with `param` "model".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from actors.drafters.errors import refusal as refusal

CONFIG_BYTES = 4 << 20
INDEX_BYTES = 64 << 20
TENSORS = 500_000
"""More is no drafter, nor a target with one inside."""

_INDEX = "model.safetensors.index.json"
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """shapes: of every tensor, by the name it has in the file. files: the file each is in."""

    folder: Path
    config: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    files: Mapping[str, str]

    def tensor(self, name: str) -> torch.Tensor:
        """As stored, on the CPU. Raises DrafterLoadError: missing, unreadable, NaN or infinite."""
        if name not in self.files:
            raise refusal(f"{self.folder} has no tensor {name}")
        try:
            with safe_open(self.folder / self.files[name], framework="pt") as opened:
                tensor: torch.Tensor = opened.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise refusal(f"cannot read {name} of {self.files[name]}: {error}") from error
        if tensor.is_floating_point() and not torch.isfinite(tensor.float()).all():
            raise refusal(f"{name} of {self.files[name]} has NaN or infinite values")
        return tensor

    @property
    def architecture(self) -> str:
        """The first of config.json's `architectures`, or ""."""
        names = self.config.get("architectures")
        return str(names[0]) if isinstance(names, list) and names else ""


def open_checkpoint(folder: str | Path) -> Checkpoint:
    """Raises DrafterLoadError."""
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise refusal(f"{path}: no such folder")
    files = _weight_files(path)
    config = read_json(path / "config.json", CONFIG_BYTES)
    shapes: dict[str, tuple[int, ...]] = {}
    where: dict[str, str] = {}
    for file in files:
        for name, shape in _shapes(path / file).items():
            if name in where:
                raise refusal(f"{path}: {name} is both in {where[name]} and in {file}")
            shapes[name], where[name] = shape, file
        if len(where) > TENSORS:
            raise refusal(f"{path}: more than {TENSORS} tensors")
    return Checkpoint(path, config, shapes, where)


def read_json(path: Path, most_bytes: int) -> dict[str, Any]:
    """One JSON object of at most so many bytes. Raises DrafterLoadError."""
    try:
        size = path.stat().st_size
        if size > most_bytes:
            raise refusal(f"{path} has {size} bytes, more than {most_bytes}")
        value = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise refusal(f"{path.parent} has no {path.name}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise refusal(f"cannot read {path}: {error}") from error
    if not isinstance(value, dict):
        raise refusal(f"{path} is not a JSON object")
    return value


def _weight_files(folder: Path) -> list[str]:
    """Names of the safetensors files; those of the index where there is one."""
    if (folder / _INDEX).exists():
        weight_map = read_json(folder / _INDEX, INDEX_BYTES).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise refusal(f"{folder / _INDEX} has no weight_map")
        files = sorted({str(file) for file in weight_map.values()})
        strange = [file for file in files if Path(file).name != file]
        missing = [file for file in files if not strange and not (folder / file).is_file()]
        if strange or missing:
            raise refusal(
                f"{folder}: the index names {(strange or missing)[0]}, which is not there"
            )
        return files
    files = sorted(file.name for file in folder.glob("*.safetensors"))
    if files:
        return files
    pickled = sorted(f.name for f in folder.iterdir() if f.suffix in _PICKLED)
    if not pickled:
        raise refusal(f"{folder} has no *.safetensors")
    raise refusal(
        f"{folder} has its weights in {pickled[0]}, a pickle, which can run code when it is "
        "opened. If you trust where it comes from, convert it once: "
        'python -c "import torch, safetensors.torch as s; '
        f"w = torch.load('{pickled[0]}', map_location='cpu', weights_only=True); "
        "s.save_file({k: v.contiguous().clone() for k, v in w.items()}, 'model.safetensors')\""
    )


def _shapes(file: Path) -> dict[str, tuple[int, ...]]:
    try:
        with safe_open(file, framework="pt") as opened:
            return {n: tuple(opened.get_slice(n).get_shape()) for n in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise refusal(f"cannot read {file}: {error}; it may be cut off") from error
