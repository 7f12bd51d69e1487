"""Drafting for the rules that weigh laws: a token drawn from q, and q as it was drawn from.

Drawn with numbers of its own (`dice`, use DRAFT), so that the target's tests and draws know nothing
of it; repeated by whoever drafts the same prefix at the same committed length. q is the draft
model's row after the request's own processors and cuts, kept to its largest ids and rounded to
fp32 before the draw: what is reported is what was drawn from, bit for bit (S10, S15).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from actors.sampling import dice
from actors.sampling.choose import check_top
from actors.sampling.dice import Place, Use
from actors.sampling.law import TokenLaw
from actors.sampling.params import SamplingParams
from actors.sampling.processors import Processors
from actors.sampling.support import support, weights

LAW_IDS = 128
"""Ids that a law keeps: 1 KB on the wire for each drafted token. What is cut off is never drafted,
and costs acceptance where the draft model is as undecided as that."""


def draw_next(
    logits: torch.Tensor,
    params: SamplingParams,
    base: int,
    tokens: Sequence[int],
    prompt_len: int,
    eos_ids: frozenset[int],
) -> tuple[int, TokenLaw]:
    """The token after `tokens` (prompt, output and drafts), the first `base` of them committed;
    logits [V], ids being the target's; temperature > 0. Raises BadLogits."""
    process = Processors(params, tokens, prompt_len, eos_ids, len(tokens) - prompt_len)
    return draw(logits, process, params, Place(params.seed, base, len(tokens)))


def draw(
    logits: torch.Tensor,
    process: Processors,
    params: SamplingParams,
    place: Place,
    ids_kept: int = LAW_IDS,
) -> tuple[int, TokenLaw]:
    """The same, with the request's processors at hand; at most `ids_kept` ids. Raises BadLogits."""
    if process.active:
        check_top(float(logits.max()), place.position)
    row = process(logits)
    top = float(row.max())
    check_top(top, place.position)
    kept = min(ids_kept, params.top_k or ids_kept)
    values, ids = support(row, top, replace(params, top_k=kept))
    mass = weights(values, top, params.temperature)
    probs = (mass / mass.sum()).to(torch.float32).cpu().numpy()
    all_ids = np.arange(len(row)) if ids is None else ids.cpu().numpy()
    law = TokenLaw(all_ids[probs > 0.0], probs[probs > 0.0])
    index = dice.pick(torch.from_numpy(law.masses), place, Use.DRAFT)
    return int(law.ids[index]), law
