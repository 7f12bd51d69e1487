"""The serving drafter, held against answers that a greedy target has written: at every position it
is told what was committed and asked for a block. What it would have accepted is exact."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from actors.contracts import Commit, Drafter, DraftRequest, OpenSession, SessionKey
from actors.sampling.params import SamplingParams
from actors.training.errors import TrainingError
from actors.training.examples import Example

GREEDY = SamplingParams(temperature=0.0)


def right_drafts(
    drafter: Drafter, examples: Sequence[Example], taps: Sequence[int], depth: int
) -> list[list[int]]:
    """For each anchor of each answer, how many drafts in a row are right. taps: of the examples'
    features. Raises TrainingError where the drafter reads others."""
    columns = _columns(drafter.info.taps, taps, examples[0].features.shape[1])
    keys = [SessionKey("replay", str(i)) for i in range(len(examples))]
    rows = [e.features[:, columns] if len(columns) else None for e in examples]
    at = [e.prompt_len + 1 for e in examples]  # committed tokens: the first answer token is
    drafter.open(
        [
            OpenSession(
                key,
                tuple(e.tokens[:n].tolist()),
                GREEDY,
                features=None if r is None else r[: n - 1],
                prompt_len=e.prompt_len,
            )
            for key, e, n, r in zip(keys, examples, at, rows, strict=True)
        ]
    )
    right: list[list[int]] = [[] for _ in examples]
    live = list(range(len(examples)))
    while live:
        for i, drafts in zip(live, _blocks(drafter, [keys[i] for i in live], depth), strict=True):
            text = examples[i].tokens[at[i] : at[i] + len(drafts)].tolist()
            agreed = [a == b for a, b in zip(drafts, text, strict=False)]
            right[i].append((*agreed, False).index(False))
        live = [i for i in live if at[i] < examples[i].length - 1]
        commits = []
        for i in live:
            n, row = at[i], rows[i]
            token = int(examples[i].tokens[n])
            fresh = None if row is None else row[n - 1 : n]
            commits.append(Commit(keys[i], len(right[i]), n, (token,), fresh, depth))
            at[i] += 1
        drafter.observe(commits)
    for key in keys:
        drafter.close(key)
    return right


def _blocks(drafter: Drafter, keys: Sequence[SessionKey], depth: int) -> list[tuple[int, ...]]:
    """A block for each, asked again while a prompt is still being read."""
    found: dict[SessionKey, tuple[int, ...]] = {}
    waiting = list(keys)
    while waiting:
        proposals = drafter.propose([DraftRequest(key, depth) for key in waiting])
        found |= {p.key: p.tokens for p in proposals if not p.cold}
        waiting = [p.key for p in proposals if p.cold]
    return [found[key] for key in keys]


def _columns(wanted: Sequence[int], taps: Sequence[int], width: int) -> torch.Tensor:
    """Columns of recorded features that are the drafter's."""
    size = width // max(1, len(taps))
    missing = [tap for tap in wanted if tap not in taps]
    if missing:
        raise TrainingError(f"hidden state {missing[0]} is not recorded; there are {list(taps)}")
    starts = [list(taps).index(tap) * size for tap in wanted]
    return torch.tensor([s + i for s in starts for i in range(size)], dtype=torch.long)
