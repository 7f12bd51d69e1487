"""One row's token, on the target's side and on the drafter's alike (DESIGN §5).

Greedy: argmax. Rule `coupled`: y = argmax(log p + g) over the support, g the shared noise of
(seed, position, token). Ties go to the lowest id. The law is the scalar fp64 `score`; everything
vectorised only rules out tokens that cannot win, so the token is the one that scoring the whole
support in fp64 would give.

A nucleus costs several times a race, and is hardly ever needed: the whole row races first, and
where its winner is in the nucleus it is the nucleus's winner too. Otherwise whatever is behind it
in the order is out as well, and the rest races again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from actors.sampling.noise import NoiseKey, noise_key, token_codes
from actors.sampling.params import SamplingParams
from actors.sampling.processors import Processors
from actors.sampling.race import make_race, score
from actors.sampling.rank import first_max
from actors.sampling.support import in_nucleus, support

_FEW = 24  # a support this small is scored outright
_LAPS = 4  # races with a winner outside the nucleus; then it is looked for after all


class BadLogits(ValueError):
    """A row that no token can be drawn from: NaN, +inf, or nothing above -inf (S52)."""


def choose_row(
    logits: torch.Tensor,
    params: SamplingParams,
    position: int,
    tokens: Sequence[int] = (),
    prompt_len: int = 0,
    eos_ids: frozenset[int] = frozenset(),
) -> int:
    """The token at absolute `position` for one row of logits [V].

    tokens: the committed and drafted ids before the position, read by penalties only; the first
    prompt_len are the prompt's, which min_tokens needs too. A drafter calls this with its own
    logits, ids being the target's. Raises BadLogits.
    """
    process = Processors(params, tokens, prompt_len, eos_ids, position - prompt_len)
    return choose(logits, process, params, position)


def choose(logits: torch.Tensor, process: Processors, params: SamplingParams, position: int) -> int:
    """The same, with the request's processors at hand. Raises BadLogits."""
    if process.active:
        check_top(float(logits.max()), position)  # a mask may hide what is wrong with the row
    row = process(logits)
    if params.greedy:
        tops, tokens = first_max(row[None])
        check_top(tops[0], position)
        return tokens[0]
    top = float(row.max())
    check_top(top, position)
    return _race(row, top, params, position)


def _race(row: torch.Tensor, top: float, params: SamplingParams, position: int) -> int:
    """argmax of the score over the support of a processed row; top: its maximum."""
    key = noise_key(params.seed, position)
    if params.top_p < 1.0 and params.top_k == 0 and params.min_p == 0.0 and len(row) > _FEW:
        token = _nucleus_winner(row, top, params, key)
        if token is not None:
            return token
    values, ids = support(row, top, params)
    if len(values) > _FEW:
        codes = token_codes(len(row), row.device)
        codes = codes if ids is None else codes[ids]
        near = make_race(values, codes, top, params.temperature, key).contenders()
    else:
        near = list(range(len(values)))
    tokens: list[int] = near if ids is None else ids[near].tolist()
    return _best(values[near].tolist(), tokens, top, params, key)


def _nucleus_winner(
    row: torch.Tensor, top: float, params: SamplingParams, key: NoiseKey
) -> int | None:
    """The same for top_p alone, without the nucleus; None where fp32 cannot tell."""
    race = make_race(row, token_codes(len(row), row.device), top, params.temperature, key)
    for _ in range(_LAPS):
        near = race.contenders()
        token = _best(row[near].tolist(), near, top, params, key)
        inside = in_nucleus(token, row, race.p, params.top_p)
        if inside is None:
            return None
        if inside:
            return token
        race.drop_from(token)
    return None


def _best(
    values: Sequence[float],
    tokens: Sequence[int],
    top: float,
    params: SamplingParams,
    key: NoiseKey,
) -> int:
    """The token with the highest score, the lowest id among equals."""
    scored = zip(values, tokens, strict=True)
    _, negated = max((score(x, top, params.temperature, key, t), -t) for x, t in scored)
    return -negated


def check_top(top: float, position: int) -> None:
    """A row's maximum tells it all: max() keeps NaN, and a finite one means a choice exists."""
    if not math.isfinite(top):
        what = "NaN" if math.isnan(top) else "+inf" if top > 0 else "no token above -inf"
        raise BadLogits(f"the logits at position {position} hold {what}")
