"""What a drafter shares with its target, read by name from the target's safetensors: the input
embedding, the output head, the final norm. Nothing else of the target is loaded."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from actors.drafters.errors import DrafterLoadError

EMBEDDING = ("model.embed_tokens.weight", "model.language_model.embed_tokens.weight")
HEAD = ("lm_head.weight",)
NORM = ("model.norm.weight", "model.language_model.norm.weight")


@dataclass(frozen=True, slots=True)
class TargetParts:
    """embedding, head: [vocab, hidden], the same tensor when the target ties them. norm:
    [hidden]. config: the text model's config.json. digest: of the embedding's and head's bytes.
    end_tokens: EOS ids. folder: the target's."""

    embedding: torch.Tensor
    head: torch.Tensor
    norm: torch.Tensor
    config: dict[str, Any]
    digest: str
    end_tokens: frozenset[int] = frozenset()
    folder: Path = Path()

    @property
    def hidden(self) -> int:
        return int(self.embedding.shape[1])

    @property
    def vocab(self) -> int:
        return int(self.head.shape[0])

    @property
    def layers(self) -> int:
        return int(self.config["num_hidden_layers"])


def target_config(folder: Path) -> dict[str, Any]:
    """The text model's part of config.json. Raises DrafterLoadError."""
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DrafterLoadError(f"cannot read the target's config in {folder}: {error}") from error
    text: dict[str, Any] = config.get("text_config", config)
    return text


def target_parts(folder: str | Path, dtype: torch.dtype, device: str = "cpu") -> TargetParts:
    """Raises DrafterLoadError when the folder is not a target's, or lacks one of them."""
    path = Path(folder)
    config = target_config(path)
    embedding = _tensor(path, EMBEDDING)
    if embedding is None:
        raise DrafterLoadError(f"the target in {path} has none of {', '.join(EMBEDDING)}")
    head = None if config.get("tie_word_embeddings") else _tensor(path, HEAD)
    norm = _tensor(path, NORM)
    if norm is None:
        raise DrafterLoadError(f"the target in {path} has none of {', '.join(NORM)}")
    digest = hashlib.sha256(_bytes(embedding))
    if head is not None:
        digest.update(_bytes(head))
    embedding_ = embedding.to(device, dtype)
    return TargetParts(
        embedding_,
        embedding_ if head is None else head.to(device, dtype),
        norm.to(device, dtype),
        config,
        digest.hexdigest()[:32],
        _end_tokens(path, config),
        path,
    )


def _end_tokens(folder: Path, config: dict[str, Any]) -> frozenset[int]:
    """EOS ids of the generation config, else of the config."""
    try:
        found = json.loads((folder / "generation_config.json").read_text("utf-8"))
    except (OSError, ValueError):
        found = {}
    ids = found.get("eos_token_id", config.get("eos_token_id"))
    return frozenset(ids if isinstance(ids, list) else [] if ids is None else [ids])


def _tensor(folder: Path, names: tuple[str, ...]) -> torch.Tensor | None:
    """The first of `names` that a safetensors file of the folder has."""
    index = folder / "model.safetensors.index.json"
    try:
        if index.exists():
            where = json.loads(index.read_text("utf-8"))["weight_map"]
            files = {where[n] for n in names if n in where}
        else:
            files = {file.name for file in sorted(folder.glob("*.safetensors"))}
        for file in sorted(files):
            with safe_open(folder / file, framework="pt") as opened:
                held = set(opened.keys())
                for name in names:
                    if name in held:
                        tensor: torch.Tensor = opened.get_tensor(name)
                        return tensor
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise DrafterLoadError(f"cannot read the target's weights in {folder}: {error}") from error
    return None


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()
