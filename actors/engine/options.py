"""What an engine process is started with; plain values, so it crosses process borders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from actors.sampling.rules import DEFAULT, Rule

if TYPE_CHECKING:
    from actors.drafters.config import DrafterConfig

Placement = Literal["remote", "colocated"]

SpanSink = Callable[[tuple[str, str], str, int, int, dict[str, str | int | float | bool]], None]
"""(traceparent, tracestate), span name, start ns, end ns, attributes; called off the hot path."""


@dataclass(frozen=True, slots=True)
class Mechanism:
    """One way to draft. placement: "remote" drafters register with the policy; a "colocated" one
    lives in the engine's process. taps: the hidden states that remote drafters want."""

    drafter: DrafterConfig
    placement: Placement = "remote"
    taps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """One verifier's engine.

    tensor_parallel_size: ranks that share the target; this engine is rank 0 of them.
    dtype: "auto" takes bfloat16 where the device has units for it, else float32 (ADR 0002).
    max_num_batched_tokens: rows of one forward, drafts included.
    max_num_queued_tokens: of all requests that wait; None is no bound.
    kv_cache_memory_bytes: None sizes the pool for max_num_seqs, within a share of the free memory
        (`actors.engine.sizing`).
    speculative, placement, taps: how to draft, as of a `Mechanism`; None serves standard decode
        alone. beside: other ways that the policy may choose instead.
    depth: D until the first policy snapshot arrives.
    adaptive: each step verifies only those drafted rows that are expected to pay.
    rule: how the drafts of sampled requests are accepted.
    enforce_eager: transformers' own classes, no native executor and no CUDA graphs.
    batch_invariant: nothing but the native executor, so that bits depend on a request alone.
    compile_cache: folder of compiled executors; empty builds one for this process alone.
    """

    model_path: str
    verifier_id: str
    served_model_name: str = ""
    tokenizer_path: str = ""
    revision: str | None = None
    tensor_parallel_size: int = 1
    dtype: Literal["auto", "bfloat16", "float32", "float64"] = "auto"
    device: str = "cpu"
    threads: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int = 32
    max_num_batched_tokens: int = 512
    max_num_queued_reqs: int = 1024
    max_num_queued_tokens: int | None = None
    block_size: int = 16
    kv_cache_memory_bytes: int | None = None
    enable_prefix_caching: bool = True
    speculative: DrafterConfig | None = None
    placement: Placement = "remote"
    taps: tuple[int, ...] = ()
    beside: tuple[Mechanism, ...] = ()
    depth: int = 0
    adaptive: bool = False
    rule: Rule = DEFAULT
    enforce_eager: bool = False
    batch_invariant: bool = False
    compile_cache: str = ""
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """Every way to draft, the default first."""
        if self.speculative is None:
            return ()
        return (Mechanism(self.speculative, self.placement, self.taps), *self.beside)

    @property
    def drafts_here(self) -> bool:
        """Whether a drafter shares this process."""
        return "colocated" in (self.placement, *(other.placement for other in self.beside))
