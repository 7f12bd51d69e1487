"""A draft model that was cut from its target: the file has what was trained, and the embedding, the
head and the first layers are the target's own, taken from there when it is loaded.

`shared_with_target` in config.json says so, with the digests of what is shared. Another target
would give a draft model that nobody trained, whose drafts are merely never accepted; so it is
refused.

With `d2t` in the file, as in EAGLE-3's, its head is the target's rows of the tokens named there,
and no others are drafted: the head is most of what a draft reads (FR-Spec, arXiv 2502.14856).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from actors.drafters.checkpoints.files import CONFIG_BYTES, Checkpoint, open_checkpoint, read_json
from actors.drafters.checkpoints.locate import folder_of, target_folder
from actors.drafters.checkpoints.shape import draft_ids
from actors.drafters.config import DrafterConfig
from actors.drafters.errors import refusal
from actors.drafters.external_head import reduce_head
from actors.drafters.external_kv import ATTENTION
from actors.drafters.learned.target_parts import TargetParts, target_parts
from actors.engine.loading import load_config

KEY = "shared_with_target"
EMBEDDING, HEAD, LAYERS = "model.embed_tokens.weight", "lm_head.weight", "model.layers."
D2T = "d2t"


@dataclass(frozen=True, slots=True)
class Shared:
    """weights: digest of the target's embedding and head (`TargetParts.digest`). layers: so many
    of its first ones, with a digest of their own."""

    weights: str
    layers: int
    layers_digest: str

    @classmethod
    def read(cls, config: Mapping[str, Any], folder: Path) -> Shared:
        """Of a config.json. Raises DrafterLoadError."""
        said = config.get(KEY)
        try:
            found = cls(**said)  # type: ignore[arg-type]
        except TypeError as error:
            raise refusal(f"{folder}: {KEY} of config.json is not understood: {error}") from error
        if not (isinstance(found.layers, int) and isinstance(found.weights, str)):
            raise refusal(f"{folder}: {KEY} of config.json is not understood: {said}")
        return found


def cut_folder(name: str, revision: str | None) -> Path | None:
    """The folder of a draft model that shares with its target; None for any other. name: a folder
    or Hugging Face id. Raises ModelLoadError or DrafterLoadError where there is none."""
    path = Path(name).expanduser()
    if path.is_dir():
        file = path / "config.json"
        return path if file.is_file() and KEY in read_json(file, CONFIG_BYTES) else None
    return folder_of(name, revision) if hasattr(load_config(name, revision), KEY) else None


def load_cut(folder: Path, config: DrafterConfig, dtype: torch.dtype) -> Any:
    """A transformers causal LM of both folders' tensors. Raises DrafterLoadError: another target,
    a tensor that is in neither or in both, shapes that are not those of its config.json."""
    from transformers import AutoModelForCausalLM

    own = open_checkpoint(folder)
    shared = Shared.read(own.config, folder)
    target = target_folder(config)
    parts = target_parts(target, dtype)
    source = open_checkpoint(target)
    check_target(shared, parts, source, folder)
    theirs = {EMBEDDING: parts.embedding, HEAD: parts.head}
    theirs |= {name: source.tensor(name) for name in layer_names(source, shared.layers)}
    if both := sorted(theirs.keys() & own.files.keys()):
        raise refusal(f"{folder}: {both[0]} is the target's, and in {own.files[both[0]]} too")
    tensors = {name: own.tensor(name) for name in own.files if name != D2T} | theirs
    model = AutoModelForCausalLM.from_config(
        _architecture(own), dtype=dtype, attn_implementation=ATTENTION
    )
    if model.config.tie_word_embeddings:
        del tensors[HEAD]
    _compare(model, tensors, folder)
    model.load_state_dict({n: t.to(dtype) for n, t in tensors.items()}, strict=False)
    if (ids := head_ids(own, parts.vocab)) is not None:
        reduce_head(model, ids)
    return model.to(config.device).eval()


def check_target(shared: Shared, parts: TargetParts, source: Checkpoint, folder: Path) -> None:
    """Raises DrafterLoadError where the target is not the one that it was cut from."""
    if parts.digest != shared.weights:
        raise refusal(
            f"{folder} was cut from another target: the embedding and head it shares have the "
            f"digest {shared.weights}, this target's {parts.digest}"
        )
    if (found := layers_digest(source, shared.layers)) != shared.layers_digest:
        raise refusal(
            f"{folder} was cut from another target: the first {shared.layers} layers it shares "
            f"have the digest {shared.layers_digest}, this target's {found}"
        )


def head_ids(own: Checkpoint, vocab: int) -> torch.Tensor | None:
    """The tokens that may be drafted, int64; None where all may. Raises DrafterLoadError."""
    if D2T not in own.files:
        return None
    shape = own.shapes[D2T]
    return draft_ids(own, D2T, shape[0] if len(shape) == 1 else 0, vocab)


def layer_names(source: Checkpoint, count: int) -> list[str]:
    """Of all tensors of the first `count` layers, sorted."""
    wanted = tuple(f"{LAYERS}{i}." for i in range(count))
    return sorted(name for name in source.files if name.startswith(wanted))


def layers_digest(source: Checkpoint, count: int) -> str:
    """Of the first `count` layers as they are stored; "" for none."""
    if not count:
        return ""
    digest = hashlib.sha256()
    for name in layer_names(source, count):
        digest.update(name.encode())
        digest.update(source.tensor(name).contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:32]


def _architecture(own: Checkpoint) -> Any:
    from transformers import CONFIG_MAPPING

    try:
        return CONFIG_MAPPING[own.config["model_type"]].from_dict(dict(own.config))
    except (KeyError, TypeError, ValueError) as error:
        raise refusal(f"{own.folder}: config.json is of no known model: {error}") from error


def _compare(model: Any, tensors: Mapping[str, torch.Tensor], folder: Path) -> None:
    wanted = dict(model.state_dict())
    if model.config.tie_word_embeddings:
        wanted.pop(HEAD, None)
    if missing := sorted(wanted.keys() - tensors.keys()):
        raise refusal(f"{folder}: neither it nor the target has {missing[0]}")
    if unknown := sorted(tensors.keys() - wanted.keys()):
        raise refusal(f"{folder}: {unknown[0]} is no tensor of its config.json's model")
    for name, tensor in tensors.items():
        if tensor.shape != wanted[name].shape:
            raise refusal(
                f"{folder}: {name} has the shape {list(tensor.shape)}, its config.json wants "
                f"{list(wanted[name].shape)}"
            )
