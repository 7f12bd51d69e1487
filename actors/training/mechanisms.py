"""A mechanism by name, shaped for a target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from actors.drafters.learned.block_model import BlockSpec
from actors.drafters.learned.eagle_model import EagleSpec
from actors.drafters.learned.mtp_model import MtpSpec
from actors.drafters.learned.spec import LayerSpec
from actors.drafters.learned.target_parts import TargetParts
from actors.training.beginning import place_tokens, quiet, start_norm
from actors.training.block_trainee import BlockTrainee, BlockTraining
from actors.training.chain_models import EagleChain, MtpChain
from actors.training.chain_trainee import ChainTrainee, ChainTraining
from actors.training.copying import copying_scores
from actors.training.cut import default_cut, plan_cut
from actors.training.errors import TrainingError
from actors.training.external_trainee import ExternalTrainee, ExternalTraining
from actors.training.laws import TargetLaw
from actors.training.trainee import Trainee


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a drafter. intermediate and kv_heads: 0 is the mechanism's own default. drafts: of one
    block. last_tap: whether EAGLE-3 reads the target's last state beside its three usual ones.
    mask_token: a token that no text has. cut: layers of the target that an external draft model is
    made of; none is `cut.default_cut`."""

    layers: int = 2
    intermediate: int = 0
    kv_heads: int = 0
    drafts: int = 6
    last_tap: bool = True
    markov_rank: int = 32
    mask_token: int = 4
    block: BlockTraining = field(default_factory=BlockTraining)
    chain: ChainTraining = field(default_factory=ChainTraining)
    cut: tuple[int, ...] = ()
    external: ExternalTraining = field(default_factory=ExternalTraining)


def layer_of_trainee(trainee: Trainee) -> LayerSpec:
    """The shape of a trainee's decoder layers."""
    spec = trainee.spec if isinstance(trainee, BlockTrainee) else None
    if spec is None and isinstance(trainee, ChainTrainee):
        return trainee.model.layer_spec
    if spec is None:
        raise TrainingError(f"{trainee.mechanism} is of no known kind", "mechanism")
    return spec.layer


def default_taps(layers: int) -> tuple[int, ...]:
    """Three depths (EAGLE-3's own choice), and the last state, from which the target's law comes;
    indices into transformers' hidden_states."""
    return (2, layers // 2, layers - 3, layers)


def build(
    mechanism: str,
    parts: TargetParts,
    draft_ids: torch.Tensor,
    shape: Shape,
    scale: torch.Tensor | None = None,
) -> Trainee:
    """scale: of the recorded features, which `fc` is trained without. Raises TrainingError for a
    mechanism that is not trained here."""
    if mechanism not in BUILDERS:
        known = ", ".join(BUILDERS)
        raise TrainingError(f"unknown mechanism {mechanism!r}; trained are {known}", "mechanism")
    if not 0 <= shape.mask_token < parts.vocab:
        raise TrainingError(f"the mask token {shape.mask_token} is no token", "mask_token")
    made = BUILDERS[mechanism](parts, TargetLaw.of(parts, draft_ids), shape)
    quiet(made.module)
    if scale is not None:
        made.set_scale(scale)
    return made


def layer_of(
    parts: TargetParts, intermediate: int, *, qk_norm: bool, kv_heads: int = 0
) -> LayerSpec:
    """A decoder layer as wide as the target's, with an MLP and (where not 0) KV heads of its
    own."""
    config: dict[str, Any] = parts.config
    heads = int(config["num_attention_heads"])
    rope = dict(config.get("rope_parameters") or {})
    rope.setdefault("rope_type", "default")
    rope.setdefault("rope_theta", float(config.get("rope_theta") or 10000.0))
    return LayerSpec(
        hidden=parts.hidden,
        heads=heads,
        kv_heads=kv_heads or int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or parts.hidden // heads),
        intermediate=intermediate,
        eps=float(config.get("rms_norm_eps", 1e-6)),
        qk_norm=qk_norm,
        max_context=int(config.get("max_position_embeddings") or 0),
        rope=rope,
    )


def _block(parts: TargetParts, law: TargetLaw, shape: Shape, rank: int) -> BlockTrainee:
    taps = default_taps(parts.layers)[:-1]
    spec = BlockSpec(
        layer=layer_of(parts, shape.intermediate or 1024, qk_norm=True, kv_heads=shape.kv_heads),
        layers=shape.layers,
        taps=taps,
        target_hidden=parts.hidden,
        block=shape.drafts if rank else shape.drafts + 1,
        mask_token=shape.mask_token,
        next_token=bool(rank),
    )
    made = BlockTrainee(spec, parts, law, rank, shape.block)
    start_norm(made.module.norm, parts.norm)
    if made.module.markov_head is not None:
        place_tokens(made.module.markov_head.markov_w1, parts.embedding)
    return made


def _dspark(parts: TargetParts, law: TargetLaw, shape: Shape) -> Trainee:
    return _block(parts, law, shape, shape.markov_rank)


def _dflash(parts: TargetParts, law: TargetLaw, shape: Shape) -> Trainee:
    return _block(parts, law, shape, 0)


def _eagle3(parts: TargetParts, law: TargetLaw, shape: Shape) -> Trainee:
    """The last state is the best one to begin from, and the shallow one knows which token stands
    where, which copying needs. A KV head for each query head: the newest token's embedding reaches
    the draft through attention alone, and groups would narrow it."""
    taps = default_taps(parts.layers)
    heads = int(parts.config["num_attention_heads"])
    spec = EagleSpec(
        layer=layer_of(
            parts, shape.intermediate or 1536, qk_norm=False, kv_heads=shape.kv_heads or heads
        ),
        layers=1,
        taps=taps if shape.last_tap else taps[:-1],
        target_hidden=parts.hidden,
        draft_vocab=int(law.head.shape[0]),
    )
    chain = EagleChain(spec)
    start_norm(chain.module.norm, parts.norm)
    return ChainTrainee("eagle3", chain, parts, law, shape.drafts, shape.chain)


def _mtp(parts: TargetParts, law: TargetLaw, shape: Shape) -> Trainee:
    spec = MtpSpec(
        layer=layer_of(parts, shape.intermediate or 1536, qk_norm=False, kv_heads=shape.kv_heads),
        stages=1,
        tap=parts.layers,
        target_eps=float(parts.config.get("rms_norm_eps", 1e-6)),
    )
    chain = MtpChain(spec, parts.norm)
    start_norm(chain.stage.norm, parts.norm)
    return ChainTrainee("mtp", chain, parts, law, shape.drafts, shape.chain)


def _external(parts: TargetParts, law: TargetLaw, shape: Shape) -> Trainee:
    taps = default_taps(parts.layers)
    layers = shape.cut or default_cut(copying_scores(parts.folder), taps)
    cut = plan_cut(layers, parts.layers, taps)
    return ExternalTrainee(parts, cut, taps, shape.drafts, shape.external, law.draft_ids)


Build = Callable[[TargetParts, TargetLaw, Shape], Trainee]
BUILDERS: dict[str, Build] = {
    "dspark": _dspark,
    "dflash": _dflash,
    "eagle3": _eagle3,
    "mtp": _mtp,
    "external": _external,
}
