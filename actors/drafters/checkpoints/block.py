"""What all formats of DFlash's and DSpark's kind share: one backbone, two serial heads at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

import torch

from actors.drafters.checkpoints.collect import Rename, Shape, collect, module_shapes, shapes_of
from actors.drafters.checkpoints.files import Checkpoint, refusal
from actors.drafters.checkpoints.head import LoadedHead
from actors.drafters.checkpoints.shape import agrees, draft_ids, integer, layer_spec
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

MAX_BLOCK = 128
EMBED, HEAD, D2T, T2D = "embed_tokens.weight", "lm_head.weight", "d2t", "t2d"


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
        layer = _with(layer, interleaved=form.interleaved)
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
        conv=_conv(form, shapes),
    )
    ids = _ids(checkpoint, form, shapes)
    spec = _spec(form, shapes, block, len(ids) if ids is not None else 0)
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


def heads(name: str) -> str:
    """Canonical name of a tensor of the heads: DeepSpec's, also where they lie flat (ModelOpt)."""
    first = name.partition(".")[0]
    if first in ("prefix_gru", "embed_proj"):
        return f"domino.{name}"
    if name in ("candidate_selector.predecessor_codebook", "candidate_selector.successor_codebook"):
        return f"{name}.weight"
    if first in ("markov_w1", "markov_w2", "gate_proj", "joint_proj"):
        return f"markov_head.{name}"
    if first == "confidence_proj":
        return f"confidence_head.proj{name.removeprefix(first)}"
    return name


def _spec(
    form: BlockFormat, shapes: Mapping[str, Shape], block: BlockSpec, reduced: int
) -> BlockHeadSpec:
    """The serial heads that the tensors show; a config that promises others is refused."""
    w1 = shapes.get("markov_head.markov_w1.weight")
    w2 = shapes.get("markov_head.markov_w2.weight")
    said_rank = form.extra.get("markov_rank")
    if said_rank is not None and said_rank != (w1[1] if w1 else 0):
        raise refusal(
            f"markov_rank is {said_rank} in config.json and {w1[1] if w1 else 0} by the tensors"
        )
    markov = None
    if w1 is not None:
        rows = w2[0] if w2 else 0
        markov = MarkovSpec(_kind(form, shapes), w1[1], vocab=w1[0], draft_vocab=rows)
    confidence = None
    proj = shapes.get("confidence_head.proj.weight")
    if proj is not None:
        rank = proj[-1] - block.layer.hidden
        if rank not in (0, markov.rank if markov else 0):
            raise refusal(f"the confidence head reads {proj[-1]} features")
        confidence = ConfidenceSpec(rank, bias="confidence_head.proj.bias" in shapes)
    rows = shapes[HEAD][0] if HEAD in shapes else reduced or (markov.draft_vocab if markov else 0)
    return BlockHeadSpec(
        block,
        draft_vocab=rows,
        markov=markov,
        confidence=confidence,
        selector=_selector(form, shapes),
        domino=_domino(form, shapes),
        embed_scale=float(form.extra.get("input_embedding_scale") or 1.0),
        logit_scale=float(form.extra.get("output_multiplier") or 1.0),
        softcap=float(form.extra.get("final_logit_softcapping") or 0.0),
    )


def _conv(form: BlockFormat, shapes: Mapping[str, Shape]) -> ConvSpec | None:
    base = shapes.get("layers.0.attention_conv.base_kernel")
    projection = shapes.get("layers.0.attention_conv.kernel_projection.weight")
    if base is None or projection is None:
        return None
    taps, hidden = base[1], base[2]
    groups = projection[0] // (2 * taps)
    if not groups or hidden % groups:
        raise refusal(f"{projection[0]} rows of kernel_projection are no {taps} taps of groups")
    agrees(form.extra, "conv_kernel_size", taps)
    agrees(form.extra, "conv_group_size", hidden // groups)
    return ConvSpec(taps, hidden // groups)


def _selector(form: BlockFormat, shapes: Mapping[str, Shape]) -> SelectorSpec | None:
    book = shapes.get("candidate_selector.predecessor_codebook.weight")
    if book is None:
        return None
    agrees(form.extra, "selector_rank", book[1])
    return SelectorSpec(book[0], book[1], integer(form.extra, "selector_top_k", least=1))


def _domino(form: BlockFormat, shapes: Mapping[str, Shape]) -> DominoSpec | None:
    gru = shapes.get("domino.prefix_gru.weight_hh_l0")
    out = shapes.get("domino.embed_proj.2.weight")
    if gru is None or out is None:
        return None
    agrees(form.extra, "gru_hidden_dim", gru[1])
    agrees(form.extra, "emb_dim", out[1])
    return DominoSpec(gru[1], out[1], out[0], integer(form.extra, "pure_draft_prefix_len", 0))


def _kind(form: BlockFormat, shapes: Mapping[str, Shape]) -> MarkovKind:
    found = "vanilla"
    if "markov_head.gate_proj.weight" in shapes:
        found = "gated"
    elif "markov_head.joint_proj.weight" in shapes:
        found = "rnn"
    said = str(form.extra.get("markov_head_type") or found).lower()
    if said != found or said not in get_args(MarkovKind):
        raise refusal(f"markov_head_type is {said!r}, the tensors are of a {found!r} head")
    return cast(MarkovKind, found)


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


def _with(layer: LayerSpec, *, interleaved: bool) -> LayerSpec:
    from dataclasses import replace

    return replace(layer, interleaved=interleaved)
