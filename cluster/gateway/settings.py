"""What the gateway's doors are configured with; one record for HTTP and gRPC."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from policies.cohorts import Cohorts

SpecMetrics = Literal["none", "summary", "detailed"]


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Limits and names of one gateway replica.

    served_model_name: the name clients use beside the model's own id, and the `model_name` label
        of the metrics.
    num_speculative_tokens: the configured D; 0 when the server never speculates. It fixes the
        length of the acceptance histogram (num_speculative_tokens + 1).
    api_key_env: environment variable that holds the API key; no key is wanted when it is unset.
    spec_metrics: vLLM's `--per-request-spec-decode-metrics`.
    max_body_bytes: a larger request body is refused with 413. It bounds what parsing one request
        can cost everybody; 2 MiB hold the ids of 250,000 tokens.
    write_timeout_s: a streaming client that takes nothing for so long is taken for gone.
    echo_request_id: answer with x-request-id; False behind Serve's proxy, which adds it itself.
    health_timeout_s: how long /health waits for a verifier's answer.
    cohorts: the rules that name each request's cohort; without any, all are of `default`.
    """

    served_model_name: str | None = None
    num_speculative_tokens: int = 0
    api_key_env: str = "PILOTFISH_API_KEY"
    spec_metrics: SpecMetrics = "summary"
    max_body_bytes: int = 2 * 1024 * 1024
    write_timeout_s: float = 60.0
    echo_request_id: bool = True
    health_timeout_s: float = 2.0
    cohorts: Cohorts = field(default_factory=Cohorts)
