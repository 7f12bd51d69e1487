"""The mechanism, placement and depth of each cohort that make a batch's tokens per second most.

    maximise   Σ_r E[tokens_r] / (T_verify(rows) + X),   X = the longest draft and wire that is used

Rows of one cohort are alike in what is known of them, so the choice is per cohort; which rows of a
step are then verified is the budget's question, once blocks have come (`policies.choice_rows`).
Standard decode is one of the options everywhere. Cohorts meet in one step and share its time, so
they are improved in turn until none can be, from what is held now and from nothing drafted; each
turn looks at every mechanism and depth, because cost comes in stairs. Pure arithmetic: tens of
microseconds for a cohort and two mechanisms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from policies.estimate import Outlook

SWEEPS = 3
"""Turns of all cohorts; more change nothing that hysteresis would not swallow."""


@dataclass(frozen=True, slots=True, order=True)
class Arm:
    """One way to draft: a mechanism at a placement. timings: what its drafter measured of itself at
    its start, (sessions, depth, seconds); read_s: and of reading a prompt, seconds of the target's
    thread a token, 0 where it takes none. Neither is part of what it is."""

    mechanism: str
    remote: bool = True
    max_depth: int = 8
    timings: Sequence[tuple[int, int, float]] = field(default=(), compare=False, repr=False)
    read_s: float = field(default=0.0, compare=False, repr=False)

    @property
    def placement(self) -> str:
        return "remote" if self.remote else "colocated"


@dataclass(frozen=True, slots=True)
class Pick:
    """What one cohort does: `arm` None and depth 0 are standard decode."""

    arm: Arm | None = None
    depth: int = 0


STANDARD = Pick()
Picks = Mapping[str, Pick]


@dataclass(frozen=True, slots=True)
class Group:
    """Requests of a batch that are alike: so many of one cohort, each with at most `limit` drafted
    tokens (the client's wish, and what it may still write)."""

    cohort: str
    count: int
    limit: int


@dataclass(frozen=True, slots=True)
class Costs:
    """step_s: seconds of a step by rows, of this batch. block_s: seconds of blocks by (arm,
    sessions, depth), the wire included. other_rows: of prompts, in the same step."""

    step_s: Callable[[float], float]
    block_s: Callable[[Arm, int, int], float]
    other_rows: int = 0


class Batch:
    """What a step is made of and what each option would bring in it.

    outlooks: by cohort, what each arm is expected to bring. Cohorts without any decode as ever.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        outlooks: Mapping[str, Mapping[Arm, Outlook]],
        costs: Costs,
    ) -> None:
        self.costs = costs
        self.writers = sum(group.count for group in groups)
        self.cohorts = sorted({group.cohort for group in groups})
        self._groups = {c: [g for g in groups if g.cohort == c] for c in self.cohorts}
        self._brought = {
            (cohort, arm): _brought(outlook)
            for cohort in self.cohorts
            for arm, outlook in outlooks.get(cohort, {}).items()
        }
        self.options = {
            cohort: [arm for of, arm in self._brought if of == cohort] for cohort in self.cohorts
        }

    def rate(self, picks: Picks) -> float:
        """Expected tokens per second of a step in which cohorts do as picked."""
        tokens, rows, drafting = self._sums(picks, "")
        exposed = max((self.costs.block_s(arm, *use) for arm, use in drafting.items()), default=0.0)
        return tokens / (self.costs.step_s(rows) + exposed)

    def best_for(self, cohort: str, picks: Picks) -> tuple[Pick, float]:
        """The best pick of one cohort while the others keep theirs; of equals, the shallowest."""
        tokens, rows, drafting = self._sums(picks, cohort)
        step_s, block_s, groups = self.costs.step_s, self.costs.block_s, self._groups[cohort]
        exposed = {arm: block_s(arm, *use) for arm, use in drafting.items()}
        best, most = STANDARD, tokens / (step_s(rows) + max(exposed.values(), default=0.0))
        for arm in self.options[cohort]:
            right, came = self._brought[cohort, arm]
            beside = max((s for other, s in exposed.items() if other != arm), default=0.0)
            sessions, deepest = drafting.get(arm, (0, 0))
            sessions += sum(group.count for group in groups if group.limit)
            last = min(len(right) - 1, max(group.limit for group in groups))
            more, drafted, going = 0.0, 0.0, [(group.limit, group.count) for group in groups]
            for depth in range(1, last + 1):
                count = sum(count for limit, count in going if limit >= depth)
                more += count * (right[depth] - right[depth - 1])
                drafted += count * (came[depth] - came[depth - 1])
                written = tokens + more
                seconds = step_s(rows + drafted)
                seconds += max(beside, block_s(arm, sessions, max(deepest, depth)))
                if written > most * seconds:
                    best, most = Pick(arm, depth), written / seconds
        return best, most

    def _sums(self, picks: Picks, without: str) -> tuple[float, float, dict[Arm, tuple[int, int]]]:
        """Tokens and rows of a step, and (sessions, depth) of each arm that drafts in it, where the
        cohort `without` decodes as ever."""
        tokens, rows = float(self.writers), float(self.writers + self.costs.other_rows)
        drafting: dict[Arm, tuple[int, int]] = {}
        for cohort in self.cohorts:
            pick = picks.get(cohort, STANDARD)
            if cohort == without or pick.arm is None or (cohort, pick.arm) not in self._brought:
                continue
            right, came = self._brought[cohort, pick.arm]
            for group in self._groups[cohort]:
                depth = min(pick.depth, group.limit, len(right) - 1)
                if depth < 1:
                    continue
                tokens += group.count * right[depth]
                rows += group.count * came[depth]
                sessions, deepest = drafting.get(pick.arm, (0, 0))
                drafting[pick.arm] = sessions + group.count, max(deepest, depth)
        return tokens, rows, drafting


def choose(batch: Batch, held: Picks) -> tuple[dict[str, Pick], float]:
    """The best picks found and their rate; never below that of `held`, nor of standard decode."""
    everyone = dict.fromkeys(batch.cohorts, STANDARD)
    starts = [everyone]
    now = {cohort: held.get(cohort, STANDARD) for cohort in batch.cohorts}
    if now != everyone and len(batch.cohorts) > 1:
        starts.append(now)
    found = [_climbed(batch, start) for start in starts]
    return max(found, key=lambda f: f[1])


def _climbed(batch: Batch, start: dict[str, Pick]) -> tuple[dict[str, Pick], float]:
    picks, rate = start, batch.rate(start)
    for _ in range(SWEEPS):
        before = rate
        for cohort in batch.cohorts:
            pick, better = batch.best_for(cohort, picks)
            if better > rate:
                picks, rate = {**picks, cohort: pick}, better
        if rate <= before or len(batch.cohorts) == 1:
            break
    return picks, rate


def _brought(outlook: Outlook) -> tuple[list[float], list[float]]:
    """Right tokens and verified rows expected of a block, by the depth that is asked for."""
    pairs = list(zip(outlook.survive, outlook.reach, strict=True))
    right = accumulate((alive * came for alive, came in pairs), initial=0.0)
    return list(right), list(accumulate((came for _, came in pairs), initial=0.0))
