"""The engine's own choice of rows (actors.engine.speculation) as a simulated verifier's policy: one
way, asked for as much as it drafts, verified as far as it pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from actors.contracts import Draft, Gathered
from actors.engine.speculation import Speculation
from policies.cost import Cost
from policies.simulate.policy import Ask, Offer, Score, Stepped, StepView


class EngineLeg:
    """A block's worth is told once the text shows it, as that of blocks that came too late is: the
    engine scores both alike, and a simulated block has no tokens to compare."""

    def __init__(self, way: str, cost: Cost) -> None:
        self.way = way
        self._judge = Speculation(cost)

    def ask(self, view: StepView) -> Sequence[Ask]:
        way = view.ways[self.way]
        if not way.up or self._judge.hopeless(len(view.rows), way.max_depth):
            return ()
        wishes = [(row, min(way.max_depth, row.left)) for row in view.rows]
        asks = [(row, self._judge.ask(str(row.request), depth)) for row, depth in wishes]
        return [Ask(row.request, self.way, depth) for row, depth in asks if depth > 0]

    def worth_s(self, view: StepView, missing: Sequence[Ask]) -> float:
        wanted = {str(ask.request): ask.depth for ask in missing}
        return sum(self._judge.worth(wanted, len(view.rows)).values())

    def choose(self, view: StepView, offers: Sequence[Offer]) -> Mapping[int, tuple[str, int]]:
        remote = view.ways[self.way].remote
        drafts = {
            str(offer.request): Draft((0,) * offer.size, self.way, remote) for offer in offers
        }
        chosen = self._judge.select(drafts, len(view.rows), view.prompt_rows)
        return {int(request): (self.way, len(draft.tokens)) for request, draft in chosen.items()}

    def scored(self, score: Score) -> None:
        request = str(score.request)
        if score.size:
            self._judge.heard(Gathered(overtaken={request: (score.size, score.right)}))
        else:
            self._judge.heard(Gathered(missing={request: "empty"}))

    def late(self, asks: Sequence[Ask]) -> None:
        self._judge.heard(Gathered(missing={str(ask.request): "late" for ask in asks}))

    def stepped(self, step: Stepped) -> None:
        if not step.prompt_rows:
            self._judge.observe(step.rows, step.forward_s)

    def forget(self, request: int) -> None:
        self._judge.forget(str(request))
