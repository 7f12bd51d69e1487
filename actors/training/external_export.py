"""A draft model that was cut from its target, as a checkpoint: with what was trained alone, for
this project (`shared`), or whole and with its tokenizer, for every engine (`transformers`)."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import save_file

from actors.drafters.checkpoints.files import open_checkpoint
from actors.drafters.external_cut import (
    D2T,
    EMBEDDING,
    HEAD,
    KEY,
    Shared,
    layer_names,
    layers_digest,
)
from actors.training.cut import cut_config
from actors.training.external_trainee import ExternalTrainee

EXTERNAL_LAYOUTS = ("shared", "transformers")
BESIDE = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "generation_config.json",
)
"""Files of the target that a whole model needs too, where there are any."""


def export_external(trainee: ExternalTrainee, folder: Path, weights: str, layout: str) -> None:
    """weights: the file's name. layout: one of EXTERNAL_LAYOUTS."""
    parts, cut = trainee.parts, trainee.cut
    source = open_checkpoint(parts.folder)
    config = cut_config(parts.config, cut.layers)
    if parts.end_tokens:
        ends = sorted(parts.end_tokens)
        config["eos_token_id"] = ends[0] if len(ends) == 1 else ends
    tensors, _ = trainee.export()
    folder.mkdir(parents=True, exist_ok=True)
    if layout == "shared":
        shared = Shared(parts.digest, cut.kept, layers_digest(source, cut.kept))
        config[KEY] = asdict(shared)
    else:
        tensors = tensors | {n: source.tensor(n) for n in layer_names(source, cut.kept)}
        tensors[EMBEDDING] = parts.embedding
        if not config.get("tie_word_embeddings"):
            tensors[HEAD] = parts.head
        for name in BESIDE:
            if (parts.folder / name).is_file():
                shutil.copyfile(parts.folder / name, folder / name)
    stored = {n: t.detach().to("cpu", torch.bfloat16).contiguous() for n, t in tensors.items()}
    if layout == "shared" and len(trainee.draft_ids) < parts.vocab:
        ids = trainee.draft_ids.cpu()
        stored[D2T] = ids - torch.arange(len(ids), device="cpu")  # whatever the default device
    save_file(stored, folder / weights, metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
