"""One more draft for each chain, and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from actors.contracts import DrafterError, SessionKey
from actors.drafters.external_choose import Prefix
from actors.drafters.learned.base import Chain
from actors.drafters.learned.words import Words


def extend(chains: Sequence[Chain], logits: torch.Tensor, words: Words) -> None:
    """The next draft of each chain from its row of logits [chains, rows of the head]. Raises
    DrafterError naming the sessions whose logits are not finite."""
    bad: list[SessionKey] = []
    found = words.next(logits, [_prefix(chain) for chain in chains])
    for chain, draft in zip(chains, found, strict=True):
        if draft is None:
            bad.append(chain.session.key)
            continue
        token, law = draft
        chain.drafts.append(token)
        if law is not None:
            chain.laws.append(law)
        # Nothing follows an end, and whether it is one, the target decides (pitfalls S09); but a
        # length must not tell what was drawn (S16).
        chain.ended = not chain.drawn and _ends(chain, token, words)
    if bad:
        raise DrafterError("the drafter's logits are not finite", bad)


def plain(chain: Chain) -> bool:
    """Whether the largest logit is the next draft, and then every later one of the block."""
    return _prefix(chain).plain_greedy


def take(
    chains: Sequence[Chain],
    drafts: Sequence[Sequence[int]],
    tops: Sequence[Sequence[float]],
    words: Words,
) -> None:
    """Whole blocks of greedy drafts with their logits. Raises DrafterError as `extend` does."""
    bad: list[SessionKey] = []
    for chain, block, sizes in zip(chains, drafts, tops, strict=True):
        for token, size in zip(block[: chain.depth], sizes, strict=False):
            if not math.isfinite(size):
                bad.append(chain.session.key)
            if not math.isfinite(size) or chain.ended:
                break
            chain.drafts.append(token)
            chain.ended = _ends(chain, token, words)
    if bad:
        raise DrafterError("the drafter's logits are not finite", bad)


def _prefix(chain: Chain) -> Prefix:
    session = chain.session
    return Prefix(
        session.tokens + chain.drafts,
        session.prompt_len,
        session.sampling,
        session.length,
        chain.drawn,
    )


def _ends(chain: Chain, token: int, words: Words) -> bool:
    sampling = chain.session.sampling
    return token in sampling.stop_token_ids or (token in words.eos and not sampling.ignore_eos)
