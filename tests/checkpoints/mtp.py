"""Tiny random MTP heads, written as each public producer writes them. Those inside a target's own
checkpoint are written beside `target`'s tensors."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

from actors.drafters.learned.mtp_model import MtpModel, MtpSpec
from actors.drafters.learned.spec import LayerSpec
from tests.checkpoints.block import DRAFT_IDS, HIDDEN, TARGET_LAYERS, VOCAB
from tests.checkpoints.eagle import maps
from tests.checkpoints.target import target
from tests.models import save_tiny

LAYER = LayerSpec(
    hidden=HIDDEN, heads=4, kv_heads=2, head_dim=16, intermediate=128, max_context=512
)
PLAIN = MtpSpec(LAYER, 1, TARGET_LAYERS)


@dataclass(frozen=True)
class Written:
    """What a format's file says, in our own words. folder: the head's; target: its model's, which
    may be the same."""

    folder: Path
    target: Path
    spec: MtpSpec
    tensors: Mapping[str, torch.Tensor]
    draft_ids: torch.Tensor | None = None
    mechanism: str = "mtp"


@functools.cache
def make_target() -> LlamaForCausalLM:
    """The tests' target with a final norm that is not the identity: a head reads what it gives."""
    model = copy.deepcopy(target())
    generator = torch.Generator().manual_seed(5)
    noise = torch.randn(HIDDEN, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        model.model.norm.weight.copy_(1.0 + 0.5 * noise)
    return model


def random_tensors(spec: MtpSpec, seed: int = 0) -> dict[str, torch.Tensor]:
    """Large fp64 weights, so that every part shows in the drafts."""
    generator = torch.Generator().manual_seed(seed)
    made: dict[str, torch.Tensor] = {}
    for name, like in MtpModel(spec).state_dict().items():
        noise = torch.randn(like.shape, generator=generator, dtype=torch.float64)
        norm = "norm" in name
        made[name] = 1.0 + 0.3 * noise if norm else noise * (2.0 / like.shape[-1] ** 0.5)
    made.pop("final_norm.weight")
    return made


def inside(folder: Path, tensors: Mapping[str, torch.Tensor], **config: Any) -> Path:
    """A target's checkpoint with more tensors and keys than the model reads."""
    save_tiny(make_target(), folder)
    held = load_file(folder / "model.safetensors")
    more = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    save_file({**held, **more}, folder / "model.safetensors")
    said = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**said, **config}))
    return folder


def deepseek(folder: Path, stages: int = 1) -> Written:
    """Layers after the last, with copies of embedding and head."""
    spec = replace(PLAIN, stages=stages)
    tensors = random_tensors(spec)
    stored: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        _, stage, rest = name.split(".", 2)
        rest = rest.removeprefix("block.")
        rest = f"shared_head.{rest}" if rest == "norm.weight" else rest
        stored[f"model.layers.{TARGET_LAYERS + int(stage)}.{rest}"] = tensor
    for stage in range(stages):
        for name in ("embed_tokens.weight", "shared_head.head.weight"):
            stored[f"model.layers.{TARGET_LAYERS + stage}.{name}"] = torch.zeros(VOCAB, HIDDEN)
    inside(folder, stored, num_nextn_predict_layers=stages)
    return Written(folder, folder, spec, tensors)


def qwen(folder: Path, stages: int = 1) -> Written:
    """One projection and one set of norms for all stages."""
    spec = replace(PLAIN, stages=stages)
    tensors = random_tensors(spec)
    names = {
        "eh_proj.weight": "fc.weight",
        "enorm.weight": "pre_fc_norm_embedding.weight",
        "hnorm.weight": "pre_fc_norm_hidden.weight",
        "norm.weight": "norm.weight",
    }
    stored: dict[str, torch.Tensor] = {}
    for name in tensors:
        _, stage, rest = name.split(".", 2)
        if rest in names:
            tensors[name] = tensors[f"stages.0.{rest}"]
            stored[f"mtp.{names[rest]}"] = tensors[name]
        else:
            stored[f"mtp.layers.{stage}.{rest.removeprefix('block.')}"] = tensors[name]
    inside(folder, stored, mtp_num_hidden_layers=stages)
    return Written(folder, folder, spec, tensors)


def _mimo_names(tensors: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    names = {
        "enorm.weight": "token_layernorm.weight",
        "hnorm.weight": "hidden_layernorm.weight",
        "eh_proj.weight": "input_proj.weight",
        "norm.weight": "final_layernorm.weight",
    }
    stored: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        _, stage, rest = name.split(".", 2)
        stored[f"{prefix}mtp_layers.{stage}.{names.get(rest, rest.removeprefix('block.'))}"] = (
            tensor
        )
    return stored


def mimo(folder: Path) -> Written:
    """[hidden, embedding], biased projections."""
    spec = replace(PLAIN, hidden_first=True, layer=replace(LAYER, attention_bias=True))
    tensors = random_tensors(spec)
    inside(folder, _mimo_names(tensors, "model."), num_nextn_predict_layers=1)
    return Written(folder, folder, spec, tensors)


def speculators(folder: Path, reduced: bool = False) -> Written:
    """A folder of its own. reduced: with a draft vocabulary, whose head is the target's rows."""
    layer = replace(LAYER, qk_norm=True)
    spec = replace(PLAIN, layer=layer)
    tensors = random_tensors(spec)
    model = Path(save_tiny(make_target(), folder / "target"))
    config = {
        "speculators_model_type": "mtp",
        "speculators_version": "0.9.0",
        "architectures": ["MTPDraftModel"],
        "num_nextn_predict_layers": 1,
        "transformer_layer_config": {
            **json.loads((model / "config.json").read_text()),
            "model_type": "qwen3",
        },
        "speculators_config": {"algorithm": "mtp", "verifier": {"name_or_path": "org/target"}},
        **({"draft_vocab_size": len(DRAFT_IDS)} if reduced else {}),
    }
    (folder / "config.json").write_text(json.dumps(config))
    stored = {n: t.contiguous().clone() for n, t in _mimo_names(tensors, "").items()}
    save_file({**stored, **(maps() if reduced else {})}, folder / "model.safetensors")
    return Written(folder, model, spec, tensors, DRAFT_IDS if reduced else None)


FORMATS: dict[str, Callable[[Path], Written]] = {
    "MTP DeepSeek": deepseek,
    "MTP DeepSeek, 3 stages": lambda folder: deepseek(folder, 3),
    "MTP Qwen3-Next": qwen,
    "MTP Qwen3-Next, 2 stages": lambda folder: qwen(folder, 2),
    "MTP MiMo": mimo,
    "MTP speculators": speculators,
    "MTP speculators, reduced": lambda folder: speculators(folder, reduced=True),
}
