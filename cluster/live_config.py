"""What may be changed while serving: the Policy deployment's `user_config`, and its `configure`.

user_config:
  num_speculative_tokens: 6
  control: {steps: 2, period: 128}
  cohorts:
    chat: {num_speculative_tokens: 2}
    batch: {speculation: false}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from actors.policy.options import PolicyOptions
from cluster.deployments.arguments import ArgumentsError, explained
from policies.cohorts import MAX_COHORTS
from policies.control import Windows
from policies.live import Settings


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CohortLimit(_Strict):
    """For one cohort; what is left out is as for all."""

    speculation: bool = True
    num_speculative_tokens: int | None = Field(
        None, ge=0, le=32, description="The most for this cohort; 0 is off."
    )


class ControlShare(_Strict):
    """Steps of standard decode in each period of steps, by which speculation is measured (law L4).
    0 steps measure nothing: then a replica of standard decode should."""

    steps: int = Field(2, ge=0, le=4096)
    period: int = Field(128, ge=2, le=65536)

    @model_validator(mode="after")
    def _half_at_most(self) -> ControlShare:
        if 2 * self.steps > self.period:
            raise ValueError(f"{self.steps} steps are more than half of a period of {self.period}")
        return self


class LiveConfig(_Strict):
    """Everything that `user_config` may have."""

    speculation: bool = Field(True, description="false: standard decode for everybody.")
    num_speculative_tokens: int | None = Field(
        None, ge=0, le=32, description="D, the most for any cohort; default: as started."
    )
    control: ControlShare = ControlShare()
    cohorts: dict[str, CohortLimit] = Field(default_factory=dict, max_length=MAX_COHORTS)


def parse_live(given: Mapping[str, Any], options: PolicyOptions) -> Settings:
    """Raises ArgumentsError, with one line for each bad field."""
    try:
        config = LiveConfig.model_validate(dict(given))
    except ValidationError as error:
        raise ArgumentsError(explained(error, LiveConfig)) from None
    lines = [*_too_deep(config, options.depth), *_unknown(config, options.cohorts)]
    if lines:
        raise ArgumentsError("; ".join(lines))
    depth = options.depth if (d := config.num_speculative_tokens) is None else d
    return Settings(
        depth=depth,
        off=not config.speculation,
        windows=Windows(period=config.control.period, steps=config.control.steps),
        limits={name: _limit(of, depth) for name, of in config.cohorts.items()},
    )


def patched(settings: Settings, changes: Mapping[str, Any], options: PolicyOptions) -> Settings:
    """`settings` with what `changes` names; a value of None goes back to the default (RFC 7396).
    Raises ArgumentsError."""
    return parse_live(_merged(as_config(settings), changes), options)


def as_config(settings: Settings) -> dict[str, Any]:
    """As `user_config` would say it."""
    return {
        "speculation": not settings.off,
        "num_speculative_tokens": settings.depth,
        "control": {"steps": settings.windows.steps, "period": settings.windows.period},
        "cohorts": {
            name: {"num_speculative_tokens": depth} for name, depth in settings.limits.items()
        },
    }


def _limit(of: CohortLimit, depth: int) -> int:
    if not of.speculation:
        return 0
    return depth if of.num_speculative_tokens is None else of.num_speculative_tokens


def _too_deep(config: LiveConfig, most: int) -> list[str]:
    asked = {"": config.num_speculative_tokens} | {
        f"cohorts.{name}.": of.num_speculative_tokens for name, of in config.cohorts.items()
    }
    return [
        f"{where}num_speculative_tokens: {depth} is above the {most} that drafters were started "
        "for (speculative_config)"
        for where, depth in asked.items()
        if depth is not None and depth > most
    ]


def _unknown(config: LiveConfig, known: tuple[str, ...]) -> list[str]:
    return [
        f"cohorts.{name}: no rule gives this cohort; known cohorts: {', '.join(known)}"
        for name in config.cohorts
        if name not in known
    ]


def _merged(now: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(now)
    for key, value in changes.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            inner = result.get(key)
            inner = cast("Mapping[str, Any]", inner) if isinstance(inner, Mapping) else {}
            result[key] = _merged(inner, value)
        else:
            result[key] = value
    return result
