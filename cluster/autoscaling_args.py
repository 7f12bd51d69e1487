"""`autoscaling:` of the configuration: how many replicas there may be, and what asks for more.

Names are Ray Serve's where it has them (`autoscaling_config`), with defaults for engines whose
load moves by the second.
"""

from __future__ import annotations

from collections.abc import Collection

from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Scaling(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    min_replicas: int = Field(1, ge=0, le=1024)
    max_replicas: int = Field(ge=1, le=1024)
    initial_replicas: int | None = Field(
        None, ge=0, le=1024, description="At the first deployment; default: min_replicas."
    )
    upscale_delay_s: float = Field(
        5.0, ge=0, description="For so long every look must have asked for more replicas."
    )
    downscale_delay_s: float = Field(
        300.0, ge=0, description="For so long no look may have had a use for a replica that goes."
    )
    metrics_interval_s: float = Field(
        1.0, gt=0, description="Seconds between two reports of a replica."
    )
    look_back_period_s: float = Field(
        5.0, gt=0, description="Reports of so many seconds are averaged."
    )

    @model_validator(mode="after")
    def _consistent(self) -> _Scaling:
        if self.min_replicas > self.max_replicas:
            raise ValueError(
                f"min_replicas {self.min_replicas} is more than max_replicas {self.max_replicas}"
            )
        if not self.min_replicas <= self.first <= self.max_replicas:
            raise ValueError(
                f"initial_replicas {self.first} is not within min_replicas {self.min_replicas} "
                f"and max_replicas {self.max_replicas}"
            )
        if self.metrics_interval_s >= self.look_back_period_s:
            raise ValueError(
                f"look_back_period_s {self.look_back_period_s:g} must be longer than "
                f"metrics_interval_s {self.metrics_interval_s:g}"
            )
        if self.downscale_delay_s < self.look_back_period_s:
            raise ValueError(
                f"downscale_delay_s {self.downscale_delay_s:g} is shorter than look_back_period_s "
                f"{self.look_back_period_s:g}: the average still shows a load that has gone"
            )
        return self

    @property
    def first(self) -> int:
        """Replicas at the first deployment."""
        return self.min_replicas if self.initial_replicas is None else self.initial_replicas


class VerifierScaling(_Scaling):
    """Verifiers are added where even standard decode would be too slow: D is spent before."""

    min_replicas: int = Field(1, ge=1, le=1024)
    target_ongoing_requests: float | None = Field(
        None,
        ge=1,
        description="Requests of one verifier, at most, running and waiting; default: "
        "max_num_seqs.",
    )
    target_itl_s: float | None = Field(
        None, gt=0, description="Seconds from token to token (ITL), on average."
    )
    target_ttft_s: float | None = Field(
        None, gt=0, description="Seconds in which waiting prompts are to be read (TTFT)."
    )
    target_kv_cache_usage: float = Field(
        0.9, gt=0, le=1, description="Share of the KV blocks in use, at most."
    )


class DrafterScaling(_Scaling):
    """min_replicas 0: a pool that no cohort wants goes, and the policy wakes it."""

    target_busy_share: float = Field(
        0.6, gt=0, le=1, description="Of a drafter's time, spent drafting."
    )
    target_late_share: float = Field(
        0.1, gt=0, le=1, description="Of the blocks asked for, those that come too late."
    )
    downscale_to_zero_delay_s: float | None = Field(
        None, ge=0, description="For the last drafter; default: downscale_delay_s."
    )


class Autoscaling(BaseModel):
    """A pool without an entry keeps its num_replicas."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    verifier: VerifierScaling | None = None
    drafter: DrafterScaling | None = Field(
        None, description="Each pool of remote drafters by itself."
    )

    def check(self, counted: Collection[str], *, remote: bool) -> None:
        """Raises ValueError for a pool that is scaled and counted, and for one that is not there.

        counted: the fields that say how many replicas, of those that were given. remote: whether
        there are drafters of their own."""
        for name, scaled in (("verifier", self.verifier), ("drafter", self.drafter)):
            clash = sorted(field for field in counted if name in field)
            if scaled is not None and clash:
                raise ValueError(
                    f"{clash[0]} and autoscaling.{name} exclude each other; initial_replicas says "
                    "with how many it starts"
                )
        if self.drafter is not None and not remote:
            raise ValueError("autoscaling.drafter: there are no drafters of their own to scale")
