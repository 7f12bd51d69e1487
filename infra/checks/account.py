"""What clients were sent beside what one process writes, and the report of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from one_process import Asked, Own, agreed

from pilotfish import Speculation, TokenScore


@dataclass(slots=True)
class Text:
    """What a client was sent."""

    ids: list[int] = field(default_factory=list)
    scores: list[TokenScore] = field(default_factory=list)
    speculation: Speculation = field(default_factory=Speculation)


@dataclass(frozen=True, slots=True)
class Compared:
    """same: texts that are one process's to the last token. off: the largest difference of a
    log-probability. differing: a line for each first difference; faults: those at no near-tie."""

    same: int
    off: float
    differing: tuple[str, ...]
    faults: tuple[str, ...]


def compare(
    asked: Sequence[Asked], owns: Sequence[Own], texts: Sequence[Text], bound: float
) -> Compared:
    """bound: of a log-probability's difference. A first token that differs is a fault where it was
    chosen by more than twice that."""
    same, off, differing, faults = 0, 0.0, [], []
    for one, own, text in zip(asked, owns, texts, strict=True):
        until = agreed(own, text.ids)
        if len(text.ids) != len(own.tokens) or len(text.scores) != len(text.ids):
            faults.append(f"{one.name}: {len(text.ids)} tokens, {len(text.scores)} scores")
        elif until == len(own.tokens):
            same += 1
        else:
            line = f"{one.name}: from token {until} on, chosen by {own.margins[until]:.1e}"
            differing.append(line)
            if own.margins[until] > 2 * bound:
                faults.append(line)
        for place, said in enumerate(text.scores[:until]):
            pairs = [(t.token, t.logprob) for t in (said, *said.top)]
            off = max(off, *(abs(p - own.logprob(place, t)) for t, p in pairs))
    if off > bound:
        faults.append(f"a log-probability is off by {off:.1e}, the bound is {bound:.1e}")
    return Compared(same, off, tuple(differing), tuple(faults))


class Account:
    """The report, written as it comes."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.faults: list[str] = []
        self._began = time.perf_counter()

    def say(self, line: str) -> None:
        self.lines.append(f"- {line} ({time.perf_counter() - self._began:.0f} s in)")
        print(self.lines[-1], flush=True)

    def texts(self, title: str, compared: Compared, texts: Sequence[Text], bound: float) -> None:
        drafted = sum(text.speculation.drafted for text in texts)
        accepted = sum(text.speculation.accepted for text in texts)
        self.say(
            f"{title}: {compared.same} of {len(texts)} texts are one process's; log-probabilities "
            f"off by at most {compared.off:.1e} of {bound:.1e}; {accepted} of {drafted} drafted "
            "tokens accepted"
        )
        for line in compared.differing:
            self.say(f"differs: {line}")
        self.faults += [f"{title}: {fault}" for fault in compared.faults]
