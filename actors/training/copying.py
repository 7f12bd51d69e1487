"""Which layers of a target copy: those with a head that looks, where a token stands again, at what
followed it the last time (induction heads, Olsson et al., arXiv 2209.11895).

Few layers have such heads, and a run of minutes does not make one. A draft model that is cut with
them copies from a prompt from the start.
"""

from __future__ import annotations

from pathlib import Path

import torch

from actors.training.errors import TrainingError

LENGTH, TEXTS = 64, 4


@torch.no_grad()
def copying_scores(folder: Path, seed: int = 0) -> list[float]:
    """Of each layer its best head's: what share of its attention is on the token after the last
    place of this one, in random tokens that come twice. Raises TrainingError."""
    from transformers import AutoModelForCausalLM

    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", use_safetensors=True
        )
    except (OSError, ValueError, KeyError) as error:
        raise TrainingError(f"cannot load the target in {folder}: {error}", "target") from error
    random = torch.Generator("cpu").manual_seed(seed)
    vocab = int(model.get_input_embeddings().weight.shape[0])
    once = torch.randint(vocab, (TEXTS, LENGTH), generator=random, device="cpu")
    twice = torch.cat((once, once), 1).to(model.device)
    found = model(twice, output_attentions=True, use_cache=False).attentions
    return [best_head(attention) for attention in found]


def best_head(attention: torch.Tensor) -> float:
    """attention: [texts, heads, 2 n, 2 n] over n tokens that come twice. The share that the best
    head gives to token i + 1 of the first time, from token i of the second; 0 … 1."""
    n = attention.shape[-1] // 2
    at = torch.arange(n, 2 * n - 1, device=attention.device)
    return float(attention[:, :, at, at - n + 1].mean((0, 2)).max())


def best_layers(scores: list[float], first: int, count: int) -> tuple[int, ...]:
    """The `count` layers from `first` on that copy best, ascending; of equals the lower ones."""
    order = sorted(range(first, len(scores)), key=lambda i: (-scores[i], i))
    return tuple(sorted(order[:count]))
