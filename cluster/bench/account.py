"""From all attempts to the figures that are reported and the legs that are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cluster.bench.attempt import Attempt
from cluster.bench.legs import STANDARD, Leg
from cluster.bench.record import Refused
from cluster.bench.schedule import Setting
from cluster.bench.servers import Server
from cluster.bench.summary import LegFigures, summarise


def account(
    attempts: Sequence[Attempt], servers: Mapping[Leg, Server]
) -> tuple[tuple[LegFigures, ...], tuple[Refused, ...]]:
    """One refused run refuses its leg in that setting: the runs before it are not to be trusted
    either. Where standard decode is refused there is nothing to compare with, and nothing is
    reported (law L6)."""
    figures: list[LegFigures] = []
    refused: list[Refused] = []
    groups: dict[Setting, dict[Leg, list[Attempt]]] = {}
    for attempt in attempts:
        cell = attempt.cell
        groups.setdefault(cell.setting, {}).setdefault(cell.leg, []).append(attempt)
    for setting, by_leg in groups.items():
        reasons = {leg: _reason(leg, setting, runs) for leg, runs in by_leg.items()}
        baseless = reasons.get(STANDARD)
        for leg, runs in _standard_first(by_leg):
            reason = reasons[leg]
            if reason is None and baseless is not None:
                text = "there is no standard decode to compare with"
                reason = Refused(leg.name, setting.temperature, setting.load.name, 0, text)
            if reason is not None:
                refused.append(reason)
                continue
            server = servers[leg]
            figures.append(
                summarise(
                    leg,
                    setting,
                    runs,
                    by_leg.get(STANDARD, []),
                    devices=server.devices,
                    keeps=server.keeps,
                )
            )
    return tuple(figures), tuple(refused)


def _standard_first(by_leg: Mapping[Leg, list[Attempt]]) -> list[tuple[Leg, list[Attempt]]]:
    return sorted(by_leg.items(), key=lambda item: not item[0].standard)


def _reason(leg: Leg, setting: Setting, runs: Sequence[Attempt]) -> Refused | None:
    for attempt in runs:
        if attempt.refused is not None:
            return Refused(
                leg.name,
                setting.temperature,
                setting.load.name,
                attempt.cell.run,
                attempt.refused,
            )
    return None
