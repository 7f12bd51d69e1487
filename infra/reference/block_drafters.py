"""DFlash and DFlash 2 against their authors' own package, on the same random weights.

The package pins other versions of what we run on, so it lies in a folder of its own and borrows our
torch and transformers:

    pip install --no-deps --target /tmp/reference dflash==0.1.0
    PYTHONPATH=.:/tmp/reference python infra/reference/block_drafters.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from actors.drafters.checkpoints.files import open_checkpoint
from actors.drafters.checkpoints.head import LoadedHead, TargetShape
from actors.drafters.checkpoints.table import read_head
from actors.drafters.external_kv import SessionKV, Span
from actors.drafters.learned.attend import Block
from actors.drafters.learned.block_head import BlockHead

HIDDEN, LAYERS, BLOCK, VOCAB, WINDOW = 64, 2, 5, 128, 12
MOST = 1e-5


def config(kinds: list[str]) -> Any:
    from transformers import Qwen3Config

    return Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=96,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        initializer_range=0.3,
        max_position_embeddings=256,
        layer_types=kinds,
        sliding_window=WINDOW,
        use_sliding_window="sliding_attention" in kinds,
        num_target_layers=6,
        dflash_config={
            "block_size": BLOCK,
            "mask_token_id": 7,
            "target_layer_ids": [0, 2],
            "conv_kernel_size": 2,
            "conv_group_size": 16,
            "selector_rank": 8,
            "selector_top_k": 5,
            "output_multiplier": 0.5,
            "final_logit_softcapping": 6.0,
        },
    )


def randomised(model: torch.nn.Module) -> None:
    """Norms and convolutions too, so that every part shows."""
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.data = 1.0 + 0.2 * torch.randn_like(parameter)
        elif "conv" in name or "codebook" in name:
            parameter.data = 0.3 * torch.randn_like(parameter)


def loaded(theirs: Any, name: str) -> LoadedHead:
    """Through a checkpoint, as a user would."""
    from safetensors.torch import save_file

    with tempfile.TemporaryDirectory() as folder:
        theirs.config.architectures = [name]
        theirs.config.save_pretrained(folder)
        tensors = {
            n.removesuffix(".weight") if "codebook" in n else n: t.contiguous()
            for n, t in theirs.state_dict().items()
        }
        save_file(tensors, Path(folder) / "model.safetensors")
        return read_head(open_checkpoint(folder), TargetShape(HIDDEN, 6, VOCAB))


@torch.inference_mode()
def compare(name: str, kinds: list[str], context: int) -> float:
    """The largest difference of normed hidden states, of their largest; DFlash 2's drafts too."""
    from dflash import model as package

    torch.manual_seed(context)
    theirs = getattr(package, name)(config(kinds)).eval()
    randomised(theirs)
    head = loaded(theirs, name)
    ours = BlockHead(head.spec).eval()
    ours.load_state_dict({n: head.tensors[n] for n in ours.state_dict()}, assign=True)
    features, block = torch.randn(context, 2 * HIDDEN), torch.randn(BLOCK, HIDDEN)
    wanted = theirs(
        target_hidden=features[None],
        noise_embedding=block[None],
        position_ids=torch.arange(context + BLOCK)[None],
    )[0]
    kv = SessionKV()
    for layer, (k, v) in enumerate(ours.context_kv(ours.context(features), torch.arange(context))):
        kv.write(layer, 0, k.transpose(0, 1), v.transpose(0, 1))
    attend = Block([Span(kv, context, 0, BLOCK)], head.spec.block.masks)
    positions = torch.arange(context, context + BLOCK)
    found = ours(block, positions, attend, torch.arange(BLOCK))
    if ours.candidate_selector is not None:
        _same_drafts(theirs, ours, head, wanted)
    return float((found - wanted).abs().max() / wanted.abs().max())


def _same_drafts(theirs: Any, ours: BlockHead, head: LoadedHead, hidden: torch.Tensor) -> None:
    assert ours.candidate_selector is not None
    output = torch.nn.Linear(HIDDEN, VOCAB, bias=False)
    wanted, _, _ = theirs.propose(hidden[None, 1:], torch.tensor([9]), output, 0.0)
    spec, before = head.spec, torch.tensor([9])
    for row, token in zip(hidden[1:], wanted[0].tolist(), strict=True):
        logits = torch.tanh(output(row)[None] * spec.logit_scale / spec.softcap) * spec.softcap
        before = ours.candidate_selector(row[None], logits, before).argmax(-1)
        assert int(before) == token, f"drafted {int(before)}, theirs is {token}"


def main() -> int:
    worst = 0.0
    for name in ("DFlashDraftModel", "DFlash2DraftModel"):
        for kinds in (["full_attention"] * 2, ["sliding_attention", "full_attention"]):
            for context in (1, 4, 30):
                off = compare(name, kinds, context)
                print(f"{name:20} {kinds[0]:18} context {context:3}  off by {off:.1e}")
                worst = max(worst, off)
    return 0 if worst <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
