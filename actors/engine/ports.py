"""Where an engine's drafts come from: nowhere, this process, or drafters on the network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from actors.contracts import DraftPort
from actors.engine.noport import NoDrafts
from actors.engine.options import EngineOptions
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
    if options.placement == "remote":
        return RemotePort(
            options.verifier_id,
            compat=Compat(
                target_digest(config),
                tokenizer,
                taps=options.taps,
                rule=rule_name(options.rule),
            ),
            vocab_size=vocab_size,
            options=port_options(options.rule),
            form=_form(options),
        )
    if options.speculative is None:
        return NoDrafts()
    from actors.drafters.table import build_drafter

    drafter = replace(
        options.speculative,
        target_vocab_size=vocab_size,
        max_context=options.speculative.max_context or max_model_len,
        target_tokenizer=options.speculative.target_tokenizer or options.tokenizer_path,
        target=options.speculative.target or options.model_path,
        target_revision=options.speculative.target_revision or options.revision,
        compile_cache=options.speculative.compile_cache or options.compile_cache,
        feature_format="raw",
    )
    return LocalPort(build_drafter(drafter), vocab_size=vocab_size)


def _form(options: EngineOptions) -> FeatureForm:
    """In what form remote drafters want features; nothing is read for those that want none."""
    if options.speculative is None or not options.taps:
        return FeatureForm()
    from actors.drafters.learned.projection import feature_form

    return feature_form(options.speculative, options.device, options.compile_cache)


def port_options(rule: Rule) -> PortOptions:
    """Where laws are weighed the wait is fixed and a block is good for its own base alone: neither
    may depend on what was drafted (S16)."""
    if not weighs_laws(rule):
        return PortOptions()
    return PortOptions(patience=Patience(fixed_wait_s=FIXED_WAIT_S), tails=False)


def drafter_bytes_a_row(port: DraftPort, options: EngineOptions) -> int:
    """What a co-located drafter keeps beside the KV pool, on the same device, for each token."""
    speculative = options.speculative
    if not isinstance(port, LocalPort) or speculative is None:
        return 0
    same = speculative.device.partition(":")[0] == options.device.partition(":")[0]
    return port.token_bytes if same else 0


def endpoint_of(message: control.DrafterEndpoint) -> Endpoint:
    """A drafter of the policy's snapshot."""
    return Endpoint(
        message.drafter,
        message.address,
        message.mechanism,
        max_sessions=message.max_sessions,
        pid=message.pid,
    )
