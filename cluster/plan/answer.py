"""`pilotfish plan` from names to a Plan: the question it puts, its errors as one line each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from cluster.plan.catalogue import MODELS
from cluster.plan.config_file import read
from policies.codesign.drafting import chosen, mechanisms
from policies.codesign.plan import Question
from policies.codesign.roofline import Machine
from policies.codesign.shape import Shape
from policies.devices import device, lookup


class PlanError(ValueError):
    """Something asked for that cannot be planned; one line."""


@dataclass(frozen=True, slots=True)
class Asked:
    """As it was typed. rtt_us, network_gbits: of the way to a remote drafter."""

    model: str
    gpu: str
    tp: int = 1
    dtype: str | None = None
    kv_dtype: str | None = None
    context: int = 2048
    concurrency: str = "1,8,32,128"
    acceptance: float = 0.7
    mechanisms: str = ""
    drafter: str | None = None
    drafter_gpu: str | None = None
    rtt_us: float = 300.0
    network_gbits: float = 25.0


def question(asked: Asked) -> Question:
    """Raises PlanError, with the known names where one is unknown."""
    try:
        target = _with_dtypes(shape(asked.model), asked.dtype, asked.kv_dtype)
        known = mechanisms(target, shape(asked.drafter) if asked.drafter else None)
        machine = Machine(device(asked.gpu), asked.tp)
        machine.check(target)
        return Question(
            target=target,
            machine=machine,
            drafter_machine=Machine(device(asked.drafter_gpu or asked.gpu)),
            mechanisms=chosen(asked.mechanisms, known),
            context=asked.context,
            concurrencies=concurrencies(asked.concurrency),
            acceptance=asked.acceptance,
            rtt_s=asked.rtt_us * 1e-6,
            network=asked.network_gbits * 1e9 / 8,
        )
    except ValueError as error:
        raise PlanError(str(error)) from None


def shape(model: str) -> Shape:
    """A folder or a config.json if there is one of that name, else a name of the table."""
    path = Path(model).expanduser()
    if path.exists():
        return read(path)
    if path.suffix == ".json" or model.startswith((".", "/", "~")):
        raise PlanError(f"{model}: no such file or folder")
    return MODELS[lookup("model", model.rsplit("/", 1)[-1], MODELS)]


def concurrencies(text: str) -> tuple[int, ...]:
    """Ascending, without repeats. Raises PlanError."""
    try:
        values = sorted({int(part) for part in text.split(",")})
    except ValueError:
        values = [0]
    if values[0] < 1:
        raise PlanError(f"--concurrency: {text!r} is no list of numbers from 1 on, such as 1,8,32")
    return tuple(values)


def _with_dtypes(target: Shape, dtype: str | None, kv_dtype: str | None) -> Shape:
    return replace(target, dtype=dtype or target.dtype, kv_dtype=kv_dtype or target.kv_dtype)
