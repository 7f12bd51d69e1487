"""Tiny random DFlash and DSpark drafters, written as each public producer writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from actors.drafters.learned.block_head import (
    BlockHead,
    BlockHeadSpec,
    ConfidenceSpec,
    MarkovSpec,
)
from actors.drafters.learned.block_model import BlockSpec
from actors.drafters.learned.domino import DominoSpec
from actors.drafters.learned.local_conv import ConvSpec
from actors.drafters.learned.markov import MarkovKind
from actors.drafters.learned.selector import SelectorSpec
from actors.drafters.learned.spec import LayerSpec

VOCAB, HIDDEN, TARGET_LAYERS = 128, 64, 6
TAPS = (1, 3, 5)
BLOCK, MASK = 5, 7
DRAFT_IDS = torch.arange(3, VOCAB, 2)
"""A reduced vocabulary: every other token."""

LAYER = LayerSpec(
    hidden=HIDDEN,
    heads=4,
    kv_heads=2,
    head_dim=16,
    intermediate=96,
    qk_norm=True,
    max_context=512,
    rope={"rope_type": "default", "rope_theta": 10000.0},
)
PLAIN = BlockHeadSpec(
    BlockSpec(LAYER, 2, TAPS, HIDDEN, BLOCK, MASK, next_token=False), draft_vocab=VOCAB
)


def dspark_spec(kind: MarkovKind = "vanilla", reduced: bool = False) -> BlockHeadSpec:
    rows = len(DRAFT_IDS) if reduced else VOCAB
    return replace(
        PLAIN,
        block=replace(PLAIN.block, next_token=True),
        draft_vocab=rows,
        markov=MarkovSpec(kind, 8, VOCAB, rows),
        confidence=ConfidenceSpec(8),
    )


def random_tensors(spec: BlockHeadSpec, seed: int = 0) -> dict[str, torch.Tensor]:
    """Large fp64 weights, so that every part shows in the drafts."""
    generator = torch.Generator().manual_seed(seed)
    made: dict[str, torch.Tensor] = {}
    for name, like in BlockHead(spec).state_dict().items():
        noise = torch.randn(like.shape, generator=generator, dtype=torch.float64)
        norm = name.endswith("norm.weight")
        made[name] = 1.0 + 0.2 * noise if norm else noise * (2.0 / like.shape[-1] ** 0.5)
    return made


@dataclass(frozen=True)
class Written:
    """What a format's file says, in our own words."""

    folder: Path
    spec: BlockHeadSpec
    tensors: Mapping[str, torch.Tensor]
    mechanism: str
    reduced: bool = False


def write(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(config)))
    save_file({k: v.contiguous().clone() for k, v in tensors.items()}, folder / "model.safetensors")


def qwen3(**extra: Any) -> dict[str, Any]:
    return {
        "model_type": "qwen3",
        "hidden_size": HIDDEN,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 96,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "max_position_embeddings": 512,
        "rope_theta": 10000.0,
        "vocab_size": VOCAB,
        **extra,
    }


def zlab(folder: Path, **nested: Any) -> Written:
    tensors = random_tensors(PLAIN)
    dflash = {"target_layer_ids": [0, 2, 4], "mask_token_id": MASK, "block_size": BLOCK, **nested}
    config = qwen3(
        architectures=["DFlashDraftModel"], num_target_layers=TARGET_LAYERS, dflash_config=dflash
    )
    write(folder, config, tensors)
    return Written(folder, PLAIN, tensors, "dflash")


def zlab_old(folder: Path) -> Written:
    """block_size at the top, taps left to the family's rule."""
    spec = replace(PLAIN, block=replace(PLAIN.block, taps=(2, 4)))
    tensors = random_tensors(spec)
    config = qwen3(
        architectures=["DFlashDraftModel"],
        num_target_layers=TARGET_LAYERS,
        block_size=BLOCK,
        dflash_config={"mask_token_id": MASK},
    )
    write(folder, config, tensors)
    return Written(folder, spec, tensors, "dflash")


def zlab_windows(folder: Path) -> Written:
    """A layer with a window, which looks back alone, and one without."""
    spec = replace(PLAIN, block=replace(PLAIN.block, per_layer=((True, 9), (False, None))))
    tensors = random_tensors(spec)
    dflash = {"target_layer_ids": [0, 2, 4], "mask_token_id": MASK, "block_size": BLOCK}
    config = qwen3(
        architectures=["DFlashDraftModel"],
        layer_types=["sliding_attention", "full_attention"],
        sliding_window=9,
        dflash_config=dflash,
    )
    write(folder, config, tensors)
    return Written(folder, spec, tensors, "dflash")


