"""Where an engine's drafts come from: nowhere, this process, or drafters on the network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from actors.contracts import DraftPort
from actors.drafters.config import DrafterConfig
from actors.drafters.errors import DrafterLoadError
from actors.engine.noport import NoDrafts
from actors.engine.options import EngineOptions, Mechanism
from actors.exchange.arms import ArmsPort
from actors.exchange.arms_part import Part
from actors.exchange.compat import Compat, rule_name, target_digest
from actors.exchange.form import FeatureForm
from actors.exchange.gathering import Patience
from actors.exchange.link import Endpoint
from actors.exchange.local import LocalPort
from actors.exchange.pool import PortOptions, RemotePort
from actors.sampling.rules import Rule, weighs_laws
from pilotfish.v1 import control_pb2 as control

FIXED_WAIT_S = 0.1
"""For blocks of drafters that live; one that is silent is isolated after a few steps of it."""


def make_port(
    options: EngineOptions,
    config: Mapping[str, Any],
    *,
    vocab_size: int,
    tokenizer: str,
    max_model_len: int,
) -> DraftPort:
    """config: the target's, as a mapping; tokenizer: its digest. Raises DrafterLoadError."""
    compat = Compat(target_digest(config), tokenizer, rule=rule_name(options.rule))

    def remote(of: Mechanism | None) -> RemotePort:
        return RemotePort(
            options.verifier_id,
            compat=replace(compat, taps=options.taps if of is None else of.taps),
            vocab_size=vocab_size,
            options=port_options(options.rule),
            form=FeatureForm() if of is None else _form(of, options),
        )

    def local(of: Mechanism, name: str) -> LocalPort:
        config = _informed(of.drafter, options, vocab_size, max_model_len)
        drafter = build_drafter(config)
        timings = timed(drafter, config.num_speculative_tokens)
        reads_s = read_s(drafter) if timings else 0.0
        return LocalPort(drafter, name=name, vocab_size=vocab_size, timings=timings, read_s=reads_s)

    if not options.mechanisms:
        return remote(None) if options.placement == "remote" else NoDrafts()
    from actors.drafters.reading import read_s
    from actors.drafters.table import build_drafter
    from actors.drafters.timing import timed

    if not options.beside:
        (one,) = options.mechanisms
        return remote(one) if one.placement == "remote" else local(one, "local")
    parts = [
        _remote_part(each, remote(each))
        if each.placement == "remote"
        else _local_part(local(each, f"local-{each.drafter.method}"))
        for each in options.mechanisms
    ]
    return _united(parts)


def _remote_part(of: Mechanism, port: RemotePort) -> Part:
    return Part(of.drafter.mechanism, True, port)


def _local_part(port: LocalPort) -> Part:
    return Part(port.mechanism, False, port)


def _united(parts: Sequence[Part]) -> ArmsPort:
    try:
        return ArmsPort(parts)
    except ValueError as error:
        raise DrafterLoadError(str(error), "method") from None


def _informed(
    drafter: DrafterConfig, options: EngineOptions, vocab_size: int, max_model_len: int
) -> DrafterConfig:
    """A co-located drafter's, with what it must know of the target."""
    return replace(
        drafter,
        target_vocab_size=vocab_size,
        max_context=drafter.max_context or max_model_len,
        target_tokenizer=drafter.target_tokenizer or options.tokenizer_path,
        target=drafter.target or options.model_path,
        target_revision=drafter.target_revision or options.revision,
        compile_cache=drafter.compile_cache or options.compile_cache,
        feature_format="raw",
    )


def _form(of: Mechanism, options: EngineOptions) -> FeatureForm:
    """In what form remote drafters want features; nothing is read for those that want none."""
    if not of.taps:
        return FeatureForm()
    from actors.drafters.learned.projection import feature_form

    return feature_form(of.drafter, options.device, options.compile_cache)


def port_options(rule: Rule) -> PortOptions:
    """Where laws are weighed the wait is fixed and a block is good for its own base alone: neither
    may depend on what was drafted (S16)."""
    if not weighs_laws(rule):
        return PortOptions()
    return PortOptions(patience=Patience(fixed_wait_s=FIXED_WAIT_S), tails=False)


def drafter_bytes_a_row(port: DraftPort, options: EngineOptions) -> int:
    """What co-located drafters keep beside the KV pool, on the same device, for each token."""
    ports = [part.port for part in port.parts] if isinstance(port, ArmsPort) else [port]
    return sum(
        one.token_bytes
        for one, of in zip(ports, options.mechanisms, strict=False)
        if isinstance(one, LocalPort) and _device(of.drafter.device) == _device(options.device)
    )


def _device(name: str) -> str:
    return name.partition(":")[0]


def take_endpoints(port: DraftPort, drafters: Iterable[control.DrafterEndpoint]) -> None:
    """The drafters of the policy's newest snapshot, where a port asks any."""
    if isinstance(port, RemotePort | ArmsPort):
        port.set_endpoints([endpoint_of(drafter) for drafter in drafters])


def endpoint_of(message: control.DrafterEndpoint) -> Endpoint:
    """A drafter of the policy's snapshot."""
    return Endpoint(
        message.drafter,
        message.address,
        message.mechanism,
        max_sessions=message.max_sessions,
        pid=message.pid,
        draining=message.draining,
    )
