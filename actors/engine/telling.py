"""What the policy hears of steps: learning takes time, so steps that are alike are told at once.

Alike are steps of one kind and batch within one period of the control, none of them the first after
a window. Of several the last one's rows, forward and drafting are told, of time and tokens the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from policies.choice_records import Decision, Drafted, Moment, Outcome
from policies.control import Windows

TOGETHER = 4
"""Steps that are told at once; of a stretch in which nobody is drafted for:"""
STILL_TOGETHER = 16


@dataclass(frozen=True, slots=True)
class Stretch:
    """Of one step, what came of it. tokens: by cohort. rows: of the forward that took forward_s;
    step_s: the whole step."""

    moment: Moment
    decision: Decision
    rows: int
    forward_s: float
    step_s: float
    tokens: Mapping[str, int]
    drafted: Sequence[Drafted]


class Telling:
    """One engine's, on its thread. tell: hears of steps."""

    def __init__(self, windows: Callable[[], Windows], tell: Callable[[Outcome], None]) -> None:
        self._windows, self._tell = windows, tell
        self._last: Stretch | None = None
        self._step_s, self._steps = 0.0, 0
        self._tokens: dict[str, float] = {}
        self._drafted: Sequence[Drafted] = ()

    def add(self, now: Stretch, *, most: int) -> None:
        """After a step. most: steps after which they are told, 1: by itself."""
        if self._last is not None and not self._alike(self._last, now):
            self._flush()
        self._last = now
        self._steps += 1
        self._step_s += now.step_s
        for cohort, count in now.tokens.items():
            self._tokens[cohort] = self._tokens.get(cohort, 0.0) + count
        self._drafted = now.drafted or self._drafted
        if self._steps >= most:
            self._flush()

    def again(self, step: int, step_s: float) -> bool:
        """After a step like the last one, of which only the time is news. False: it has to be
        added."""
        last, period_of = self._last, self._windows().period_of
        if last is None or self._steps >= STILL_TOGETHER - 1:
            return False
        if period_of(step) != period_of(last.moment.step):
            return False
        self._steps += 1
        self._step_s += step_s
        for cohort, count in last.tokens.items():
            self._tokens[cohort] += count
        return True

    def _flush(self) -> None:
        if (last := self._last) is None:
            return
        told = Outcome(
            last.moment,
            last.decision,
            last.rows,
            last.forward_s,
            self._step_s,
            self._tokens,
            drafted=self._drafted,
            steps=self._steps,
        )
        self._last, self._tokens, self._drafted = None, {}, ()
        self._step_s, self._steps = 0.0, 0
        self._tell(told)

    def _alike(self, last: Stretch, now: Stretch) -> bool:
        windows, one, other = self._windows(), last.moment, now.moment
        return (
            last.decision.kind == now.decision.kind
            and one.groups == other.groups
            and windows.period_of(one.step) == windows.period_of(other.step)
            and not windows.settling(one.step)
            and not windows.settling(other.step)
        )
