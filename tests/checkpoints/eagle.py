"""Tiny random EAGLE-3 and P-EAGLE drafters, written as each public producer writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from actors.drafters.learned.eagle_model import EagleModel, EagleSpec
from actors.drafters.learned.spec import LayerSpec
from tests.checkpoints.block import DRAFT_IDS, HIDDEN, MASK, TARGET_LAYERS, VOCAB, write

DEFAULT_TAPS = (2, TARGET_LAYERS // 2, TARGET_LAYERS - 3)
SLOTS = 6

LAYER = LayerSpec(hidden=HIDDEN, heads=4, kv_heads=2, head_dim=16, intermediate=96, max_context=512)
PLAIN = EagleSpec(LAYER, 1, DEFAULT_TAPS, HIDDEN, draft_vocab=len(DRAFT_IDS))


@dataclass(frozen=True)
class Written:
    """What a format's file says, in our own words. tensors: names as in `EagleModel`, with the
    head, and with the embedding where the file has one."""

    folder: Path
    spec: EagleSpec
    tensors: Mapping[str, torch.Tensor]
    draft_ids: torch.Tensor | None = None
    mechanism: str = "eagle3"


def random_tensors(
    spec: EagleSpec, embedding: bool = False, seed: int = 0
) -> dict[str, torch.Tensor]:
    """Large fp64 weights, so that every part shows in the drafts."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {name: t.shape for name, t in EagleModel(spec).state_dict().items()}
    shapes["lm_head.weight"] = torch.Size((spec.draft_vocab, spec.layer.hidden))
    if embedding:
        shapes["embed_tokens.weight"] = torch.Size((VOCAB, spec.layer.hidden))
    made: dict[str, torch.Tensor] = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        norm = "norm" in name
        made[name] = 1.0 + 0.3 * noise if norm else noise * (2.0 / shape[-1] ** 0.5)
    return made


def llama(spec: EagleSpec = PLAIN, **extra: Any) -> dict[str, Any]:
    layer = spec.layer
    return {
        "model_type": "qwen3" if layer.qk_norm else "llama",
        "hidden_size": layer.hidden,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": layer.heads,
        "num_key_value_heads": layer.kv_heads,
        "head_dim": layer.head_dim,
        "intermediate_size": layer.intermediate,
        "rms_norm_eps": layer.eps,
        "hidden_act": "silu",
        "max_position_embeddings": layer.max_context,
        "rope_theta": 10000.0,
        "vocab_size": VOCAB,
        **extra,
    }


def maps(dtype: torch.dtype = torch.int64) -> dict[str, torch.Tensor]:
    member = torch.zeros(VOCAB, dtype=torch.bool)
    member[DRAFT_IDS] = True
    return {"d2t": (DRAFT_IDS - torch.arange(len(DRAFT_IDS))).to(dtype), "t2d": member}


def midlayer(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.replace("layers.0.", "midlayer."): t for name, t in tensors.items()}


def safeai(folder: Path) -> Written:
    """The default taps, no embedding, a reduced head."""
    tensors = random_tensors(PLAIN)
    config = llama(architectures=["LlamaForCausalLM"], draft_vocab_size=len(DRAFT_IDS))
    write(folder, config, {**midlayer(tensors), **maps()})
    return Written(folder, PLAIN, tensors, DRAFT_IDS)


def safeai_narrow(folder: Path) -> Written:
    """A draft narrower than its target brings its own embedding."""
    layer = replace(LAYER, hidden=32, heads=2, kv_heads=1)
    spec = replace(PLAIN, layer=layer)
    tensors = random_tensors(spec, embedding=True)
    config = llama(spec, architectures=["LlamaForCausalLM"], target_hidden_size=HIDDEN)
    write(folder, config, {**midlayer(tensors), **maps(torch.int32)})
    return Written(folder, spec, tensors, DRAFT_IDS)


def specforge(folder: Path) -> Written:
    """norm_output is true and means nothing; a copy of the target's embedding may be there."""
    tensors = random_tensors(PLAIN, embedding=True)
    config = llama(
        architectures=["LlamaForCausalLMEagle3"],
        draft_vocab_size=len(DRAFT_IDS),
        norm_output=True,
    )
    write(folder, config, {**midlayer(tensors), **maps()})
    return Written(folder, PLAIN, tensors, DRAFT_IDS)


def specforge_31(folder: Path) -> Written:
    """Taps counted by outputs; norms of 3.1, under their first names."""
    spec = replace(PLAIN, taps=(2, 3, 6), fc_norm=True, norm_output=True)
    tensors = random_tensors(spec)
    old = {f"fc_norm.{i}": f"aux_norm_{name}" for i, name in enumerate(("low", "mid", "high"))}
    stored = midlayer(tensors)
    for new, name in old.items():
        stored[f"{name}.weight"] = stored.pop(f"{new}.weight")
    config = llama(
        architectures=["LlamaForCausalLMEagle3"],
        fc_norm=True,
        norm_output=True,
        eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 2, 5], "use_aux_hidden_state": True},
    )
    write(folder, config, {**stored, **maps()})
    return Written(folder, spec, tensors, DRAFT_IDS)


