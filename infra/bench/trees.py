"""Would a tree of drafts beat a chain? Counted, without any tree code.

python infra/bench/trees.py --spec-bench question.jsonl --train DIR [--keep FILE]

A node of a tree is a path of ranks: (0, 1) is the drafter's second choice after its first. It is
accepted where the text takes exactly that path, so the drafter is led along the text and asked at
each step which rank the text's token has. The likeliest n paths on the validation answers are the
best tree of n nodes that does not look at the drafter's probabilities; it is then replayed on the
12 prompts, beside the chain of as many nodes.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from drafters import table
from held import TWELVE, Held, against, arguments, heading, hold, interval

from actors.drafters.external_choose import Next, Prefix
from actors.training.acceptance import replay
from actors.training.examples import Example
from actors.training.replaying import right_drafts
from policies.cost import Cost, profiled, seconds
from policies.rehearsal import Machine
from policies.rehearsal_recorded import GPU, MACHINE

DEPTH, WIDTH = 6, 4
NODES = (1, 2, 3, 4, 6, 8, 12, 16)
Path = tuple[int, ...]
Ranks = list[list[Path]]
"""For each anchor of each answer the ranks of the tokens that follow, as far as they are known."""


def curve(machine: Machine) -> Cost:
    return profiled(list(zip(machine.rows, machine.forward_s, strict=True)))


CURVES = {"two cores": (curve(MACHINE), 0.12), "H100": (curve(GPU), 0.05)}
"""What rows cost, as recorded: this model's stairs on two cores, and the fit of Llama-3.1-8B on an
H100, of one request's step. And one step of the drafter, in forwards of one row: 1 ms here; on the
GPU one layer of some thirty, with its head. A tree's level is one step however wide."""
PRICES: dict[str, tuple[Callable[[int], float], float]] = {
    name: (lambda rows, cost=cost: seconds(cost, rows) / seconds(cost, 1), step)  # type: ignore[misc]
    for name, (cost, step) in CURVES.items()
}


class Led:
    """A drafter's choice of words that follows the text, and notes the rank of each token of it."""

    def __init__(self, words: Any, examples: Sequence[Example]) -> None:
        self._words = words
        self._texts = {tuple(e.tokens[: e.prompt_len].tolist()): e.tokens for e in examples}
        self.ranks: dict[Path, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))

    @property
    def eos(self) -> frozenset[int]:
        return frozenset()

    def next(self, logits: torch.Tensor, prefixes: Sequence[Prefix]) -> list[Next | None]:
        full = self._words.spread(logits)
        return [self._next(row, prefix) for row, prefix in zip(full, prefixes, strict=True)]

    def _next(self, row: torch.Tensor, prefix: Prefix) -> Next:
        prompt, place = tuple(prefix.tokens[: prefix.prompt_len]), len(prefix.tokens)
        text = self._texts[prompt]
        if place >= len(text):
            return 0, None  # behind its end nothing is counted
        token = int(text[place])
        unknown = row[token] == float("-inf")
        rank = (
            -1
            if unknown
            else int((row > row[token]).sum()) + int((row[:token] == row[token]).sum())
        )
        self.ranks[prompt][prefix.base].append(rank)
        return token, None


def ranked(held: Held, mechanism: str, examples: Sequence[Example]) -> Ranks:
    drafter: Any = held.drafter(mechanism, DEPTH)
    drafter.words = led = Led(drafter.words, examples)
    right_drafts(drafter, examples, held.taps, DEPTH)
    found: Ranks = []
    for example in examples:
        by_anchor = led.ranks[tuple(example.tokens[: example.prompt_len].tolist())]
        anchors = range(example.prompt_len + 1, example.length)
        found.append([tuple(by_anchor[base]) for base in anchors])
    return found


def best_tree(ranks: Ranks, nodes: int) -> frozenset[Path]:
    """The paths that texts take most often; each comes with all its beginnings."""
    counts: Counter[Path] = Counter()
    for answer in ranks:
        for path in answer:
            for end in range(1, len(path) + 1):
                if not 0 <= path[end - 1] < WIDTH:
                    break
                counts[path[:end]] += 1
    order = sorted(counts, key=lambda p: (-counts[p], len(p), p))
    return frozenset(order[:nodes])


def chain(nodes: int) -> frozenset[Path]:
    return frozenset((0,) * n for n in range(1, min(nodes, DEPTH) + 1))


