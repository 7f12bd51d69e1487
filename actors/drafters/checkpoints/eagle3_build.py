"""What all EAGLE-3 checkpoints have in common, whoever wrote them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from actors.drafters.checkpoints.collect import Shape, collect, module_shapes, shapes_of
from actors.drafters.checkpoints.files import Checkpoint, refusal
from actors.drafters.checkpoints.head import LoadedHead, TargetShape
from actors.drafters.checkpoints.shape import draft_ids, integer, integers, layer_spec
from actors.drafters.learned.eagle_model import EagleModel, EagleSpec

EMBEDDING, HEAD = "embed_tokens.weight", "lm_head.weight"
MAPS = ("d2t", "t2d")
UNKNOWN = -1
"""A tap that depends on a target nobody has named yet."""

_AUX_NORMS = {f"aux_norm_{name}.": f"fc_norm.{i}." for i, name in enumerate(("low", "mid", "high"))}
_MASK_KEYS = ("mask_token_id", "ptd_token_id", "pard_token")
_DEPTH_KEYS = ("num_depths", "para_depths")
_DEPTHS = 8


@dataclass(frozen=True, slots=True)
class Taps:
    """taps: indices into transformers' hidden_states; said: the key they came from and what it
    means there, for people. count: how many, where they are not known."""

    taps: tuple[int, ...]
    said: str


@dataclass(frozen=True, slots=True)
class Format:
    """What one producer's config.json says. layer: of the draft's decoder layers, under
    transformers' names."""

    producer: str
    layer: Mapping[str, Any]
    taps: Taps
    norm_before_residual: bool = False
    norm_output: bool = False
    target_name: str = ""
    notes: tuple[str, ...] = ()


def rename(name: str) -> str | None:
    """Names of SafeAILab and SpecForge (`midlayer`), AutoModel (`model.`) and older ones with
    norms named low, mid, high, to those of speculators. RoPE tables and copies of the target are
    not the drafter's."""
    if name.endswith("rotary_emb.inv_freq") or name.startswith(
        ("verifier_lm_head.", "verifier_norm.")
    ):
        return None
    name = name.removeprefix("model.")
    for old, new in {"midlayer.": "layers.0.", **_AUX_NORMS}.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name


