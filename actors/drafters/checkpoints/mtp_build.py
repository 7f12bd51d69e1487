"""What all MTP heads have in common: stages of two norms, a projection, a decoder layer, a norm.

Dense grouped-query layers run on the blocks of `learned`; any other layer is transformers' own, of
the target's class.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from actors.drafters.checkpoints.collect import Rename, Shape, collect, module_shapes, shapes_of
from actors.drafters.checkpoints.files import Checkpoint, refusal
from actors.drafters.checkpoints.head import LoadedHead
from actors.drafters.checkpoints.mtp_vocabulary import HEAD, MAPS, Reduced
from actors.drafters.checkpoints.shape import integer, layer_spec
from actors.drafters.learned.mtp_model import MtpModel, MtpSpec
from actors.drafters.learned.spec import LayerSpec

SHARED = "stages.0."
"""Where a format has one tensor for all stages, it is read as the first one's."""

_FINAL = "final_norm.weight"
_COUNTS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")
_ONE_PLUS = ("qwen3_next", "qwen3_5")  # norms that multiply by 1 + weight
_EXPERT = re.compile(r"(.*\.experts\.)(gate_up_proj|down_proj)")


@dataclass(frozen=True, slots=True)
class MtpFormat:
    """rename: to `stages.{i}.{enorm,hnorm,eh_proj,norm}.weight` and `stages.{i}.block.*`. config:
    the text model's. shared: names after `stages.0.` that all stages have in common. reduced: its
    draft vocabulary, where it has one."""

    producer: str
    rename: Rename
    config: Mapping[str, Any]
    hidden_first: bool = False
    shared: tuple[str, ...] = ()
    target_name: str = ""
    reduced: Reduced | None = None


def build(checkpoint: Checkpoint, form: MtpFormat) -> LoadedHead:
    """Raises DrafterLoadError."""
    shapes = shapes_of(checkpoint, form.rename)
    spec = _spec(shapes, form)
    module = module_shapes(lambda: MtpModel(spec))
    wanted = {
        name.replace(".block.layer.", ".block."): shape
        for name, shape in module.items()
        if name != _FINAL and not _copied(name, form)
    }
    reduced = form.reduced
    head = {} if reduced is None else reduced.head(spec.layer.hidden)
    found = collect(checkpoint, form.rename, _in_file(wanted, shapes), head, MAPS)
    tensors = _as_module(found, wanted, spec)
    if HEAD in found:
        tensors[HEAD] = found[HEAD]
    for name in module:
        if _copied(name, form):
            tensors[name] = tensors[SHARED + name.split(".", 2)[2]]
    layers = integer(form.config, "num_hidden_layers", least=1)
    return LoadedHead(
        "mtp",
        form.producer,
        spec,
        tensors,
        (layers,),
        "the target's last state, before its final norm",
        spec.layer.hidden,
        None if reduced is None else reduced.ids,
        target_layers=layers,
        target_name=form.target_name,
    )


def _spec(shapes: Mapping[str, Shape], form: MtpFormat) -> MtpSpec:
    config = form.config
    stages = len({name.split(".")[1] for name in shapes if ".block." in name})
    if not stages:
        raise refusal(f"there is no decoder layer in the {form.producer} head")
    said = next((config[k] for k in _COUNTS if isinstance(config.get(k), int)), 0)
    if said and said != stages:
        raise refusal(f"config.json says {said} MTP layers and there are {stages}")
    offset = 1.0 if str(config.get("model_type", "")).startswith(_ONE_PLUS) else 0.0
    own = _is_plain(shapes)
    layer = _plain_layer(shapes, config, offset) if own else _foreign_layer(shapes, config, offset)
    return MtpSpec(
        layer=layer,
        stages=stages,
        tap=integer(config, "num_hidden_layers", least=1),
        hidden_first=form.hidden_first,
        target_eps=float(config.get("rms_norm_eps", 1e-6)),
        target_offset=offset,
        body=None if own else config,
    )