def accepted(ranks: Ranks, tree: frozenset[Path]) -> list[list[int]]:
    """For each anchor the tokens of the longest path that the text takes."""
    return [
        [max((n for n in range(1, len(p) + 1) if p[:n] in tree), default=0) for p in answer]
        for answer in ranks
    ]


@dataclass(frozen=True, slots=True)
class Shape:
    """A set of nodes on the answers it is judged by. length: tokens a round; steps: of the
    drafter, one a level."""

    right: list[list[int]]
    rows: int
    steps: int

    @property
    def length(self) -> float:
        runs = [replay(answer, DEPTH) for answer in self.right]
        return sum(r.tokens for r in runs) / sum(r.rounds for r in runs)

    def gain(self, verify: Callable[[int], float], step: float) -> float:
        """Over standard decode."""
        return self.length / (verify(1 + self.rows) + step * self.steps)


def shape(ranks: Ranks, tree: frozenset[Path]) -> Shape:
    return Shape(accepted(ranks, tree), len(tree), max(map(len, tree)))


def described(tree: frozenset[Path]) -> str:
    """Nodes by level, and of them those behind the first choice alone."""
    levels = Counter(map(len, tree))
    return "-".join(str(levels[n]) for n in sorted(levels))


def compared(fitted: Ranks, judged: Ranks) -> tuple[list[list[str]], list[list[str]]]:
    """Rows by number of nodes; and by price, the best chain and the best tree of any number."""
    rows, best = [], dict[str, list[tuple[float, str]]]()
    for nodes in NODES:
        tree, line = best_tree(fitted, nodes), chain(nodes)
        wide, long = shape(judged, tree), shape(judged, line)
        over = interval(against(DEPTH, wide.right, long.right))
        gains = []
        for name, (verify, step) in PRICES.items():
            pair = long.gain(verify, step), wide.gain(verify, step)
            gains += [f"{gain:.2f}" for gain in pair]
            for kind, gain in zip(("chain", "tree"), pair, strict=True):
                best.setdefault(f"{name}, {kind}", []).append((gain, str(nodes)))
        lengths = [f"{long.length:.3f}", f"{wide.length:.3f}"]
        rows.append([str(nodes), described(tree), *lengths, over, *gains])
    tops = [[name, *_top(found)] for name, found in best.items()]
    return rows, tops


def _top(found: Sequence[tuple[float, str]]) -> tuple[str, str]:
    gain, nodes = max(found)
    return f"{gain:.3f}", nodes


def position_table(ranks: Ranks) -> list[list[str]]:
    """By position: P(the text's token is among the first k choices | those before it were led)."""
    rows = []
    for place in range(DEPTH):
        here = [p[place] for answer in ranks for p in answer if len(p) > place]
        shares = [sum(0 <= r < k for r in here) / len(here) for k in (1, 2, 3, 4)]
        unknown = sum(r < 0 for r in here) / len(here)
        rows.append([str(place + 1), *(f"{s:.3f}" for s in shares), f"{unknown:.3f}"])
    return rows


def section(held: Held, mechanism: str) -> list[str]:
    (valid,) = [title for title in held.sets if title != TWELVE]
    found = {title: ranked(held, mechanism, examples) for title, examples in held.sets.items()}
    lines = []
    for title in held.sets:
        heads = ("position", "first", "of 2", "of 3", "of 4", "not in its vocabulary")
        lines += [f"### {mechanism}, {title}: the text's token among the first choices", ""]
        lines += table(heads, position_table(found[title]))
    costs = [f"{name}: {kind}" for name in PRICES for kind in ("chain", "tree")]
    heads = ("nodes", "by level", "chain", "tree", "tree / chain", *costs)
    for title in (TWELVE, valid):
        rows, tops = compared(found[valid], found[title])
        lines += [f"### {mechanism}, {title}: acceptance length, and gain over standard decode", ""]
        lines += [*table(heads, rows), *table(("best of any size", "gain", "nodes"), tops)]
    return lines


def main() -> None:
    parser: argparse.ArgumentParser = arguments(__doc__)
    parser.set_defaults(mechanisms=["eagle3"])
    options = parser.parse_args()
    held = hold(options)
    command = f"python infra/bench/trees.py --spec-bench question.jsonl --valid {options.valid}"
    lines = heading("Trees beside chains", command, held)
    for mechanism in held.shipped:
        lines += section(held, mechanism)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
