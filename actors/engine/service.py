"""One verifier's engine, whole: the target, where drafts come from, the thread and the door.

Runs in a process of its own. gRPC answers on threads of its own; the engine's thread is the only
one that computes.
"""

from __future__ import annotations

import logging
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import torch
from transformers.utils import logging as transformers_logging

from actors.engine.core import Engine
from actors.engine.cuda.target import GraphTarget, graph_budget
from actors.engine.errors import EngineError
from actors.engine.kv import KVPool
from actors.engine.loading import (
    context_length,
    load_config,
    load_model,
    refuse_moving_rope,
    resolve_dtype,
)
from actors.engine.memory import free_memory
from actors.engine.native.switch import Change, Switch
from actors.engine.native.target import NativeTarget
from actors.engine.options import EngineOptions, SpanSink
from actors.engine.plan import Plan
from actors.engine.ports import drafter_bytes_a_row, make_port, take_endpoints
from actors.engine.profile import one_row, profile
from actors.engine.profile_cache import kept
from actors.engine.profile_kind import Kind, kind_of
from actors.engine.servicer import VerificationServicer
from actors.engine.sizing import memory_share, place_bytes, pool_blocks, row_bytes
from actors.engine.state import is_recurrent
from actors.engine.steering import steered
from actors.engine.target import Target
from actors.engine.thread import EngineThread
from actors.engine.told import told
from actors.engine.wants import wants_of
from actors.exchange.compat import target_digest, tokenizer_digest
from actors.exchange.limits import server_options
from actors.exchange.status import LinkRecord
from actors.exchange.threads import DaemonThreads
from pilotfish.v1 import control_pb2 as control
from pilotfish.v1 import exchange_pb2 as pb
from pilotfish.v1 import exchange_pb2_grpc as pb_grpc
from policies.estimate_cost import Sample
from policies.tally import Report

if TYPE_CHECKING:
    from actors.engine.tp.lead import Lead

logger = logging.getLogger(__name__)

GRPC_THREADS = 64  # one a gateway's stream
STATS_TIMEOUT_S = 5.0
PATIENCE = 10.0  # who asks for a profile waits longer for it than who wants to serve


