"""Builders for the drafters' tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from actors.contracts import Commit, Drafter, DraftRequest, OpenSession, SessionKey
from actors.drafters.config import DrafterConfig
from actors.drafters.table import build_drafter
from actors.sampling.params import SamplingParams

GREEDY = SamplingParams(temperature=0.0)


def make_key(request: str = "r", epoch: int = 0) -> SessionKey:
    return SessionKey("v", request, epoch)


def make_drafter(method: str, **fields: Any) -> Drafter:
    return build_drafter(DrafterConfig(method, **{"num_speculative_tokens": 8, **fields}))


def make_open(
    tokens: Sequence[int],
    request: str = "r",
    tenant: str = "",
    sampling: SamplingParams = GREEDY,
    epoch: int = 0,
) -> OpenSession:
    return OpenSession(make_key(request, epoch), tuple(tokens), sampling, tenant)


def make_commit(from_len: int, *tokens: int, request: str = "r", epoch: int = 0) -> Commit:
    return Commit(make_key(request, epoch), 0, from_len, tokens)


def draft(drafter: Drafter, depth: int = 4, request: str = "r", epoch: int = 0) -> tuple[int, ...]:
    """One session's block, its base_len checked by nobody here."""
    return drafter.propose([DraftRequest(make_key(request, epoch), depth)])[0].tokens


def converse(
    drafter: Drafter,
    prompt: Sequence[int],
    next_token: Callable[[Sequence[int], SamplingParams], int],
    depths: Sequence[int],
    total: int,
    sampling: SamplingParams = GREEDY,
    request: str = "r",
) -> tuple[list[int], list[tuple[int, int]]]:
    """A session against a target given as a function, with the verifier's own accounting.

    Round i drafts depths[i % len(depths)], cut to what is still wanted. Returns the output and
    (drafted, accepted) of each round.
    """
    tokens, rounds = list(prompt), list[tuple[int, int]]()
    drafter.open([make_open(prompt, request, sampling=sampling)])
    first = next_token(tokens, sampling)
    drafter.observe([make_commit(len(tokens), first, request=request)])
    tokens.append(first)
    while len(tokens) - len(prompt) < total:
        left = total - (len(tokens) - len(prompt))
        depth = min(depths[len(rounds) % len(depths)], left - 1)
        block: tuple[int, ...] = ()
        if depth > 0:
            proposal = drafter.propose([DraftRequest(make_key(request), depth)])[0]
            assert proposal.base_len == len(tokens)
            assert len(proposal.tokens) <= depth
            block = proposal.tokens
        emitted: list[int] = []
        while True:
            right = next_token(tokens + emitted, sampling)
            emitted.append(right)
            place = len(emitted) - 1
            if place >= len(block) or block[place] != right:
                break
        rounds.append((len(block), len(emitted) - 1))
        drafter.observe([make_commit(len(tokens), *emitted, request=request)])
        tokens.extend(emitted)
    return tokens[len(prompt) :], rounds
