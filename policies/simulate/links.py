"""A verifier's side of its drafters: which session is where, who is silent, how soon blocks come.

The decisions are the served ones: policies.routing places sessions, policies.breaker isolates
drafters that are silent, policies.waiting learns arrivals and bounds the wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from policies import breaker as brk
from policies import waiting
from policies.routing import Candidate, choose
from policies.simulate.drafters import Drafter

FIRST_S = 2.0
LEAST_S = 0.25
"""When silence counts as a miss, as the exchange has it: before and after the first answer."""


@dataclass(slots=True)
class Link:
    """To one drafter. asked: request -> (when, base length, depth) of the newest open ask."""

    drafter: Drafter
    breaker: brk.Breaker = field(default_factory=brk.Breaker)
    arrivals: waiting.Arrivals = field(default_factory=waiting.Arrivals)
    asked: dict[int, tuple[float, int, int]] = field(default_factory=dict)
    answered: bool = False
    _law: waiting.ArrivalLaw | None = None
    _fresh: bool = True

    @property
    def law(self) -> waiting.ArrivalLaw | None:
        if not self._fresh:
            self._law, self._fresh = waiting.arrival_law(self.arrivals), True
        return self._law

    def ask(self, request: int, now_s: float, base: int, depth: int) -> None:
        if (old := self.asked.get(request)) is not None:
            self.arrivals = waiting.given_up(self.arrivals, now_s - old[0])
            self._fresh = False
        self.asked[request] = now_s, base, depth
        self.breaker = brk.ask(self.breaker, now_s)

    def heard(self, request: int, now_s: float, base: int) -> float | None:
        """An answer to the newest ask is a sample of the arrival law, and its seconds are returned;
        every answer is a sign of life."""
        self.breaker, self.answered = brk.answer(self.breaker, now_s), True
        asked = self.asked.get(request)
        if asked is not None and asked[1] == base:
            del self.asked[request]
            self.arrivals = waiting.arrived(self.arrivals, now_s - asked[0])
            self._fresh = False
            return now_s - asked[0]
        return None

    def missed(self, now_s: float) -> None:
        """A step in which none of its rows had a block."""
        least_s = LEAST_S if self.answered else FIRST_S
        patience_s = max(least_s, waiting.patience_s(self.law))
        self.breaker = brk.miss(self.breaker, now_s, patience_s)

    def ended(self, request: int, now_s: float) -> None:
        if self.asked.pop(request, None) is not None and not self.asked:
            self.breaker = brk.left(self.breaker, now_s)


class Links:
    """One verifier's links of one way, and its sessions' places."""

    def __init__(self, verifier: int, drafters: Iterable[Drafter]) -> None:
        self.verifier = verifier
        self.links = [Link(drafter) for drafter in drafters]
        self.places: dict[int, Link] = {}

    def up(self, now_s: float) -> bool:
        return any(brk.admission(link.breaker, now_s) != "none" for link in self.links)

    def latency_s(self) -> float | None:
        """Median of the quickest drafter."""
        laws = [law for link in self.links if (law := link.law) is not None and law.steps]
        return min((law.quantile(0.5) for law in laws), default=None)

    def place(self, request: int, now_s: float) -> Link | None:
        """The session's drafter, or a new one where that is isolated; a half-open drafter takes
        one session as its probe."""
        link = self.places.get(request)
        if link is not None and self._takes(link, request, now_s):
            return link
        if link is not None:
            self.leave(request, now_s)
        by_name = {str(i): link for i, link in enumerate(self.links)}
        candidates = [
            Candidate(name, link.drafter.sessions)
            for name, link in by_name.items()
            if self._takes(link, request, now_s)
        ]
        name = choose(f"{self.verifier}/{request}", candidates)
        if name is None:
            return None
        self.places[request] = by_name[name]
        by_name[name].drafter.sessions += 1
        return by_name[name]

    def leave(self, request: int, now_s: float) -> None:
        """The session is closed."""
        if (link := self.places.pop(request, None)) is not None:
            link.drafter.sessions -= 1
            link.ended(request, now_s)

    def _takes(self, link: Link, request: int, now_s: float) -> bool:
        state = brk.admission(link.breaker, now_s)
        if state != "one":
            return state == "all"
        return not link.asked or request in link.asked
