"""The heads that choose a block's drafts, as tensors show them; a config that promises others is
refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

from actors.drafters.checkpoints.collect import Shape
from actors.drafters.checkpoints.files import refusal
from actors.drafters.checkpoints.shape import agrees, integer
from actors.drafters.learned.block_head import BlockHeadSpec, ConfidenceSpec, MarkovSpec
from actors.drafters.learned.block_model import BlockSpec
from actors.drafters.learned.domino import DominoSpec
from actors.drafters.learned.local_conv import ConvSpec
from actors.drafters.learned.markov import MarkovKind
from actors.drafters.learned.selector import SelectorSpec

HEAD = "lm_head.weight"


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


def head_spec(
    extra: Mapping[str, Any], shapes: Mapping[str, Shape], block: BlockSpec, reduced: int
) -> BlockHeadSpec:
    """The serial heads that the tensors show; a config that promises others is refused."""
    w1 = shapes.get("markov_head.markov_w1.weight")
    w2 = shapes.get("markov_head.markov_w2.weight")
    said_rank = extra.get("markov_rank")
    if said_rank is not None and said_rank != (w1[1] if w1 else 0):
        raise refusal(
            f"markov_rank is {said_rank} in config.json and {w1[1] if w1 else 0} by the tensors"
        )
    markov = None
    if w1 is not None:
        rows = w2[0] if w2 else 0
        markov = MarkovSpec(_kind(extra, shapes), w1[1], vocab=w1[0], draft_vocab=rows)
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
        selector=_selector(extra, shapes),
        domino=_domino(extra, shapes),
        embed_scale=float(extra.get("input_embedding_scale") or 1.0),
        logit_scale=float(extra.get("output_multiplier") or 1.0),
        softcap=float(extra.get("final_logit_softcapping") or 0.0),
    )


def conv_spec(extra: Mapping[str, Any], shapes: Mapping[str, Shape]) -> ConvSpec | None:
    base = shapes.get("layers.0.attention_conv.base_kernel")
    projection = shapes.get("layers.0.attention_conv.kernel_projection.weight")
    if base is None or projection is None:
        return None
    taps, hidden = base[1], base[2]
    groups = projection[0] // (2 * taps)
    if not groups or hidden % groups:
        raise refusal(f"{projection[0]} rows of kernel_projection are no {taps} taps of groups")
    agrees(extra, "conv_kernel_size", taps)
    agrees(extra, "conv_group_size", hidden // groups)
    return ConvSpec(taps, hidden // groups)


def _selector(extra: Mapping[str, Any], shapes: Mapping[str, Shape]) -> SelectorSpec | None:
    book = shapes.get("candidate_selector.predecessor_codebook.weight")
    if book is None:
        return None
    agrees(extra, "selector_rank", book[1])
    return SelectorSpec(book[0], book[1], integer(extra, "selector_top_k", least=1))


def _domino(extra: Mapping[str, Any], shapes: Mapping[str, Shape]) -> DominoSpec | None:
    gru = shapes.get("domino.prefix_gru.weight_hh_l0")
    out = shapes.get("domino.embed_proj.2.weight")
    if gru is None or out is None:
        return None
    agrees(extra, "gru_hidden_dim", gru[1])
    agrees(extra, "emb_dim", out[1])
    return DominoSpec(gru[1], out[1], out[0], integer(extra, "pure_draft_prefix_len", 0))


def _kind(extra: Mapping[str, Any], shapes: Mapping[str, Shape]) -> MarkovKind:
    found = "vanilla"
    if "markov_head.gate_proj.weight" in shapes:
        found = "gated"
    elif "markov_head.joint_proj.weight" in shapes:
        found = "rnn"
    said = str(extra.get("markov_head_type") or found).lower()
    if said != found or said not in get_args(MarkovKind):
        raise refusal(f"markov_head_type is {said!r}, the tensors are of a {found!r} head")
    return cast(MarkovKind, found)
