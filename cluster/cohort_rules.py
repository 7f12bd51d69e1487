"""Cohort rules as a configuration writes them; what they mean is `policies.cohorts`'s."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from policies.cohorts import Cohorts, Rule

WORD: Final = r"[A-Za-z0-9._:/-]{1,64}"
"""What a tenant and a declared task may be; a rule that lists anything else takes nobody."""


def _listed(value: object) -> object:
    """One value may be written without brackets."""
    return [value] if isinstance(value, str) else value


_Lenient = BeforeValidator(_listed)
_Model = Annotated[str, StringConstraints(min_length=1, max_length=256)]
_Word = Annotated[str, StringConstraints(pattern=f"^{WORD}$")]
_Shape = Literal["structured", "tools", "plain"]
_Prompt = Literal["short", "medium", "long", "huge"]


class CohortRule(BaseModel):
    """Takes a request whose every trait named here is one of those listed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(
        description="The cohort. {model}, {tenant}, {task}, {shape} and {prompt} stand for the "
        "request's own value, where the rule lists what it may be."
    )
    model: Annotated[tuple[_Model, ...], _Lenient] = Field(
        (), description="Names by which clients ask for the model."
    )
    tenant: Annotated[tuple[_Word, ...], _Lenient] = ()
    task: Annotated[tuple[_Word, ...], _Lenient] = Field(
        (), description="What the client declares: X-Pilotfish-Cohort, metadata, the gRPC field."
    )
    shape: Annotated[tuple[_Shape, ...], _Lenient] = Field(
        (), description="structured (a grammar bounds the output), tools or plain."
    )
    prompt: Annotated[tuple[_Prompt, ...], _Lenient] = Field(
        (), description="short (up to 512 tokens), medium (4096), long (32768) or huge."
    )

    @model_validator(mode="after")
    def _gives_plain_names(self) -> CohortRule:
        Cohorts([self.rule])  # its CohortError is a ValueError, which pydantic says of this rule
        return self

    @property
    def rule(self) -> Rule:
        return Rule(self.name, self.model, self.tenant, self.task, self.shape, self.prompt)


def cohorts_of(rules: Iterable[CohortRule]) -> Cohorts:
    """Raises `policies.cohorts.CohortError` where the rules together give too many names."""
    return Cohorts([rule.rule for rule in rules])
