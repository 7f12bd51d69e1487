"""Standard decode: the port of an engine without drafters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from actors.contracts import Gathered, PortCommit, SessionView
from actors.exchange.status import LinkRecord
from policies.choice import Arm


class NoDrafts:
    """Implements `actors.contracts.DraftPort`; every row is a one-token step."""

    @property
    def taps(self) -> tuple[int, ...]:
        return ()

    @property
    def arms(self) -> tuple[Arm, ...]:
        return ()

    def open(self, view: SessionView) -> None:
        pass

    def prefilled(self, request_id: str, rows: int) -> None:
        pass

    def commit(self, commits: Sequence[PortCommit]) -> None:
        pass

    def gather(self, wanted: dict[str, int], worth_s: Mapping[str, float]) -> Gathered:
        return Gathered(missing=dict.fromkeys(wanted, "no-drafter"))

    def close(self, request_id: str, reason: str) -> None:
        pass

    def status(self) -> list[LinkRecord]:
        return []

    def shutdown(self) -> None:
        pass
