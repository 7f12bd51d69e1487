"""Checkpoints in transformers' style whose architecture says what they are: z-lab's DFlash and
DFlash 2, those of SpecForge, AutoModel and ModelOpt, DeepSpec's DSpark (and its DFlash, a DSpark
without heads), LiquidAI's. They share tensor names; settings are in `dflash_config` or beside."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Any

from actors.drafters.checkpoints.block import BlockFormat, build
from actors.drafters.checkpoints.block_heads import heads
from actors.drafters.checkpoints.files import Checkpoint, refusal
from actors.drafters.checkpoints.head import LoadedHead, TargetShape
from actors.drafters.checkpoints.shape import integer, integers

TAPS = "target_layer_ids"
IN_PLACE = {
    "DFlashDraftModel": "z-lab DFlash",
    "Qwen3DFlashDraftModel": "AutoModel DFlash",
    "DFlash2DraftModel": "z-lab DFlash 2",
    "DominoDraftModel": "SpecForge Domino",
    "MuseGlimmerAssistantModel": "transformers DFlash",
}
NEXT_TOKEN = {
    "Qwen3DSparkModel": "DeepSpec",
    "DSparkDraftModel": "SpecForge DSpark",
    "Lfm2DSparkDraftModel": "LiquidAI DSpark",
}
"""Architectures by what a slot predicts: its own position's token, or the next one's."""
TWO_WAY = frozenset({"MuseGlimmerAssistantModel"})
"""Those whose windows look both ways, though nothing in their config says so."""
ALIASES = {"encoder.fc.": "fc.", "encoder.output_norm_enc.": "hidden_norm."}


def matches(checkpoint: Checkpoint) -> bool:
    return checkpoint.architecture in IN_PLACE or checkpoint.architecture in NEXT_TOKEN


def read(checkpoint: Checkpoint, target: TargetShape | None) -> LoadedHead:
    config, architecture = checkpoint.config, checkpoint.architecture
    nested = config.get("dflash_config", {})
    if not isinstance(nested, Mapping):
        raise refusal("dflash_config is no object")
    extra: Mapping[str, Any] = ChainMap(dict(nested), dict(config))  # nested first
    taps, taps_from = _taps(checkpoint, extra, target)
    producer = {**IN_PLACE, **NEXT_TOKEN}[architecture]
    markov = any(heads(_bare(n)).startswith("markov_head.") for n in checkpoint.files)
    if architecture in IN_PLACE and markov:
        producer = "SpecForge or ModelOpt DSpark"
    return build(
        checkpoint,
        BlockFormat(
            producer=producer,
            rename=_rename,
            config=config,
            extra=extra,
            taps=taps,
            taps_from=taps_from,
            next_token=_next_token(extra, architecture, markov),
            causal=_causal(extra, architecture),
            interleaved=True if architecture.startswith("Lfm2") else None,
            target_layers=integer(extra, "num_target_layers", 0),
        ),
    )


def _next_token(extra: Mapping[str, Any], architecture: str, markov: bool) -> bool:
    """What is said outright (either spelling) comes before what the family does."""
    for key in ("sample_from_anchor", "shift_label"):
        if extra.get(key) is not None:
            return bool(extra[key])
    return architecture in NEXT_TOKEN or markov or extra.get("projector_type") == "dspark"


def _causal(extra: Mapping[str, Any], architecture: str) -> bool | None:
    for key in ("is_causal", "causal"):
        if extra.get(key) is not None:
            return bool(extra[key])
    return False if architecture in TWO_WAY else None


def _taps(
    checkpoint: Checkpoint, extra: Mapping[str, Any], target: TargetShape | None
) -> tuple[tuple[int, ...], str]:
    """Value i is the output of layer i, which is hidden state i + 1; -1 the embedding."""
    said = extra.get(TAPS)
    if said is not None:
        return tuple(i + 1 for i in integers(said, TAPS)), f"{TAPS}: the output of layer i"
    layers = integer(extra, "num_target_layers", target.layers if target else 0)
    count = integer(extra, "num_hidden_layers", 0)
    if layers < 4 or count < 1:
        raise refusal(f"config.json has no {TAPS}")
    if count == 1:
        return (layers // 2 + 1,), "the family's default: the middle layer"
    span = layers - 4
    spread = tuple(round(1 + i * span / (count - 1)) + 1 for i in range(count))
    return spread, "the family's default: layers spread evenly"


def _rename(name: str) -> str | None:
    bare = _bare(name)
    return None if "rotary_emb." in bare else heads(bare)


def _bare(name: str) -> str:
    bare = name.removeprefix("model.")
    for alias, ours in ALIASES.items():
        if bare.startswith(alias):
            return ours + bare.removeprefix(alias)
    return bare
