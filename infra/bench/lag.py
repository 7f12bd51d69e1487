"""Acceptance under lag: drafts made k tokens past the newest true feature (run-ahead, ADR 0010).

python infra/bench/lag.py --spec-bench question.jsonl --train DIR [--keep FILE]

One chain of k + 3 drafts from every position of what the target writes. Its last three are a block
drafted on the drafter's own guess of k tokens, with no features of them; where the guess is right
the block is of use, and is compared with the one that true features would have given there. "Told"
puts the text itself in place of the guess: what a drafter loses that knows the tokens of a commit
before their features, everywhere and not only where guessing is easy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from drafters import table
from held import Held, arguments, heading, hold

from actors.drafters.external_choose import Next, Prefix
from actors.training.examples import Example
from actors.training.replaying import right_drafts

BLOCK, LAGS = 3, (1, 2, 3, 4)
HEADS = (
    "drafter and lag",
    "guess right",
    "places",
    "right of 3, lagging",
    "with features",
    "kept",
    "told: right of 3",
    "with features ",
    "kept ",
)


class Told:
    """A drafter's choice of words that takes the first `lag` drafts from the text."""

    def __init__(self, words: Any, examples: Sequence[Example], lag: int) -> None:
        self._words, self._lag = words, lag
        self._texts = {tuple(e.tokens[: e.prompt_len].tolist()): e.tokens for e in examples}

    @property
    def eos(self) -> frozenset[int]:
        return frozenset()  # a chain goes on past an end, as a text does not

    def next(self, logits: torch.Tensor, prefixes: Sequence[Prefix]) -> list[Next | None]:
        found: list[Next | None] = self._words.next(logits, prefixes)
        return [self._told(p) or own for p, own in zip(prefixes, found, strict=True)]

    def _told(self, prefix: Prefix) -> Next | None:
        text, place = self._texts[tuple(prefix.tokens[: prefix.prompt_len])], len(prefix.tokens)
        if place - prefix.base >= self._lag or place >= len(text):
            return None
        return int(text[place]), None


@dataclass(frozen=True, slots=True)
class Tally:
    """places, and drafts right there: with the lag, and with true features."""

    places: int
    lagging: int
    fresh: int

    def cells(self) -> list[str]:
        if not self.places:
            return ["–", "–", "–"]
        kept = f"{self.lagging / self.fresh:.2f}" if self.fresh else "–"
        return [f"{self.lagging / self.places:.2f}", f"{self.fresh / self.places:.2f}", kept]


def tally(
    chains: Sequence[Sequence[int]], fresh: Sequence[Sequence[int]], lag: int
) -> tuple[Tally, float]:
    """chains: for each anchor of each answer, how many drafts of a long chain are right; fresh: the
    same of blocks. Over anchors after which `lag` tokens are right and another anchor is there; and
    the share of those among all that have one."""
    places = lagging = held = all_places = 0
    for chain, blocks in zip(chains, fresh, strict=True):
        for at in range(len(chain) - lag):
            all_places += 1
            if chain[at] >= lag:
                places += 1
                lagging += min(chain[at] - lag, BLOCK)
                held += min(blocks[at + lag], BLOCK)
    return Tally(places, lagging, held), places / max(1, all_places)


def rows_of(held: Held, mechanism: str, examples: Sequence[Example]) -> list[list[str]]:
    longest = BLOCK + max(LAGS)
    drafter: Any = held.drafter(mechanism, longest)
    most = drafter.info.max_block
    guessed = right_drafts(drafter, examples, held.taps, min(longest, most))
    words, rows = drafter.words, []
    for lag in LAGS:
        if lag + BLOCK > most:
            continue  # beyond the block that its weights were trained for
        drafter.words = Told(words, examples, lag)
        told = right_drafts(drafter, examples, held.taps, lag + BLOCK)
        own, share = tally(guessed, guessed, lag)
        known, _ = tally(told, guessed, lag)
        cells = [f"{share:.1%}", str(own.places), *own.cells(), *known.cells()]
        rows.append([f"{mechanism}, {lag}", *cells])
        print(" | ".join(rows[-1]), flush=True)
    return rows


def main() -> None:
    options = arguments(__doc__).parse_args()
    held = hold(options)
    command = f"python infra/bench/lag.py --spec-bench question.jsonl --valid {options.valid}"
    lines = heading("Acceptance under lag", command, held)
    for title, examples in held.sets.items():
        rows = [row for mechanism in held.shipped for row in rows_of(held, mechanism, examples)]
        lines += [f"### {title}", "", *table(HEADS, rows)]
    print("\n".join(lines))


if __name__ == "__main__":
    main()