class EngineService:
    """Loads the target at construction (tens of seconds); raises EngineError subclasses.

    ranks: the others that share the target; None when this process has it alone. profiling: waits
    for the executor that it would serve with, and measures though a profile is kept. costs, kind:
    the profile that the policy began with, and of what.
    """

    def __init__(
        self,
        options: EngineOptions,
        on_span: SpanSink | None = None,
        ranks: Lead | None = None,
        *,
        profiling: bool = False,
    ) -> None:
        self.options = options
        if options.threads:
            torch.set_num_threads(options.threads)
        transformers_logging.disable_progress_bar()
        self.switch = Switch(options, load_config(options.model_path, options.revision))
        dtype = resolve_dtype(options.dtype, options.device, native=self.switch.wanted)
        model = (
            load_model(options.model_path, options.revision, dtype, options.device)
            if ranks is None
            else ranks.load(options, dtype)
        )
        self.tokenizer_digest = _tokenizer_digest(options)
        self.max_model_len = context_length(model.config, options.max_model_len)
        refuse_moving_rope(model.config, self.max_model_len)
        self.plan = Plan(options.depth)
        self._wants = wants_of(options)
        vocab_size = int(model.get_output_embeddings().weight.shape[0])
        self.port = make_port(
            options,
            model.config.to_dict(),
            vocab_size=vocab_size,
            tokenizer=self.tokenizer_digest,
            max_model_len=self.max_model_len,
        )
        target, free_bytes = _target(model, self.port.taps, options.device, ranks)
        bytes_a_row = row_bytes(target.info.spec, dtype, target.feature_dim)
        engine = Engine(
            target,
            self.port,
            self.plan,
            num_blocks=pool_blocks(
                bytes_a_row,
                options.block_size,
                self.max_model_len,
                options.max_num_seqs,
                options.kv_cache_memory_bytes,
                free_bytes,
                share=memory_share(options.device),
                drafter_bytes_a_row=drafter_bytes_a_row(self.port, options),
                bytes_a_place=place_bytes(target.info.spec, dtype),
            ),
            block_size=options.block_size,
            max_model_len=self.max_model_len,
            max_num_seqs=options.max_num_seqs,
            max_num_batched_tokens=options.max_num_batched_tokens,
            max_num_queued_reqs=options.max_num_queued_reqs,
            max_num_queued_tokens=options.max_num_queued_tokens,
            enable_prefix_caching=options.enable_prefix_caching,
            rule=options.rule,
        )
        if ranks is not None:
            ranks.start(engine.allocator.num_blocks, options.block_size)
        engine.self_check()
        if options.enable_prefix_caching and is_recurrent(target.info.spec):
            logger.warning(
                "%s: prefixes are not shared between requests: their recurrent state is kept for "
                "running requests alone",
                model.config.model_type,
            )

        digest = target_digest(model.config.to_dict())
        self.costs: list[Sample] = []
        self.kind: Kind | None = None

        def install(native: NativeTarget) -> None:
            engine.target = native
            if options.adaptive:
                # Its pool may be in use. A short pause, once in a machine's life.
                self._steer(engine, digest, None, profiling)
            # What is left to torch is small, and a drafter that torch computes asks for its own
            # (`actors.drafters.threads`); others would only stand in the way.
            torch.set_num_threads(1)

        self._change: Change | None = Change(target, self.max_model_len, options.threads, install)
        self.switch.settle(self._change, patient=profiling)
        if options.device.startswith("cuda") and ranks is None and not options.enforce_eager:
            budget = graph_budget(options.device)
            engine.target = GraphTarget(target, engine.pool, self.max_model_len, budget)
        if options.adaptive and engine.speculation is None:
            self._steer(engine, digest, engine.pool, profiling)
        self.thread = EngineThread(engine)
        self._on_span = on_span
        self._server: grpc.Server | None = None

    def _steer(self, engine: Engine, model: str, pool: KVPool | None, profiling: bool) -> None:
        """Give the engine a policy that knows what its target's forwards cost. model: the config's
        digest; pool: where they may be measured."""
        options, target, context = self.options, engine.target, self.max_model_len
        self.kind = kind_of(options, model, target, context)
        patience = PATIENCE if profiling else 1.0
        self.costs = kept(
            options.compile_cache,
            self.kind,
            lambda: profile(target, context, pool, options.max_num_seqs, patience=patience),
            None if profiling else lambda: one_row(target, context, pool),
        )
        engine.speculation, engine.steering = steered(
            self.costs, options.rule, options.depth, options.verifier_id
        )
        told(engine.steering.policy, self.plan.snapshot)

    # -- life -------------------------------------------------------------------------------

    def start(self, host: str, port: int = 0) -> int:
        """Open the door; returns its port. Raises EngineError when the port is taken."""
        server = grpc.server(
            DaemonThreads("gateway"),  # type: ignore[arg-type]  # of it gRPC uses submit() alone
            options=server_options(),
            maximum_concurrent_rpcs=GRPC_THREADS,
        )
        servicer = VerificationServicer(self.thread, self.describe, self._on_span)
        pb_grpc.add_VerificationServicer_to_server(servicer, server)
        try:
            bound = server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise EngineError(f"cannot listen on {host}:{port}: {error}") from error
        self.thread.start()
        self._follow()
        server.start()
        self._server = server
        return bound

    def _follow(self) -> None:
        """The change to the native executor happens between two steps; eager's weights go then."""
        if self._change is not None:
            self.switch.follow(self._change, lambda swap: self.thread.call(swap).result())
        self._change = None

    def alive(self) -> bool:
        """Whether the engine's thread runs; cheap."""
        return self.thread.is_alive() and self.thread.failure is None

    def stop(self, grace_s: float) -> None:
        """Let streams finish for `grace_s` seconds, then end."""
        if self._server is not None:
            self._server.stop(grace_s).wait()
        self.thread.stop()

    # -- control ----------------------------------------------------------------------------

    def set_snapshot(self, data: bytes) -> None:
        """Take a serialized PolicySnapshot; older ones than the newest are ignored."""
        snapshot = control.PolicySnapshot.FromString(data)

        def update() -> None:
            if not self.plan.update(snapshot):
                return
            take_endpoints(self.port, snapshot.drafters)
            if (steering := self.thread.engine.steering) is not None:
                told(steering.policy, snapshot)

        self.thread.call(update).result(STATS_TIMEOUT_S)

    def stats(self) -> dict[str, Any]:
        """Figures of the engine and of its links to drafters."""

        def read() -> tuple[dict[str, Any], Report | None]:
            steering = self.thread.engine.steering
            tally = None if steering is None else steering.policy.tally.taken()
            wants = self._wants.now(self.thread.engine)
            return {**self.thread.snapshot(), "wants": wants}, tally

        figures, tally = self.thread.call(read).result(STATS_TIMEOUT_S)
        return {
            **figures,
            "tally": tally,
            "pid": os.getpid(),
            "verifier": self.options.verifier_id,
            "executor": self.switch.state,
            "executor_reason": self.switch.reason,
            "links": [asdict(link) for link in self.port.status()],
            "snapshot": (self.plan.snapshot.term, self.plan.snapshot.version),
        }

    def describe(self) -> pb.VerifierInfo:
        """What gateways are told at the door."""
        options, info = self.options, self.thread.engine.target.info
        return pb.VerifierInfo(
            verifier=options.verifier_id,
            pid=os.getpid(),
            model=options.served_model_name or options.model_path,
            tokenizer=self.tokenizer_digest,
            vocab_size=info.vocab_size,
            max_model_len=self.max_model_len,
            dtype=str(info.dtype).removeprefix("torch."),
            drafters=[_link_message(link) for link in self.port.status()],
        )


def _target(
    model: Any, taps: tuple[int, ...], device: str, ranks: Lead | None
) -> tuple[Target, int]:
    """The target, and the bytes its KV pool may be cut from."""
    if ranks is None:
        return Target(model, taps, device), free_memory(device)
    from actors.engine.tp.target import LeadTarget

    lead = LeadTarget(model, ranks, taps, device)
    return lead, ranks.agree(lead.facts())


def _link_message(link: LinkRecord) -> pb.DrafterLink:
    return pb.DrafterLink(
        drafter=link.drafter,
        mechanism=link.mechanism,
        up=link.up,
        pid=link.pid,
        frames_sent=link.frames_sent,
        frames_received=link.frames_received,
        sessions=link.sessions,
        rtt_us=link.rtt_us,
    )


def _tokenizer_digest(options: EngineOptions) -> str:
    """Digest of the tokenizer beside the model; empty (agrees with any) when there is none."""
    folder = Path(options.tokenizer_path or options.model_path)
    try:
        return tokenizer_digest(folder) if folder.exists() else ""
    except (FileNotFoundError, ValueError):
        return ""
