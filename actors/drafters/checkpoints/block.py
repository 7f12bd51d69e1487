"""What all formats of DFlash's and DSpark's kind share: one backbone, and heads on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from actors.drafters.checkpoints.block_heads import HEAD, conv_spec, head_spec
from actors.drafters.checkpoints.collect import Rename, Shape, collect, module_shapes, shapes_of
from actors.drafters.checkpoints.files import Checkpoint, refusal
from actors.drafters.checkpoints.head import LoadedHead
from actors.drafters.checkpoints.shape import draft_ids, integer, layer_spec
from actors.drafters.learned.block_head import BlockHead, BlockHeadSpec
from actors.drafters.learned.block_model import BlockSpec

MAX_BLOCK = 128
EMBED, D2T, T2D = "embed_tokens.weight", "d2t", "t2d"


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """What a format's reader has found out. config: transformers' names for the layers. extra: the
    format's own keys. next_token, causal: see `BlockSpec`; causal None is what z-lab's layers do,
    windows look back alone and full attention sees the whole block."""

    producer: str
    rename: Rename
    config: Mapping[str, Any]
    extra: Mapping[str, Any]
    taps: tuple[int, ...]
    taps_from: str
    next_token: bool
    causal: bool | None = None
    interleaved: bool | None = None
    target_layers: int = 0
    target_name: str = ""
    notes: tuple[str, ...] = ()


def build(checkpoint: Checkpoint, form: BlockFormat) -> LoadedHead:
    """Raises DrafterLoadError."""
    shapes = shapes_of(checkpoint, form.rename)
    _refuse_variants(form)
    if len(shapes.get("fc.weight", ())) != 2:
        raise refusal(f"{checkpoint.folder}: there is no matrix fc.weight")
    hidden, wide = shapes["fc.weight"]
    if wide % len(form.taps):
        raise refusal(f"fc.weight reads {wide} features, which are not {len(form.taps)} taps")
    layer = layer_spec(shapes, form.config)
    if layer.hidden != hidden:
        raise refusal(f"fc.weight writes {hidden} features, the layers have {layer.hidden}")
    if form.interleaved is not None:
        layer = replace(layer, interleaved=form.interleaved)
    layers = _layers(shapes)
    masks = _masks(form, layers)
    block = BlockSpec(
        layer=layer,
        layers=layers,
        taps=form.taps,
        target_hidden=wide // len(form.taps),
        block=_bounded(form.extra, "block_size"),
        mask_token=integer(form.extra, "mask_token_id"),
        next_token=form.next_token,
        per_layer=masks,
        conv=conv_spec(form.extra, shapes),
    )
    ids = _ids(checkpoint, form, shapes)
    spec = head_spec(form.extra, shapes, block, len(ids) if ids is not None else 0)
    required = module_shapes(lambda: BlockHead(spec))
    own = {name: shapes[name] for name in (EMBED, HEAD) if name in shapes}
    tensors = collect(checkpoint, form.rename, required, own, (D2T, T2D))
    return LoadedHead(
        "dspark" if spec.markov or spec.confidence else "dflash",
        form.producer,
        spec,
        tensors,
        form.taps,
        form.taps_from,
        block.target_hidden,
        ids,
        vocab=_vocab(form, shapes, spec, ids),
        target_layers=form.target_layers,
        target_name=form.target_name,
        notes=form.notes,
    )


def _ids(
    checkpoint: Checkpoint, form: BlockFormat, shapes: Mapping[str, Shape]
) -> torch.Tensor | None:
    """Target ids of a reduced vocabulary, where the checkpoint has one."""
    names = {form.rename(name): name for name in checkpoint.files}
    if D2T not in names:
        return None
    vocab = integer(form.config, "vocab_size", 0)
    rows = shapes[HEAD][0] if HEAD in shapes else shapes[D2T][0]
    return draft_ids(checkpoint, names[D2T], rows, vocab, names.get(T2D))


def _vocab(
    form: BlockFormat, shapes: Mapping[str, Shape], spec: BlockHeadSpec, ids: torch.Tensor | None
) -> int:
    """The target's vocabulary: rows of what is indexed by its ids, else what config.json says."""
    if spec.markov is not None:
        return spec.markov.vocab
    if spec.selector is not None:
        return spec.selector.vocab
    for name in (EMBED, *(() if ids is not None else (HEAD,))):
        if name in shapes:
            return shapes[name][0]
    return integer(form.config, "vocab_size", 0)


def _layers(shapes: Mapping[str, Shape]) -> int:
    """Decoder layers, numbered from 0 without a gap."""
    seen = {int(n.split(".")[1]) for n in shapes if n.startswith("layers.") and _numbered(n)}
    if not seen or seen != set(range(len(seen))):
        raise refusal(f"decoder layers are numbered {sorted(seen)}")
    return len(seen)


def _numbered(name: str) -> bool:
    return name.split(".")[1].isdecimal()


def _masks(form: BlockFormat, layers: int) -> tuple[tuple[bool, int | None], ...]:
    """(causal, window) of each layer."""
    config, extra = form.config, form.extra
    kinds = config.get("layer_types") or ["full_attention"] * layers
    if not isinstance(kinds, Sequence) or len(kinds) != layers:
        raise refusal(f"layer_types has not one entry for each of {layers} layers")
    window = config.get("sliding_window")
    if extra.get("use_swa"):
        kinds, window = ["sliding_attention"] * layers, extra.get("swa_window_size")
    made: list[tuple[bool, int | None]] = []
    for kind in kinds:
        if kind not in ("full_attention", "sliding_attention"):
            raise refusal(f"layer_types has {kind!r}, which is not known here")
        slides = kind == "sliding_attention"
        if slides and (not isinstance(window, int) or window < 1):
            raise refusal(f"sliding_window is {window!r}")
        causal = slides if form.causal is None else form.causal
        made.append((causal, cast(int, window) if slides else None))
    return tuple(made)


_VARIANTS: Mapping[str, tuple[object, ...]] = {
    "attention_sink_bias": (None, False, 0),
    "attention_value_scale": (None, 1, 1.0),
    "attention_mode": (None, "gqa", "mha"),
    "attention_modes": (None,),
    "projector_type": (None, "none", "dspark", "dflash", "domino"),
}
"""Keys that change the forward, with the values that do not."""


def _refuse_variants(form: BlockFormat) -> None:
    for key, known in _VARIANTS.items():
        value = form.extra.get(key)
        if value not in known:
            raise refusal(f"{key} {value!r} is not supported")


def _bounded(extra: Mapping[str, Any], name: str) -> int:
    value = integer(extra, name, least=2)
    if value > MAX_BLOCK:
        raise refusal(f"{name} is {value}, more than {MAX_BLOCK}")
    return value
