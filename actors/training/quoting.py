"""Prompts followed by stretches of their own text, as by an answer that quotes them.

Copying from a long prompt is most of what a drafter can know there, and the answers of a small
target do little of it. A quotation is read in one go where an answer is written token by token,
and the target's law at each of its positions is as exact as in an answer.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from actors.training.chain_rows import TEMPLATE
from actors.training.prompts import Prompt, every

LEAST, MOST = 12, 48
"""Tokens of one stretch."""
TAIL = 8
"""Last tokens of a prompt, which a chat template gives all of them."""
BEHIND = 4
"""Prompts between a prompt and its quotation: by then it has been read, and the quotation finds it
in the prefix cache."""


def with_quotations(
    prompts: Iterable[tuple[Prompt, tuple[int, ...]]], share: float, length: int, seed: int = 0
) -> Iterator[tuple[Prompt, tuple[int, ...]]]:
    """The prompts as they come, and for a `share` of those that are long enough another one, some
    places behind, that ends with about `length` tokens quoted from it."""
    waiting = deque[tuple[int, tuple[Prompt, tuple[int, ...]]]]()
    long = 0
    for i, (prompt, ids) in enumerate(prompts):
        while waiting and waiting[0][0] <= i:
            yield waiting.popleft()[1]
        yield prompt, ids
        if len(ids) < TEMPLATE + MOST + TAIL or length < LEAST:
            continue
        if every(long, share):
            waiting.append((i + BEHIND, quotation(prompt, ids, length, seed)))
        long += 1
    for _, item in waiting:
        yield item


def quotation(
    prompt: Prompt, ids: tuple[int, ...], length: int, seed: int = 0
) -> tuple[Prompt, tuple[int, ...]]:
    """The prompt and at most `length` tokens more, LEAST at least, in stretches from anywhere in
    its text, in its order."""
    rng = random.Random(f"{seed}/{prompt.name}")
    sizes: list[int] = []
    while length - sum(sizes) >= LEAST:
        sizes.append(rng.randint(LEAST, min(MOST, length - sum(sizes))))
    last = len(ids) - TAIL
    starts = sorted(rng.randrange(TEMPLATE, last - LEAST) for _ in sizes)
    quoted = [
        token
        for start, size in zip(starts, sizes, strict=True)
        for token in ids[start : min(last, start + size)]
    ]
    named = replace(prompt, name=f"{prompt.name}-quoted", quoted=len(quoted))
    return named, (*ids, *quoted)