def _is_plain(shapes: Mapping[str, Shape]) -> bool:
    """Whether `blocks` has this layer: dense, grouped queries, no gate on the attention."""
    block = f"{SHARED}block."
    names = {name.removeprefix(block) for name in shapes if name.startswith(block)}
    attention = {f"self_attn.{p}_proj.{t}" for p in "qkv" for t in ("weight", "bias")}
    known = attention | {
        "self_attn.o_proj.weight",
        "self_attn.q_norm.weight",
        "self_attn.k_norm.weight",
        "input_layernorm.weight",
        "post_attention_layernorm.weight",
        *(f"mlp.{p}_proj.weight" for p in ("gate", "up", "down")),
    }
    q, o = (shapes.get(f"{block}self_attn.{p}_proj.weight", (0, 0)) for p in "qo")
    return names <= known and len(q) == len(o) == 2 and q[0] == o[1]


def _plain_layer(
    shapes: Mapping[str, Shape], config: Mapping[str, Any], offset: float
) -> LayerSpec:
    window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
    if window and "sliding_attention" in (config.get("layer_types") or ["sliding_attention"]):
        raise refusal(f"sliding_window {window}: which layers of the head have one is not said")
    return layer_spec(shapes, config, f"{SHARED}block.", norm_offset=offset)


def _foreign_layer(
    shapes: Mapping[str, Shape], config: Mapping[str, Any], offset: float
) -> LayerSpec:
    """Widths, and heads as they are kept: what latent attention expands to."""
    proj = shapes.get(f"{SHARED}eh_proj.weight", ())
    if len(proj) != 2:
        raise refusal("the projection of embedding and hidden state is missing")
    heads = integer(config, "num_attention_heads", least=1)
    latent = config.get("kv_lora_rank") is not None
    kept = heads if latent else integer(config, "num_key_value_heads", heads, least=1)
    size = integer(config, "head_dim", proj[0] // heads, least=1)
    if latent:
        size = integer(config, "qk_nope_head_dim") + integer(config, "qk_rope_head_dim")
    return LayerSpec(
        hidden=proj[0],
        heads=heads,
        kv_heads=kept,
        head_dim=size,
        intermediate=integer(config, "intermediate_size", 0),
        eps=float(config.get("rms_norm_eps", 1e-6)),
        norm_offset=offset,
        max_context=integer(config, "max_position_embeddings", 0),
    )


def _copied(name: str, form: MtpFormat) -> bool:
    """Whether a module's tensor is another name for the first stage's."""
    if name == _FINAL or name.startswith(SHARED):
        return False
    return name.split(".", 2)[2] in form.shared


def _in_file(wanted: Mapping[str, Shape], shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Names as files have them: experts one by one, where they are not stacked there too."""
    names: dict[str, Shape] = {}
    for name, shape in wanted.items():
        match = _EXPERT.fullmatch(name)
        if match is None or name in shapes:
            names[name] = shape
            continue
        stem, part = match.groups()
        for e in range(shape[0]):
            if part == "down_proj":
                names[f"{stem}{e}.down_proj.weight"] = shape[1:]
            else:
                for half in ("gate_proj", "up_proj"):
                    names[f"{stem}{e}.{half}.weight"] = (shape[1] // 2, shape[2])
    return names


def _as_module(
    found: dict[str, torch.Tensor], wanted: Mapping[str, Shape], spec: MtpSpec
) -> dict[str, torch.Tensor]:
    """Tensors under the module's names, experts stacked [experts, out, in]."""
    made: dict[str, torch.Tensor] = {}
    for name, shape in wanted.items():
        match = _EXPERT.fullmatch(name)
        to = name if spec.body is None else name.replace(".block.", ".block.layer.")
        if match is None or name in found:
            made[to] = found[name]
            continue
        stem, part = match.groups()
        halves = ("down_proj",) if part == "down_proj" else ("gate_proj", "up_proj")
        made[to] = torch.stack(
            [
                torch.cat([found[f"{stem}{e}.{half}.weight"] for half in halves])
                for e in range(shape[0])
            ]
        )
    return made
