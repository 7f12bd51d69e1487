"""One drafter, built and served in this process. Nothing here knows Ray."""

from __future__ import annotations

import os
import time
from dataclasses import replace

from actors.contracts import DrafterInfo
from actors.drafters.config import DrafterConfig
from actors.exchange.compat import Compat, rule_name
from actors.exchange.limits import Limits
from actors.exchange.server import DraftingServer
from actors.exchange.sink import SpanHook
from cluster.config import AppArgs
from cluster.deployments.devices import resolve_device
from cluster.deployments.engine_options import drafter_config
from cluster.deployments.located import drafter_model
from cluster.deployments.target_facts import TargetFacts, target_facts


class Drafting:
    """A server that drafts. port: the bound one."""

    def __init__(self, server: DraftingServer, port: int, mechanism: str) -> None:
        self.port = port
        self.mechanism = mechanism
        self.max_sessions = server.limits.max_sessions
        self._server = server
        self._seen = (time.monotonic(), 0.0)

    @property
    def sessions(self) -> int:
        """Requests it drafts for now."""
        return self._server.stats().sessions

    def load(self) -> dict[str, float]:
        """Sessions now, and the share of the time since the last call spent drafting."""
        stats, now_s = self._server.stats(), time.monotonic()
        then_s, busy_s = self._seen
        self._seen = (now_s, stats.busy_s)
        share = (stats.busy_s - busy_s) / max(1e-9, now_s - then_s)
        return {"sessions": float(stats.sessions), "busy_share": min(1.0, max(0.0, share))}

    def alive(self) -> bool:
        """Whether drafts are still made."""
        return self._server.alive()

    def stop(self, grace_s: float) -> None:
        self._server.stop(grace_s)


def start_drafting(
    args: AppArgs, name: str, host: str, on_span: SpanHook | None = None
) -> Drafting:
    """Build the drafter of `args` and serve it at `host`; blocks while models load.

    Raises DrafterLoadError, ModelStoreError, or OSError when nothing can listen there.
    """
    config = drafter_config(args)
    if config is None:
        raise ValueError("there is no speculative_config to draft by")
    _pin_threads(config)
    from actors.drafters.table import build_drafter
    from actors.drafters.timing import timed

    facts = target_facts(args)
    config = informed(config, facts, args.revision)
    drafter = build_drafter(config)
    server = DraftingServer(
        drafter,
        name=name,
        compat=Compat(
            target=facts.target_digest,
            tokenizer=facts.tokenizer_digest,
            rule=rule_name(config.rejection_sample_method),
        ),
        limits=Limits(
            vocab_size=facts.vocab_size,
            max_session_bytes=session_bytes(drafter.info, config.device),
        ),
        timings=timed(drafter, config.num_speculative_tokens),
        on_span=on_span,
    )
    return Drafting(server, server.start(host), drafter.info.mechanism)


def session_bytes(info: DrafterInfo, device: str) -> int:
    """What sessions may keep: a share of what the weights have left of the device. 0, no bound,
    for a drafter that keeps tokens alone."""
    if not info.token_bytes:
        return 0
    from actors.engine.memory import free_memory
    from actors.engine.sizing import memory_share

    return int(free_memory(device) * memory_share(device))


def informed(
    config: DrafterConfig, facts: TargetFacts, revision: str | None = None
) -> DrafterConfig:
    """The configuration with what this node and the target's folder say; revision: the target's.
    Raises ModelStoreError."""
    from cluster.models.paths import cache_root

    return replace(
        config,
        model=drafter_model(config),
        target=facts.folder,
        target_revision=revision,
        compile_cache=str(cache_root() / "compiled"),
        target_vocab_size=facts.vocab_size,
        target_tokenizer=facts.tokenizer,
        max_context=facts.max_context,
        device=resolve_device(config.device),
    )


def _pin_threads(config: DrafterConfig) -> None:
    if config.threads is None:
        return
    os.environ["OMP_NUM_THREADS"] = str(config.threads)  # before torch sizes its pools
    import torch

    torch.set_num_threads(config.threads)
