"""Trained drafters in public formats: speculators' schema for every mechanism, which vLLM and this
project load, and for some the layout their first authors use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from actors.drafters.learned.spec import LayerSpec
from actors.training.errors import TrainingError
from actors.training.external_export import EXTERNAL_LAYOUTS, export_external
from actors.training.external_trainee import ExternalTrainee
from actors.training.mechanisms import layer_of_trainee
from actors.training.trainee import Trainee

WEIGHTS = "model.safetensors"
SAFEAILAB_TAPS = 3
"""Its files name none: they are always hidden states 2, L/2 and L - 3."""
_MTP = {
    "enorm.": "token_layernorm.",
    "hnorm.": "hidden_layernorm.",
    "eh_proj.": "input_proj.",
    "norm.": "final_layernorm.",
    "block.": "",
}


def export(
    trainee: Trainee,
    folder: Path,
    *,
    target_name: str,
    target_config: Mapping[str, Any],
    head: torch.Tensor,
    draft_ids: torch.Tensor,
    layout: str = "",
) -> None:
    """Write config.json and bf16 weights. head: [draft vocab, hidden]; draft_ids: its target ids.
    layout: one of LAYOUTS, "" for the mechanism's first: speculators; safeailab (EAGLE-3); z-lab
    (DFlash, which drafts with the target's own head); shared, transformers (external). Raises
    TrainingError for one that the mechanism has not."""
    layout = layout_of(trainee.mechanism, layout)
    if isinstance(trainee, ExternalTrainee):
        export_external(trainee, folder, WEIGHTS, layout)
        return
    tensors, facts = trainee.export()
    layer = layer_of_trainee(trainee)
    vocab = int(target_config["vocab_size"])
    shape = _Shape(trainee, layer, facts, vocab, len(draft_ids), target_name, target_config)
    if layout == "safeailab" and len(facts["taps"]) != SAFEAILAB_TAPS:
        raise TrainingError(
            f"safeailab's EAGLE-3 has three taps, this one {len(facts['taps'])}: train it with "
            "--layout safeailab",
            "layout",
        )
    if layout == "speculators":
        config = shape.speculators()
    else:
        config = shape.safeailab() if layout == "safeailab" else shape.z_lab()
    if trainee.mechanism == "mtp":
        tensors = {_mtp_name(name): t for name, t in tensors.items()}
    if layout == "safeailab":
        tensors = {n.replace("layers.0.", "midlayer."): t for n, t in tensors.items()}
    stored = {name: t.detach().to(torch.bfloat16).contiguous() for name, t in tensors.items()}
    if trainee.mechanism != "mtp" and layout != "z-lab":
        stored |= _head(head, draft_ids, vocab)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(stored, folder / WEIGHTS, metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")


LAYOUTS: dict[str, tuple[str, ...]] = {
    "dspark": ("speculators",),
    "dflash": ("speculators", "z-lab"),
    "eagle3": ("speculators", "safeailab"),
    "mtp": ("speculators",),
    "external": EXTERNAL_LAYOUTS,
}


def layout_of(mechanism: str, layout: str) -> str:
    """The layout, or the mechanism's first where none is named. Raises TrainingError."""
    known = LAYOUTS.get(mechanism, ())
    if not layout and known:
        return known[0]
    if layout not in known:
        raise TrainingError(
            f"{mechanism} is exported as {', '.join(known)}, not {layout}", "layout"
        )
    return layout


class _Shape:
    """What the formats' configs say of one drafter."""

    def __init__(
        self,
        trainee: Trainee,
        layer: LayerSpec,
        facts: dict[str, Any],
        vocab: int,
        draft_vocab: int,
        target_name: str,
        target_config: Mapping[str, Any],
    ) -> None:
        self._trainee, self._layer, self._facts = trainee, layer, facts
        self._vocab, self._draft_vocab = vocab, draft_vocab
        self._target_name, self._target = target_name, target_config

    @property
    def _layers(self) -> int:
        """MTP's config is the target's; the others count their own layers."""
        if self._trainee.mechanism == "mtp":
            return int(self._target["num_hidden_layers"])
        return int(self._facts["num_hidden_layers"])

    def decoder(self) -> dict[str, Any]:
        """transformers' config of the layers."""
        layer = self._layer
        return {
            "model_type": "qwen3" if layer.qk_norm else "llama",
            "hidden_size": layer.hidden,
            "num_hidden_layers": self._layers,
            "num_attention_heads": layer.heads,
            "num_key_value_heads": layer.kv_heads,
            "head_dim": layer.head_dim,
            "intermediate_size": layer.intermediate,
            "hidden_act": "silu",
            "rms_norm_eps": layer.eps,
            "max_position_embeddings": layer.max_context,
            "attention_bias": layer.attention_bias,
            "vocab_size": self._vocab,
            "rope_parameters": dict(layer.rope),
            "rope_theta": layer.rope["rope_theta"],
            "tie_word_embeddings": False,
        }

    def speculators(self) -> dict[str, Any]:
        mechanism, facts = self._trainee.mechanism, dict(self._facts)
        facts.pop("num_hidden_layers", None)
        taps = facts.pop("taps", None)
        facts.pop("hidden_first", None)
        if mechanism == "eagle3":
            facts |= {
                "eagle_aux_hidden_state_layer_ids": taps,
                "target_hidden_size": self._layer.hidden,
            }
        elif mechanism != "mtp":
            facts["aux_hidden_state_layer_ids"] = taps
        if mechanism != "mtp":
            facts["draft_vocab_size"] = self._draft_vocab
        return {
            "architectures": [_ARCHITECTURES[mechanism]],
            "speculators_model_type": mechanism,
            "dtype": "bfloat16",
            "transformer_layer_config": self.decoder(),
            **facts,
            "speculators_config": {
                "algorithm": mechanism,
                "default_proposal_method": "greedy",
                "proposal_methods": [
                    {
                        "proposal_type": "greedy",
                        "speculative_tokens": self._trainee.depth,
                        "verifier_accept_k": 1,
                        "accept_tolerance": 0.0,
                    }
                ],
                "verifier": {
                    "name_or_path": self._target_name,
                    "architectures": list(self._target.get("architectures") or []),
                },
            },
        }

    def safeailab(self) -> dict[str, Any]:
        return {
            "architectures": ["LlamaForCausalLMEagle3"],
            **self.decoder(),
            "draft_vocab_size": self._draft_vocab,
            "target_hidden_size": self._layer.hidden,
        }

    def z_lab(self) -> dict[str, Any]:
        facts = self._facts
        return {
            "architectures": ["DFlashDraftModel"],
            **self.decoder(),
            "num_target_layers": int(self._target["num_hidden_layers"]),
            "block_size": facts["block_size"],
            "dflash_config": {
                "mask_token_id": facts["mask_token_id"],
                # z-lab counts outputs of layers
                "target_layer_ids": [tap - 1 for tap in facts["taps"]],
            },
        }


_ARCHITECTURES = {
    "dspark": "DSparkDraftModel",
    "dflash": "DFlashSpeculator",
    "eagle3": "Eagle3Speculator",
    "mtp": "MTPSpeculator",
}


def _head(head: torch.Tensor, draft_ids: torch.Tensor, vocab: int) -> dict[str, torch.Tensor]:
    """d2t holds offsets: target id = row + d2t[row]."""
    member = torch.zeros(vocab, dtype=torch.bool)
    member[draft_ids] = True
    return {
        "lm_head.weight": head.detach().to(torch.bfloat16).contiguous(),
        "d2t": draft_ids - torch.arange(len(draft_ids)),
        "t2d": member,
    }


def _mtp_name(name: str) -> str:
    for old, new in _MTP.items():
        if name.startswith(old):
            return f"mtp_layers.0.{new}{name.removeprefix(old)}"
    raise TrainingError(f"{name} has no name in the speculators format")
