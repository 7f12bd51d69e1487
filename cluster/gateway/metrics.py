"""The gateway's Prometheus metrics, counted from what was delivered (law L6).

Names and labels are vLLM's, so its dashboards and `vllm bench serve` work unchanged. With them

    acceptance rate        = rate(num_accepted_tokens) / rate(num_draft_tokens)
    mean acceptance length = 1 + rate(num_accepted_tokens) / rate(num_drafts)

D changes over time here, so a rate by position divides by the drafted tokens of that position
(`pilotfish:spec_decode_num_draft_tokens_per_pos`), not by all drafts. Every label comes from a
closed set; ids, paths and client-made names are never labels (R10).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from actors.exchange import status as port
from cluster.gateway.cells import OTHER, Cells, Count
from cluster.gateway.cohort_counts import CohortCounts
from cluster.gateway.engine_figures import EngineFigures
from policies.choice_reasons import MEANING
from policies.cohorts import DEFAULT

CONTENT_TYPE = CONTENT_TYPE_LATEST

_OF_THE_ENGINE = ("configured", "client", "limit", "evicted", "policy")
# Why a round had no draft: words of the policy, the port and the engine; anything else is "other".
REASONS = tuple(dict.fromkeys((*MEANING, *get_args(port.Reason), *_OF_THE_ENGINE)))
# Limits a request was refused for; a full Serve slot is the first one's doing.
LIMITS = ("max_num_queued_reqs", "max_num_queued_tokens")
FINISHED = ("stop", "length", "abort", "error")

_TTFT = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
_PER_TOKEN = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
    5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
_WHOLE = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
_TOKENS = tuple(m * 10**e for e in range(7) for m in (1, 2, 5))


class GatewayMetrics:
    """One registry of one gateway and one served model.

    positions: how many draft positions have labels, as vLLM has them: the configured D. Positions
    beyond share the last one. cohorts: all names there can be.
    """

    def __init__(
        self,
        model_name: str,
        positions: int,
        engine: str = "0",
        cohorts: Iterable[str] = (DEFAULT,),
    ) -> None:
        self.registry = CollectorRegistry()
        self._cells = Cells({"model_name": model_name, "engine": engine})
        self._labels = [str(k) for k in range(max(1, positions))]
        cohorts = tuple(cohorts)
        self.engines = EngineFigures(self._cells, cohorts)
        self.cohorts = CohortCounts(self._cells, cohorts)
        self._requests()
        self._latencies()
        self._speculation()
        self.registry.register(self._cells)

    def render(self) -> bytes:
        return generate_latest(self.registry)

    def rounds(self, reason: str) -> Count:
        """The counter of rounds without a draft for `reason`, or of "drafted" ones."""
        return self._rounds.get(reason) or self._rounds[OTHER]

    def delivered_rounds(self) -> dict[str, int]:
        """Those that there were, by `rounds`' reasons, the most first."""
        counts = Counter({reason: int(cell.value) for reason, cell in self._rounds.items()})
        return {reason: count for reason, count in counts.most_common() if count}

    def rejections(self, limit: str) -> Count:
        """The counter of requests refused because `limit` was reached."""
        return self._rejections.get(limit) or self._rejections[LIMITS[0]]

    def position(self, position: int) -> tuple[Count, Count]:
        """(drafted, accepted) counters of one draft position, from 0."""
        return self._positions[min(position, len(self._positions) - 1)]

    def _requests(self) -> None:
        self.running = self._cells.level("vllm:num_requests_running", "Requests that decode.")
        self.waiting = self._cells.level(
            "vllm:num_requests_waiting", "Requests before a first token."
        )
        self.prompt_tokens = self._cells.count("vllm:prompt_tokens", "Prompt tokens processed.")
        self.prompt_tokens_cached = self._cells.count(
            "vllm:prompt_tokens_cached", "Prompt tokens that a verifier had computed before."
        )
        self.prefix_queries = self._cells.count(
            "vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache."
        )
        self.prefix_hits = self._cells.count(
            "vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache."
        )
        self.generation_tokens = self._cells.count("vllm:generation_tokens", "Tokens delivered.")
        finished = self._cells.family(
            "vllm:request_success", "Finished requests.", "finished_reason", FINISHED
        )
        self.finished = finished
        self._rejections = self._cells.family(
            "vllm:admission_rejections", "Requests refused by a queue limit.", "reason", LIMITS
        )
        self.request_prompt_tokens = self._cells.spread(
            "vllm:request_prompt_tokens", "Prompt tokens of a request.", _TOKENS
        )
        self.request_generation_tokens = self._cells.spread(
            "vllm:request_generation_tokens", "Tokens delivered to a request.", _TOKENS
        )
        self.request_max_tokens = self._cells.spread(
            "vllm:request_params_max_tokens", "max_tokens of a request.", _TOKENS
        )

    def _latencies(self) -> None:
        self.ttft = self._cells.spread(
            "vllm:time_to_first_token_seconds", "Time to first token.", _TTFT
        )
        self.itl = self._cells.spread(
            "vllm:inter_token_latency_seconds",
            "Time between tokens: a delta of k tokens counts k times its k-th part.",
            _PER_TOKEN,
        )
        self.tpot = self._cells.spread(
            "vllm:request_time_per_output_token_seconds",
            "Mean time per output token after the first, of a request.",
            _PER_TOKEN,
        )
        self.e2e = self._cells.spread("vllm:e2e_request_latency_seconds", "Whole request.", _WHOLE)
        self.queue = self._cells.spread(
            "vllm:request_queue_time_seconds", "Time in the verifier's queue.", _WHOLE
        )
        self.prefill = self._cells.spread(
            "vllm:request_prefill_time_seconds", "Time in prefill.", _WHOLE
        )
        self.decode = self._cells.spread(
            "vllm:request_decode_time_seconds", "First token to last token.", _WHOLE
        )

    def _speculation(self) -> None:
        self.drafts = self._cells.count(
            "vllm:spec_decode_num_drafts", "Rounds that verified a draft."
        )
        self.draft_tokens = self._cells.count(
            "vllm:spec_decode_num_draft_tokens", "Drafted tokens verified."
        )
        self.accepted_tokens = self._cells.count(
            "vllm:spec_decode_num_accepted_tokens", "Drafted tokens accepted and delivered."
        )
        self.remote_accepted = self._cells.count(
            "pilotfish:remote_accepted_tokens", "Of the accepted: from blocks over the wire."
        )
        accepted = self._cells.family(
            "vllm:spec_decode_num_accepted_tokens_per_pos",
            "Accepted tokens per draft position.",
            "position",
            self._labels,
        )
        drafted = self._cells.family(
            "pilotfish:spec_decode_num_draft_tokens_per_pos",
            "Drafted tokens per draft position.",
            "position",
            self._labels,
        )
        self._positions = [(drafted[k], accepted[k]) for k in self._labels]
        self._rounds = self._cells.family(
            "pilotfish:rounds",
            "Decode rounds, drafted or by why nothing was drafted.",
            "reason",
            ("drafted", *REASONS, OTHER),
        )
