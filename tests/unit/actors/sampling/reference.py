"""The sampler's definition, written a second time and naively: whole rows, full sorts, fp64.

`uniforms` is the noise as numpy arithmetic over any broadcast of seeds, positions and tokens, so
that a law can be tested over a million seeds in seconds. `choose` is one token by the book.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from actors.sampling.params import SamplingParams

U32, U64 = np.uint32, np.uint64
GOLDEN = U64(0x9E3779B97F4A7C15)


def mix64(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> U64(30))) * U64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> U64(27))) * U64(0x94D049BB133111EB)
    return x ^ (x >> U64(31))


def uniforms(seeds: object, positions: object, tokens: object) -> np.ndarray:
    """v of every (seed, position, token) of the broadcast, fp64."""
    with np.errstate(over="ignore"):
        seed, position = np.atleast_1d(np.array(seeds, U64)), np.array(positions, U64)
        state = mix64(mix64(seed + GOLDEN) ^ (position * GOLDEN))
        pair, low_key = mix64(state + GOLDEN), mix64(state + U64(2) * GOLDEN)
        token = np.atleast_1d(np.array(tokens, U64))
        x = code32(token.astype(U32)) ^ (pair >> U64(32)).astype(U32)
        x = (x ^ (x >> U32(16))) * (pair.astype(U32) | U32(1))
        x = (x ^ (x >> U32(15))) * U32(0x21F0AAAD)
        shifted = (x.view(np.int32) >> 16).view(U32)
        high = ((x ^ shifted) & U32(0x7FFFFFFF)).astype(U64)
        low = (mix64(low_key ^ (token * GOLDEN)) >> U64(42)) | U64(1)
        return ((high << U64(22)) | low).astype(np.float64) * 2.0**-53


def code32(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> U32(16))) * U32(0x21F0AAAD)
    x = (x ^ (x >> U32(15))) * U32(0x735A2D97)
    return x ^ (x >> U32(15))


def winners(law: Sequence[float], seeds: np.ndarray, position: int) -> np.ndarray:
    """The token of each seed under a fixed law, by the exponential race."""
    best = np.full(len(seeds), np.inf)
    token = np.zeros(len(seeds), np.int64)
    for i, p in enumerate(law):
        time = -np.log1p(-uniforms(seeds, position, i)) / p
        sooner = time < best
        best[sooner], token[sooner] = time[sooner], i
    return token


def process(
    row: Sequence[float],
    params: SamplingParams,
    tokens: Sequence[int],
    prompt_len: int,
    eos_ids: frozenset[int],
) -> list[float]:
    """Bias, penalties and the min_tokens mask, one token id at a time, in fp64."""
    out = list(row)
    output = list(tokens[prompt_len:])
    for token, bias in params.logit_bias:
        out[token] += bias
    for token in range(len(out)):
        if token in tokens:
            r = params.repetition_penalty
            out[token] = out[token] / r if out[token] > 0 else out[token] * r
        if token in output:
            out[token] -= params.frequency_penalty * output.count(token)
            out[token] -= params.presence_penalty
        if len(output) < params.min_tokens and token in eos_ids | params.stop_token_ids:
            out[token] = -math.inf
    return out


def survivors(row: Sequence[float], params: SamplingParams) -> list[int]:
    """Ids kept by min_p, top_k and top_p, from a full sort."""
    top = max(row)
    weight = [math.exp((x - top) / params.temperature) for x in row]
    order = sorted(range(len(row)), key=lambda i: (-row[i], i))
    if params.min_p > 0:
        order = [i for i in order if weight[i] >= params.min_p]
    if params.top_k > 0:
        order = order[: params.top_k]
    if params.top_p < 1:
        goal = params.top_p * sum(weight[i] for i in order)
        kept, mass = [], 0.0
        for i in order:
            if kept and mass >= goal:
                break
            kept.append(i)
            mass += weight[i]
        order = kept
    return sorted(order)


def race(row: Sequence[float], ids: Sequence[int], params: SamplingParams, position: int) -> int:
    """argmax of log p + g over ids, every score in fp64, ties to the lowest id."""
    top = max(row)
    noise = uniforms(params.seed, position, list(ids))
    scores = [
        (row[i] - top) / params.temperature - math.log(-math.log1p(-v))
        for i, v in zip(ids, noise.tolist(), strict=True)
    ]
    return ids[scores.index(max(scores))]


def choose(
    logits: torch.Tensor,
    params: SamplingParams,
    tokens: Sequence[int],
    prompt_len: int,
    eos_ids: frozenset[int] = frozenset(),
) -> int:
    """The token after `tokens` for one row of fp64 logits."""
    row = process(logits.double().tolist(), params, tokens, prompt_len, eos_ids)
    if params.temperature == 0:
        return row.index(max(row))
    return race(row, survivors(row, params), params, len(tokens))
