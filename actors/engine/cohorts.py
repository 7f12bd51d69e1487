"""Which cohort a request of the engine is of, and what a step's cohorts have written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from actors.engine.batch import Segment
from actors.engine.events import TokenEvent
from actors.engine.sequence import Sequence as Running
from policies.cohorts import DEFAULT


def cohort_of(seq: Running) -> str:
    """ "" is the policy's name for everybody."""
    return seq.request.cohort or DEFAULT


def written(
    segments: Sequence[Segment], events: Iterable[TokenEvent]
) -> tuple[dict[str, int], dict[str, int]]:
    """By cohort: requests that were in a step, and the tokens they wrote in it."""
    cohorts = {s.sequence.request_id: cohort_of(s.sequence) for s in segments}
    writers: dict[str, int] = {}
    for cohort in cohorts.values():
        writers[cohort] = writers.get(cohort, 0) + 1
    tokens = dict.fromkeys(writers, 0)
    for event in events:
        if event.request_id in cohorts:
            tokens[cohorts[event.request_id]] += len(event.tokens)
    return writers, tokens