def automodel(folder: Path) -> Written:
    tensors = random_tensors(PLAIN)
    dflash = {"target_layer_ids": [0, 2, 4], "mask_token_id": MASK, "block_size": BLOCK}
    config = qwen3(architectures=["Qwen3DFlashDraftModel"], dflash_config=dflash)
    write(folder, config, {f"model.{name}": tensor for name, tensor in tensors.items()})
    return Written(folder, PLAIN, tensors, "dflash")


def specforge(folder: Path) -> Written:
    spec = dspark_spec()
    tensors = random_tensors(spec)
    dflash = {
        "target_layer_ids": [0, 2, 4],
        "mask_token_id": MASK,
        "block_size": BLOCK,
        "projector_type": "dspark",
        "attention_mode": "gqa",
        "markov_rank": 8,
    }
    write(folder, qwen3(architectures=["DSparkDraftModel"], dflash_config=dflash), tensors)
    return Written(folder, spec, tensors, "dspark")


def modelopt(folder: Path) -> Written:
    """Serial heads lie flat."""
    spec = dspark_spec("gated")
    tensors = random_tensors(spec)
    flat = {
        name.removeprefix("markov_head.").replace("confidence_head.proj", "confidence_proj"): t
        for name, t in tensors.items()
    }
    dflash = {
        "target_layer_ids": [0, 2, 4],
        "mask_token_id": MASK,
        "shift_label": True,
        "use_confidence_head": True,
    }
    config = qwen3(architectures=["DFlashDraftModel"], block_size=BLOCK, dflash_config=dflash)
    write(folder, config, flat)
    return Written(folder, spec, tensors, "dspark")


def deepspec(folder: Path, kind: MarkovKind = "vanilla") -> Written:
    """Flat config; copies of the target's embedding and head."""
    spec = dspark_spec(kind)
    tensors = random_tensors(spec)
    config = qwen3(
        architectures=["Qwen3DSparkModel"],
        num_target_layers=TARGET_LAYERS,
        target_layer_ids=[0, 2, 4],
        mask_token_id=MASK,
        block_size=BLOCK,
        num_anchors=512,
        markov_rank=8,
        markov_head_type=kind,
        enable_confidence_head=True,
        confidence_head_with_markov=True,
        layer_types=["full_attention"] * 2,
        tie_word_embeddings=False,
    )
    write(folder, config, {**tensors, **_ends()})
    return Written(folder, spec, tensors, "dspark")


def deepspec_dflash(folder: Path) -> Written:
    """DSpark's layout without its heads."""
    spec = replace(PLAIN, block=replace(PLAIN.block, next_token=True))
    tensors = random_tensors(spec)
    config = qwen3(
        architectures=["Qwen3DSparkModel"],
        target_layer_ids=[0, 2, 4],
        mask_token_id=MASK,
        block_size=BLOCK,
        markov_rank=0,
        enable_confidence_head=False,
    )
    write(folder, config, {**tensors, **_ends()})
    return Written(folder, spec, tensors, "dflash")


def lfm2(folder: Path) -> Written:
    """RoPE turns neighbours."""
    spec = dspark_spec()
    layer = replace(LAYER, interleaved=True)
    spec = replace(spec, block=replace(spec.block, layer=layer))
    tensors = random_tensors(spec)
    dflash = {"target_layer_ids": [0, 2, 4], "mask_token_id": MASK, "block_size": BLOCK}
    config = qwen3(architectures=["Lfm2DSparkDraftModel"], dflash_config=dflash)
    write(folder, config, tensors)
    return Written(folder, spec, tensors, "dspark")


def speculators(folder: Path, kind: str = "dflash", reduced: bool = False) -> Written:
    if kind == "dspark":
        spec = dspark_spec("rnn", reduced)
    else:
        spec = replace(PLAIN, draft_vocab=len(DRAFT_IDS) if reduced else VOCAB)
    tensors = random_tensors(spec)
    stored = dict(tensors)
    if reduced:
        member = torch.zeros(VOCAB, dtype=torch.bool)
        member[DRAFT_IDS] = True
        stored |= {
            "d2t": DRAFT_IDS - torch.arange(len(DRAFT_IDS)),
            "t2d": member,
            "lm_head.weight": _head(len(DRAFT_IDS)),
        }
    config = {
        "speculators_model_type": kind,
        "speculators_version": "0.9.0",
        "architectures": ["DSparkSpeculator" if kind == "dspark" else "DFlashSpeculator"],
        "transformer_layer_config": qwen3(),
        "aux_hidden_state_layer_ids": list(TAPS),
        "block_size": BLOCK,
        "mask_token_id": MASK,
        "draft_vocab_size": len(DRAFT_IDS) if reduced else VOCAB,
        "sample_from_anchor": kind == "dspark",
        "speculators_config": {
            "algorithm": kind,
            "verifier": {"name_or_path": "somebody/some-target", "architectures": []},
        },
    }
    if kind == "dspark":
        config |= {"markov_rank": 8, "markov_head_type": "rnn"}
    write(folder, config, stored)
    return Written(folder, spec, tensors, kind, reduced)


