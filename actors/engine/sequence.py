"""One running request: its tokens, its KV, and the numbers that follow from them."""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass

import torch

from actors.engine.kv import BlockTable, KVPool
from actors.engine.prefix import TokenChain
from actors.sampling.params import SamplingParams
from policies.choice import Arm


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """A verifier's whole input. Resumable: with output_ids of another verifier the engine goes on
    as if it had written them. max_draft_len: the client's bound on D, 0 = standard decode.
    priority: lower is earlier. cache_salt: prefixes are shared within one (tenant, salt) alone."""

    request_id: str
    prompt_ids: tuple[int, ...]
    sampling: SamplingParams
    output_ids: tuple[int, ...] = ()
    cohort: str = ""
    tenant: str = ""
    priority: int = 0
    cache_salt: str = ""
    max_draft_len: int | None = None
    traceparent: str = ""
    tracestate: str = ""


class Status(enum.Enum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Sequence:
    """Invariant while running: 0 <= kv_len < len(tokens) <= limit, and the KV of tokens
    0 … kv_len-1 is in `table`. Decoding means kv_len == len(tokens) - 1: only the anchor's KV is
    missing. Implements `actors.contracts.SessionView`.

    order: its place by arrival. chain: names of its full blocks, None without a prefix cache;
    published: how many of them are known to the cache. cached_len: tokens of the prompt that were
    shared when it first got a place.
    """

    request: EngineRequest
    tokens: list[int]
    table: BlockTable
    pool: KVPool
    limit: int  # total length at which the request ends: max_tokens or the context
    arrived_ns: int
    status: Status = Status.WAITING
    kv_len: int = 0
    round: int = 0
    depth: int = 0  # length of a block that the next round may verify
    asked: int = 0  # of the block that is asked of the drafter for it
    arm: Arm | None = None  # who is asked; None is the port's first
    shadow: tuple[Arm, int] | None = None  # who is asked for evidence alone, and for how much
    owed: bool = False  # a block that was asked for before is still to come
    depth_reason: str = ""
    drafting: bool = False  # a session is open on the port
    told: int = 0  # committed tokens that its drafter knows
    admissions: int = 0
    scout: bool = False  # keeps its session where others rest
    admitted_ns: int = 0
    first_token_ns: int = 0
    preemptions: int = 0
    order: int = 0
    chain: TokenChain | None = None
    published: int = 0
    cached_len: int = 0

    @property
    def request_id(self) -> str:
        return self.request.request_id

    @property
    def sampling(self) -> SamplingParams:
        return self.request.sampling

    @property
    def tenant(self) -> str:
        """Whose text this is to drafters: what they keep across requests is kept apart for each
        tenant and, like prefixes, for each cache_salt."""
        tenant, salt = self.request.tenant, self.request.cache_salt
        if not salt:
            return tenant
        return f"{tenant}#{hashlib.blake2b(salt.encode(), digest_size=8).hexdigest()}"

    @property
    def trace(self) -> tuple[str, str]:
        return self.request.traceparent, self.request.tracestate

    @property
    def prompt_len(self) -> int:
        return len(self.request.prompt_ids)

    @property
    def output_len(self) -> int:
        return len(self.tokens) - self.prompt_len

    @property
    def pending(self) -> int:
        """Committed tokens without KV; 1 is decode, more is prefill or recompute."""
        return len(self.tokens) - self.kv_len

    @property
    def remaining(self) -> int:
        """Tokens that may still be written."""
        return self.limit - len(self.tokens)

    def features(self, from_row: int, to_row: int) -> torch.Tensor | None:
        """Tapped hidden states of rows from_row … to_row-1, bf16 [n, taps * hidden], a copy;
        None when nothing is tapped or a row has no KV (yet)."""
        if self.pool.features is None or to_row > self.kv_len:
            return None
        return self.table.read(self.pool.features, from_row, to_row).clone()
