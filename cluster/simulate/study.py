"""A scenario's YAML file: checked field by field, with every unknown one named.

The records are the simulator's own (policies.simulate.scenario); beside them a file says what the
target costs and which legs are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, with_config

from cluster.plan.answer import shape
from policies.codesign.drafting import mechanisms
from policies.codesign.roofline import Machine
from policies.codesign.traffic import features
from policies.cost import profiled
from policies.devices import device, lookup
from policies.simulate.costs import Costs, Linear, Recorded, Roofline
from policies.simulate.scenario import (
    Cohort,
    Fault,
    Phase,
    Scenario,
    Way,
    Wire,
)

for _record in (Cohort, Fault, Phase, Scenario, Way, Wire):
    with_config(ConfigDict(extra="forbid"))(_record)


class StudyError(ValueError):
    """A file that cannot be simulated; one line that names it and the field."""


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RooflineTarget(Strict):
    """A model of `pilotfish plan` on a GPU of its table."""

    model: str
    gpu: str
    tp: Annotated[int, Field(ge=1)] = 1


class RecordedTarget(Strict):
    """Measured seconds of a step by rows, and what a token of context adds."""

    rows: dict[int, float]
    context_s: float = 0.0


class LinearTarget(Strict):
    """A fit of measured seconds."""

    fixed_s: float
    row_s: float
    context_s: float = 0.0


class DraftRoofline(Strict):
    """Instead of a way's seconds and bytes: a mechanism of `pilotfish plan`. gpu: of its drafters,
    the target's where not given; model: of an external draft model. form: of its features."""

    mechanism: str
    gpu: str | None = None
    model: str | None = None
    form: str = "fp8"


class Head(Strict):
    """What a file says beside the scenario. legs: see cluster.simulate.legs; none are all."""

    title: str
    target: RooflineTarget | RecordedTarget | LinearTarget
    fleet: bool = False
    legs: list[str] = []


@dataclass(frozen=True, slots=True)
class Study:
    title: str
    scenario: Scenario
    costs: Costs
    fleet: bool
    legs: tuple[str, ...]


def load(path: Path) -> Study:
    """Raises StudyError."""
    import yaml

    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise StudyError(f"{path}: {str(error).splitlines()[0]}") from None
    if not isinstance(raw, dict):
        raise StudyError(f"{path}: a mapping is wanted")
    try:
        return study(raw)
    except ValidationError as error:
        raise StudyError(f"{path}: {_line(error)}") from None
    except ValueError as error:
        raise StudyError(f"{path}: {error}") from None


def study(raw: Mapping[str, Any]) -> Study:
    """Raises ValidationError and ValueError."""
    names = set(Head.model_fields)
    head = Head.model_validate({k: v for k, v in raw.items() if k in names})
    body = {k: v for k, v in raw.items() if k not in names}
    ways = body.get("ways")
    if isinstance(ways, dict):
        body["ways"] = {name: _way(fields, head.target) for name, fields in ways.items()}
    scenario = TypeAdapter(Scenario).validate_python(body)
    return Study(head.title, scenario, _costs(head.target), head.fleet, tuple(head.legs))


def _costs(target: RooflineTarget | RecordedTarget | LinearTarget) -> Costs:
    if isinstance(target, RecordedTarget):
        return Recorded(profiled(list(target.rows.items())), target.context_s)
    if isinstance(target, LinearTarget):
        return Linear(target.fixed_s, target.row_s, target.context_s)
    machine = Machine(device(target.gpu), target.tp)
    model = shape(target.model)
    machine.check(model)
    return Roofline(model, machine)


def _way(fields: Any, target: RooflineTarget | RecordedTarget | LinearTarget) -> Any:
    """A way with its `roofline` made into seconds and bytes: three points of the mechanism's cost
    give what a block, a session and a token take."""
    if not isinstance(fields, dict) or "roofline" not in fields:
        return fields
    said = DraftRoofline.model_validate(fields["roofline"])
    if not isinstance(target, RooflineTarget):
        raise ValueError("a way's roofline needs a target with a model")
    model, machine = shape(target.model), Machine(device(said.gpu or target.gpu))
    known = mechanisms(model, shape(said.model) if said.model else None)
    mechanism = known[lookup("mechanism", said.mechanism, known)]
    forms = ("raw", "projected", "fp8")
    if said.form not in forms:
        raise ValueError(f"features travel as {', '.join(forms)}, not {said.form!r}")

    def draft_s(sessions: int, depth: int) -> float:
        return mechanism.draft_s(machine, sessions, depth, 1024, target_s=0.01)

    token_s = (draft_s(1, 8) - draft_s(1, 1)) / 7
    session_s = max(0.0, (draft_s(32, 4) - draft_s(1, 4)) / 31)
    sizes = features(model.hidden, mechanism.taps, mechanism.linear)
    return {
        **{name: value for name, value in fields.items() if name != "roofline"},
        "base_s": max(0.0, draft_s(1, 1) - token_s - session_s),
        "session_s": session_s,
        "token_s": token_s,
        "feature_bytes": float(getattr(sizes, said.form)),
    }


def _line(error: ValidationError) -> str:
    """The first fault as one line."""
    fault = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(step) for step in fault["loc"])
    return f"{where or 'scenario'}: {fault['msg'].removeprefix('Value error, ')}"