def default_taps(target: TargetShape | None) -> Taps:
    """Those of EAGLE's own code: what enters layers 2, L/2 and L - 3."""
    said = "no list in config.json: hidden states 2, L/2 and L-3 of the target's L layers"
    if target is None:
        return Taps((UNKNOWN,) * 3, said)
    return Taps((2, target.layers // 2, target.layers - 3), said)


def listed_taps(config: Mapping[str, Any], key: str, shift: int, said: str = "") -> Taps | None:
    """The list under `key`, moved to hidden_states by `shift`; None where there is none."""
    if config.get(key) is None:
        return None
    meaning = "outputs of layers" if shift else "inputs of layers"
    moved = tuple(i + shift for i in integers(config[key], key))
    return Taps(moved, f"{said or key}: {meaning}")


def build(checkpoint: Checkpoint, form: Format, target: TargetShape | None) -> LoadedHead:
    """Raises DrafterLoadError: whatever would run and accept little."""
    shapes = shapes_of(checkpoint, rename)
    _only_known_bodies(shapes)
    config = checkpoint.config
    spec = _spec(shapes, config, form, target)
    optional = {name: shapes[name] for name in (EMBEDDING, HEAD) if name in shapes}
    for name, shape in optional.items():
        if len(shape) != 2 or shape[1] != spec.layer.hidden:
            raise refusal(f"{name} has shape {list(shape)}, the draft is {spec.layer.hidden} wide")
    if EMBEDDING not in shapes and spec.layer.hidden != spec.target_hidden:
        raise refusal(
            f"there is no {EMBEDDING}, and the target's rows are {spec.target_hidden} wide, the "
            f"draft's {spec.layer.hidden}"
        )
    tensors = collect(checkpoint, rename, module_shapes(lambda: EagleModel(spec)), optional, MAPS)
    ids = _draft_ids(checkpoint, shapes, spec, form, target)
    return LoadedHead(
        "eagle3",
        form.producer,
        spec,
        tensors,
        () if UNKNOWN in spec.taps else spec.taps,
        form.taps.said,
        spec.target_hidden,
        ids,
        vocab=0 if ids is not None else spec.draft_vocab,
        target_name=form.target_name,
        notes=form.notes,
    )


def _only_known_bodies(shapes: Mapping[str, Shape]) -> None:
    for name in shapes:
        if "kv_a_proj_with_mqa" in name or "q_a_proj" in name:
            raise refusal(f"{name}: latent attention (MLA) in an EAGLE-3 drafter is not known here")
        if ".experts." in name:
            raise refusal(f"{name}: experts in an EAGLE-3 drafter are not known here")


def _spec(
    shapes: Mapping[str, Shape],
    config: Mapping[str, Any],
    form: Format,
    target: TargetShape | None,
) -> EagleSpec:
    for need in ("fc.weight", "layers.0.self_attn.o_proj.weight"):
        if len(shapes.get(need, ())) != 2:
            raise refusal(f"there is no matrix {need}")
    layer = layer_spec(shapes, form.layer)
    wide, taps = shapes["fc.weight"][1], form.taps.taps
    hidden = integer(config, "target_hidden_size", layer.hidden, least=1)
    if wide != hidden * len(taps):
        raise refusal(
            f"fc reads {wide} values, and {len(taps)} taps ({form.taps.said}) of {hidden} are "
            f"{hidden * len(taps)}"
        )
    rows = shapes[HEAD][0] if HEAD in shapes else integer(config, "draft_vocab_size", 0)
    rows = rows or integer(form.layer, "vocab_size", target.vocab if target else None)
    slots, mask = _slots(shapes, config)
    return EagleSpec(
        layer=layer,
        layers=sum(n.endswith("self_attn.q_proj.weight") for n in shapes),
        taps=taps,
        target_hidden=hidden,
        draft_vocab=rows,
        norm_before_fc=_norm("norm_before_fc", "input_norm.weight", shapes, config),
        fc_norm=_norm("fc_norm", "fc_norm.0.weight", shapes, config),
        norm_before_residual=form.norm_before_residual,
        norm_output=form.norm_output,
        slots=slots,
        mask_token=mask,
    )


def _norm(key: str, name: str, shapes: Mapping[str, Shape], config: Mapping[str, Any]) -> bool:
    """The tensors decide; a config that says otherwise is refused."""
    said = config.get(key)
    if said is not None and bool(said) != (name in shapes):
        raise refusal(f"{key} is {said} and {name} is {'' if name in shapes else 'not '}there")
    other = "fc_norm.0.weight" if key == "norm_before_fc" else "input_norm.weight"
    if name in shapes and other in shapes:
        raise refusal(f"both {name} and {other} before fc: no EAGLE-3 has two")
    return name in shapes


def _slots(shapes: Mapping[str, Shape], config: Mapping[str, Any]) -> tuple[int, int]:
    """P-EAGLE's drafts of one forward, and its mask token; (0, 0) for a chain."""
    if "mask_hidden" not in shapes:
        if config.get("parallel_drafting"):
            raise refusal("parallel_drafting is set and there is no mask_hidden")
        return 0, 0
    mask = next((config[k] for k in _MASK_KEYS if config.get(k) is not None), None)
    if isinstance(mask, bool) or not isinstance(mask, int):
        raise refusal(f"mask_hidden needs its token: none of {', '.join(_MASK_KEYS)} is an id")
    depths = next((k for k in _DEPTH_KEYS if config.get(k) is not None), "")
    return integer(config, depths, _DEPTHS, least=1), mask


def _draft_ids(
    checkpoint: Checkpoint,
    shapes: Mapping[str, Shape],
    spec: EagleSpec,
    form: Format,
    target: TargetShape | None,
) -> torch.Tensor | None:
    """Target ids of the head's rows; None where a row is its own id. A reduced head without its
    map is refused: it would accept next to nothing and say no word."""
    vocab = target.vocab if target else integer(form.layer, "vocab_size", 0)
    if "d2t" not in shapes:
        if spec.draft_vocab < vocab:
            raise refusal(f"the head has {spec.draft_vocab} of {vocab} ids and there is no d2t")
        return None
    if HEAD not in shapes:
        raise refusal("there is a d2t and no lm_head.weight: the target's head is not reduced")
    t2d = "t2d" if "t2d" in shapes else None
    ids = draft_ids(checkpoint, "d2t", spec.draft_vocab, vocab, t2d)
    if spec.draft_vocab == vocab and torch.equal(ids, torch.arange(vocab)):
        return None
    return ids