SELECTOR, CONV = SelectorSpec(VOCAB, 8, 5), ConvSpec(taps=2, group=16)
DOMINO = DominoSpec(state=12, rank=8, draft_vocab=VOCAB, pure=1)


def dflash2(folder: Path) -> Written:
    """Convolutions, a selector, and all that scales logits and embeddings."""
    spec = replace(
        PLAIN,
        block=replace(PLAIN.block, per_layer=((False, 9), (False, None)), conv=CONV),
        selector=SELECTOR,
        embed_scale=2.0,
        logit_scale=0.5,
        softcap=6.0,
    )
    tensors = random_tensors(spec)
    dflash = {
        "target_layer_ids": [0, 2, 4],
        "mask_token_id": MASK,
        "block_size": BLOCK,
        "conv_kernel_size": 2,
        "conv_group_size": 16,
        "selector_rank": 8,
        "selector_top_k": 5,
        "input_embedding_scale": 2.0,
        "output_multiplier": 0.5,
        "final_logit_softcapping": 6.0,
    }
    config = qwen3(
        architectures=["DFlash2DraftModel"],
        is_causal=False,
        layer_types=["sliding_attention", "full_attention"],
        sliding_window=9,
        dflash_config=dflash,
    )
    write(folder, config, {_codebook(name): tensor for name, tensor in tensors.items()})
    return Written(folder, spec, tensors, "dflash")


def speculators_dflash2(folder: Path) -> Written:
    spec = replace(PLAIN, block=replace(PLAIN.block, conv=CONV), selector=SELECTOR)
    tensors = random_tensors(spec)
    config = {
        "speculators_model_type": "dflash2",
        "architectures": ["DFlash2DraftModel"],
        "transformer_layer_config": qwen3(),
        "aux_hidden_state_layer_ids": list(TAPS),
        "block_size": BLOCK,
        "mask_token_id": MASK,
        "draft_vocab_size": VOCAB,
        "selector_top_k": 5,
    }
    write(folder, config, {_codebook(name): tensor for name, tensor in tensors.items()})
    return Written(folder, spec, tensors, "dflash")


def domino(folder: Path) -> Written:
    spec = replace(PLAIN, domino=DOMINO)
    tensors = random_tensors(spec)
    dflash = {
        "target_layer_ids": [0, 2, 4],
        "mask_token_id": MASK,
        "block_size": BLOCK,
        "projector_type": "domino",
        "gru_hidden_dim": 12,
        "emb_dim": 8,
        "pure_draft_prefix_len": 1,
    }
    config = qwen3(architectures=["DominoDraftModel"], dflash_config=dflash)
    write(folder, config, {n.removeprefix("domino."): t for n, t in tensors.items()})
    return Written(folder, spec, tensors, "dflash")


def zlab_scaled_rope(folder: Path) -> Written:
    """The drafter's own RoPE, whatever the target's is."""
    rope = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
    spec = replace(PLAIN, block=replace(PLAIN.block, layer=replace(LAYER, rope=rope)))
    zlab(folder)
    config = json.loads((folder / "config.json").read_text())
    scaled = {**config, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}
    (folder / "config.json").write_text(json.dumps(scaled))
    return Written(folder, spec, random_tensors(spec), "dflash")


def _codebook(name: str) -> str:
    return name.removesuffix(".weight") if "codebook" in name else name


FORMATS: dict[str, Callable[[Path], Written]] = {
    "z-lab": zlab,
    "z-lab, old": zlab_old,
    "z-lab, windows": zlab_windows,
    "z-lab, scaled RoPE": zlab_scaled_rope,
    "DFlash 2": dflash2,
    "speculators DFlash 2": speculators_dflash2,
    "Domino": domino,
    "AutoModel": automodel,
    "SpecForge DSpark": specforge,
    "ModelOpt": modelopt,
    "DeepSpec vanilla": lambda folder: deepspec(folder, "vanilla"),
    "DeepSpec gated": lambda folder: deepspec(folder, "gated"),
    "DeepSpec rnn": lambda folder: deepspec(folder, "rnn"),
    "DeepSpec DFlash": deepspec_dflash,
    "LFM2": lfm2,
    "speculators DFlash": speculators,
    "speculators DFlash, reduced": lambda folder: speculators(folder, reduced=True),
    "speculators DSpark": lambda folder: speculators(folder, "dspark"),
    "speculators DSpark, reduced": lambda folder: speculators(folder, "dspark", True),
}


def _head(rows: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(9)
    return torch.randn(rows, HIDDEN, generator=generator, dtype=torch.float64) * 0.3


def _ends() -> dict[str, torch.Tensor]:
    return {"embed_tokens.weight": _head(VOCAB), "lm_head.weight": _head(VOCAB)}
