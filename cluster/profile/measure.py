"""One engine and its drafters, started as `serve` would start them, measured and ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from actors.contracts import DraftPort
from actors.engine.loading import load_config
from actors.engine.options import EngineOptions, Mechanism
from actors.engine.profile_cache import place
from actors.engine.profile_kind import Kind
from actors.engine.service import EngineService
from cluster.config import AppArgs
from cluster.deployments.engine_options import engine_options
from cluster.deployments.located import located
from policies.choice import Arm
from policies.estimate_cost import Sample


@dataclass(frozen=True, slots=True)
class Measured:
    """group: query heads per KV head. drafts: by the arm that a server would have. silent:
    mechanisms that could not be timed. kept: where the profile lies now."""

    model: str
    kind: Kind
    group: int
    max_num_seqs: int
    samples: Sequence[Sample]
    drafts: Sequence[Arm]
    silent: Sequence[str]
    kept: Path | None
    remark: str = ""


def measure(args: AppArgs) -> Measured:
    """Drafters are timed in this process, whatever their placement. Raises ModelStoreError,
    EngineError, DrafterLoadError, or ValueError where one process cannot be the engine."""
    if args.tensor_parallel_size > 1:
        raise ValueError("--tensor-parallel-size: one process is measured; its ranks are several")
    options = located(engine_options(args, "profile"))
    placed: dict[str, Mechanism] = {}
    for one in options.mechanisms:
        placed.setdefault(one.drafter.mechanism, one)
    service = EngineService(_here(options, list(placed.values())), profiling=True)
    try:
        drafts, silent = _timed(service.port, placed)
        kind = service.kind
        assert kind is not None  # a service that profiles has one
        return Measured(
            model=options.served_model_name or options.model_path,
            kind=kind,
            group=_group(options),
            max_num_seqs=options.max_num_seqs,
            samples=service.costs,
            drafts=drafts,
            silent=silent,
            kept=place(options.compile_cache, kind) if options.compile_cache else None,
            remark=service.switch.reason,
        )
    finally:
        service.port.shutdown()


def _here(options: EngineOptions, mechanisms: Sequence[Mechanism]) -> EngineOptions:
    """The same engine with every drafter in its process."""
    here = [replace(one, placement="colocated") for one in mechanisms]
    plain = replace(options, speculative=None, beside=(), adaptive=True)
    if not here:
        return plain
    first, *others = here
    return replace(
        plain,
        speculative=first.drafter,
        placement="colocated",
        taps=first.taps,
        beside=tuple(others),
    )


def _timed(port: DraftPort, placed: dict[str, Mechanism]) -> tuple[list[Arm], list[str]]:
    """Arms as a server would have them, and who could not be timed."""
    drafts: list[Arm] = []
    silent: list[str] = []
    for arm in port.arms:
        of = placed.get(arm.mechanism) or placed.get("")  # one that names itself
        depth = arm.max_depth if of is None else of.drafter.num_speculative_tokens
        remote = of is not None and of.placement == "remote"
        if arm.timings:
            drafts.append(replace(arm, remote=remote, max_depth=min(depth, arm.max_depth)))
        else:
            silent.append(arm.mechanism)
    return drafts, silent


def _group(options: EngineOptions) -> int:
    text = load_config(options.model_path, options.revision).get_text_config()
    heads = int(getattr(text, "num_attention_heads", 0) or 1)
    return max(1, heads // int(getattr(text, "num_key_value_heads", 0) or heads))