def modelopt(folder: Path) -> Written:
    """The full vocabulary."""
    spec = replace(PLAIN, taps=(2, 4, 6), draft_vocab=VOCAB)
    tensors = random_tensors(spec)
    eagle = {
        "eagle_aux_hidden_state_layer_ids": [1, 3, 5],
        "use_aux_hidden_state": True,
        "use_input_layernorm_in_first_layer": True,
        "use_last_layernorm": True,
        "use_mtp_layernorm": False,
        "next_layer_regular": True,
        "parallel_draft_step": 1,
    }
    write(folder, llama(architectures=["LlamaForCausalLMEagle3"], eagle_config=eagle), tensors)
    return Written(folder, spec, tensors)


def automodel(folder: Path) -> Written:
    """Everything but the head under `model.`."""
    spec = replace(PLAIN, taps=(2, 4, 5), fc_norm=True, norm_output=True)
    tensors = random_tensors(spec, embedding=True)
    config = llama(
        architectures=["LlamaEagle3DraftModel"],
        num_aux_hidden_states=3,
        aux_layer_ids=[1, 3, 4],
        fc_norm=True,
        norm_output=True,
        draft_vocab_size=len(DRAFT_IDS),
        target_hidden_size=HIDDEN,
    )
    stored = {n if n == "lm_head.weight" else f"model.{n}": t for n, t in tensors.items()}
    write(folder, config, {**stored, **maps()})
    return Written(folder, spec, tensors, DRAFT_IDS)


def automodel_parallel(folder: Path) -> Written:
    """P-EAGLE."""
    spec = replace(PLAIN, slots=SLOTS, mask_token=MASK, draft_vocab=VOCAB)
    tensors = random_tensors(spec, embedding=True)
    config = llama(
        architectures=["LlamaPEagleDraftModel"],
        parallel_drafting=True,
        mask_token_id=MASK,
        num_depths=SLOTS,
    )
    stored = {n if n == "lm_head.weight" else f"model.{n}": t for n, t in tensors.items()}
    write(folder, config, stored)
    return Written(folder, spec, tensors)


def shallow(folder: Path) -> Written:
    """For a target of two layers, which the default taps do not fit, and longer texts."""
    spec = replace(PLAIN, layer=replace(LAYER, max_context=2048), taps=(1, 2))
    tensors = random_tensors(spec)
    config = llama(
        spec,
        architectures=["LlamaForCausalLM"],
        draft_vocab_size=len(DRAFT_IDS),
        eagle_aux_hidden_state_layer_ids=list(spec.taps),
    )
    write(folder, config, {**midlayer(tensors), **maps()})
    return Written(folder, spec, tensors, DRAFT_IDS)


def deepspec(folder: Path) -> Written:
    """Five taps, q and k norms, the whole vocabulary."""
    layer = replace(LAYER, qk_norm=True)
    spec = replace(PLAIN, layer=layer, taps=(1, 2, 4, 5, 6), draft_vocab=VOCAB)
    tensors = random_tensors(spec, embedding=True)
    config = llama(
        spec,
        architectures=["Qwen3Eagle3Model"],
        target_layer_ids=[0, 1, 3, 4, 5],
        ttt_length=7,
        step_loss_decay=0.8,
        draft_num_hidden_layers=1,
        tie_word_embeddings=False,
    )
    write(folder, config, tensors)
    return Written(folder, spec, tensors)


def speculators(folder: Path, **said: Any) -> Written:
    """said: keys of the schema that change the arithmetic."""
    layer = replace(LAYER, qk_norm=bool(said.pop("qwen3", False)))
    peagle = bool(said.pop("peagle", False))
    spec = replace(
        PLAIN,
        layer=layer,
        layers=4 if peagle else 2,
        taps=(1, 3, 6),
        norm_before_residual=said.get("norm_before_residual", not peagle),
        norm_before_fc=said.get("norm_before_fc", False),
        fc_norm=said.get("fc_norm", False),
        norm_output=said.get("norm_output", False),
        slots=SLOTS if peagle else 0,
        mask_token=MASK if peagle else 0,
    )
    tensors = random_tensors(spec)
    config = {
        "speculators_model_type": "peagle" if peagle else "eagle3",
        "speculators_version": "0.9.0",
        "architectures": ["Eagle3Speculator"],
        "transformer_layer_config": llama(spec),
        "draft_vocab_size": len(DRAFT_IDS),
        "eagle_aux_hidden_state_layer_ids": [1, 3, 6],
        "speculators_config": {"algorithm": "eagle3", "verifier": {"name_or_path": "org/target"}},
        **({"ptd_token_id": MASK, "para_depths": SLOTS} if peagle else {}),
        **said,
    }
    write(folder, config, {**tensors, **maps()})
    return Written(folder, spec, tensors, DRAFT_IDS)


FORMATS: dict[str, Callable[[Path], Written]] = {
    "EAGLE-3 SafeAILab": safeai,
    "EAGLE-3 SafeAILab narrow": safeai_narrow,
    "EAGLE-3 SpecForge": specforge,
    "EAGLE-3.1 SpecForge": specforge_31,
    "EAGLE-3 ModelOpt": modelopt,
    "EAGLE-3.1 AutoModel": automodel,
    "P-EAGLE AutoModel": automodel_parallel,
    "EAGLE-3 DeepSpec": deepspec,
    "EAGLE-3 speculators": speculators,
    "EAGLE-3 speculators qwen3": lambda folder: speculators(
        folder, qwen3=True, norm_before_residual=False
    ),
    "EAGLE-3 speculators input norm": lambda folder: speculators(folder, norm_before_fc=True),
    "EAGLE-3.1 speculators": lambda folder: speculators(folder, fc_norm=True, norm_output=True),
    "P-EAGLE speculators": lambda folder: speculators(folder, peagle=True),
}
