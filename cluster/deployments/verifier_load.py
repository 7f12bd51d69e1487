"""What a verifier tells Serve's autoscaler: load that Serve cannot see, for tokens never pass
through it. Pure, but for the counts that rates are taken of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cluster.autoscaling_args import VerifierScaling
from policies import cost
from policies.autoscale_capacity import Capacity, capacity

STEPS = "standard_steps"
RATE_S = 2.0
"""Rates are of so many seconds at least: steps are no continuum."""


class VerifierLoadReport:
    """`report` gives the fields of `policies.autoscale_verifiers.VerifierLoad`, by name, and
    `kv_used_share`. scaling: None where verifiers are not scaled."""

    def __init__(self, scaling: VerifierScaling | None, max_num_seqs: int, block_size: int) -> None:
        self._itl_s = None if scaling is None else scaling.target_itl_s
        most = None if scaling is None else scaling.target_ongoing_requests
        self._most = float(max_num_seqs if most is None else most)
        self._max_num_seqs = max_num_seqs
        self._block_size = block_size
        self._since: tuple[float, float, float] | None = None
        self._rates = (0.0, 0.0)
        self._stats: Mapping[str, Any] = {}

    def note(self, stats: Mapping[str, Any], now_s: float) -> None:
        """Newer statistics of the engine (`EngineService.stats`)."""
        self._stats = stats
        counts = _number(stats, "tokens"), _number(stats, "prefill_tokens")
        if self._since is None:
            self._since = now_s, *counts
        passed_s = now_s - self._since[0]
        if passed_s >= RATE_S:
            before = self._since[1:]
            written, read = (max(b - a, 0.0) for a, b in zip(before, counts, strict=True))
            self._rates = written / passed_s, read / passed_s
            self._since = now_s, *counts

    def report(self) -> dict[str, float]:
        stats = self._stats
        total = _number(stats, "total_blocks")
        used = total - _number(stats, "free_blocks")
        waiting_tokens = _number(stats, "waiting_tokens")
        most = self._capacity()
        return {
            "running": _number(stats, "running"),
            "waiting": _number(stats, "waiting"),
            "waiting_tokens": waiting_tokens,
            "kv_used_share": used / total if total else 0.0,
            "kv_wanted_share": (used + waiting_tokens / self._block_size) / total if total else 0.0,
            "tokens_s": self._rates[0],
            "prompt_tokens_s": self._rates[1],
            "most_requests": self._most,
            "batch": most.batch,
            "most_tokens_s": most.tokens_s,
            "most_prompt_tokens_s": most.prompt_tokens_s,
        }

    def _capacity(self) -> Capacity:
        """By the steps that the engine measures, if it does."""
        steps = [(int(rows), float(seconds)) for rows, seconds in self._stats.get(STEPS, ())]
        if not steps:
            return Capacity()
        curve = cost.profiled(steps)
        return capacity(
            lambda requests: cost.seconds(curve, round(requests)),
            itl_s=self._itl_s,
            most=min(self._most, float(self._max_num_seqs)),
            prompt_rows=max(rows for rows, _ in steps),
        )


def _number(stats: Mapping[str, Any], name: str) -> float:
    return float(stats.get(name, 0.0))
