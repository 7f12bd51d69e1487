"""Which tokens a small head can draft: the most frequent ones of the answers.

What is outside is never drafted, which costs acceptance and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from actors.training.examples import Example

PROMPT_WEIGHT = 0.1
"""What a token of a prompt counts beside one of an answer: prompts are many more, and have rare
words that the recorded answers lack (SmolLM2, 182k answer tokens, 8192 drafted: 94.1% of the
held-out answers' tokens with the prompts' words, 92.9% without)."""


def frequencies(examples: Sequence[Example], vocab: int) -> torch.Tensor:
    """How often each token occurs in the answers, int64 [vocab]."""
    answers = [e.tokens[e.prompt_len :] for e in examples]
    return torch.bincount(torch.cat(answers), minlength=vocab)


def prompt_frequencies(prompts: Iterable[Sequence[int]], vocab: int) -> torch.Tensor:
    """How often each token occurs in prompts, int64 [vocab]."""
    flat = torch.tensor([token for ids in prompts for token in ids], dtype=torch.long, device="cpu")
    return torch.bincount(flat, minlength=vocab)


def draft_vocabulary(counts: torch.Tensor, size: int) -> torch.Tensor:
    """The `size` most frequent tokens by (weighed) counts, ascending ids int64 [size]; of equals
    the lower id."""
    order = torch.argsort(counts, descending=True, stable=True)
    return order[:size].sort().values


def coverage(counts: torch.Tensor, draft_ids: torch.Tensor) -> float:
    """The share of the counted tokens that can be drafted."""
    return float(counts[draft_ids.to(counts.device)].sum() / counts.sum().clamp(min=1))


def positions_of(draft_ids: torch.Tensor, vocab: int) -> torch.Tensor:
    """For each token of the target its place among the draft ids, -1 outside; int64 [vocab]."""
    places = torch.full((vocab,), -1, dtype=torch.long, device=draft_ids.device)
    places[draft_ids] = torch.arange(draft_ids.shape[0], device=draft_ids.device)
    return places
