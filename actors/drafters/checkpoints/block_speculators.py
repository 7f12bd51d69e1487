"""The speculators library's schema (`speculators_model_type`): DFlash, DFlash 2, DSpark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from actors.drafters.checkpoints.block import BlockFormat, build
from actors.drafters.checkpoints.block_heads import heads
from actors.drafters.checkpoints.files import Checkpoint, refusal
from actors.drafters.checkpoints.head import LoadedHead, TargetShape
from actors.drafters.checkpoints.shape import integers

KINDS = ("dflash", "dflash2", "dspark")
TAPS = "aux_hidden_state_layer_ids"
# What the library rebuilds from the target when it loads a file.
_REBUILT = ("verifier_lm_head.", "verifier_norm.", "rotary_emb.")


def matches(checkpoint: Checkpoint) -> bool:
    return checkpoint.config.get("speculators_model_type") in KINDS


def read(checkpoint: Checkpoint, target: TargetShape | None) -> LoadedHead:
    config = checkpoint.config
    kind = config["speculators_model_type"]
    layer_config = config.get("transformer_layer_config")
    if not isinstance(layer_config, Mapping):
        raise refusal("config.json has no transformer_layer_config")
    notes: tuple[str, ...] = ()
    anchor = config.get("sample_from_anchor")
    if anchor is None:
        anchor = kind == "dspark"  # the library's own defaults; vLLM takes False for both
        if anchor:
            notes = (
                "sample_from_anchor is not said: true is taken, the library's default; if hardly "
                "a draft is accepted, say false in config.json",
            )
    full = not any(t == "sliding_attention" for t in layer_config.get("layer_types") or ())
    causal = None if full else not config.get("sliding_window_non_causal", kind == "dflash2")
    return build(
        checkpoint,
        BlockFormat(
            producer="speculators",
            rename=_rename,
            config=layer_config,
            extra=config,
            taps=integers(config.get(TAPS), TAPS),
            taps_from=f"{TAPS}: the state that enters layer i",
            next_token=bool(anchor),
            # full attention is never causal there, whatever windows are
            causal=None if causal is None or causal else False,
            target_name=_verifier(config),
            notes=notes,
        ),
    )


def _rename(name: str) -> str | None:
    return None if name.startswith(_REBUILT) else heads(name)


def _verifier(config: Mapping[str, Any]) -> str:
    said = config.get("speculators_config")
    verifier = said.get("verifier") if isinstance(said, Mapping) else None
    return str(verifier.get("name_or_path") or "") if isinstance(verifier, Mapping) else ""
