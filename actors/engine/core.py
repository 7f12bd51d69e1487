"""The engine loop: schedule, gather drafts, forward, verify, commit (DESIGN §8).

It names no mechanism and knows no text, no network and no clock but the one it is given. One
thread calls it; everything it tells the outside is in the events that `step` returns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

from actors.contracts import Draft, DraftPort, Gathered
from actors.engine.batch import Segment
from actors.engine.cohorts import written
from actors.engine.errors import EngineError, Overloaded, RequestFailed
from actors.engine.events import EngineStats, Finish, TokenEvent
from actors.engine.executor import Executor
from actors.engine.finish import settle
from actors.engine.fixed import FixedLength
from actors.engine.intake import QueueLimits, validate
from actors.engine.kv import BlockAllocator, BlockTable, KVPool
from actors.engine.later import Later
from actors.engine.plan import Depth, Plan
from actors.engine.prefix import PrefixCache
from actors.engine.scheduler import Scheduler
from actors.engine.selfcheck import self_check
from actors.engine.sequence import EngineRequest, Sequence, Status
from actors.engine.sessions import NO_GAIN, Sessions
from actors.engine.speculation import Speculation
from actors.engine.state import MAX_DRAFT, is_recurrent
from actors.engine.steering import Steering
from actors.engine.target import Target
from actors.engine.verdicts import event_of, undrafted, verify
from actors.sampling.decide import Verdict
from actors.sampling.rules import DEFAULT, Rule, weighs_laws
from policies.pace import STALL_S, Pace, observed, prompt_rows

_ERROR: Finish = "error"
WHOLE = ("stop", "length")  # ends at which a request's text is complete


class Engine:
    """Continuous batching over one target.

    port: where drafts come from. max_model_len bounds prompt and output together. stall_s: how
    long prompts may make a step of running streams (`policies.pace`). rule: how drafts of sampled
    requests are accepted.
    """

    def __init__(
        self,
        target: Executor,
        port: DraftPort,
        plan: Plan,
        *,
        num_blocks: int,
        block_size: int,
        max_model_len: int,
        max_num_seqs: int = 32,
        max_num_batched_tokens: int = 512,
        max_num_queued_reqs: int = 1024,
        max_num_queued_tokens: int | None = None,
        enable_prefix_caching: bool = True,
        rule: Rule = DEFAULT,
        stall_s: float = STALL_S,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        if num_blocks * block_size < max_model_len:
            raise EngineError(
                f"the KV pool holds {num_blocks * block_size} tokens, fewer than max_model_len "
                f"{max_model_len}",
                param="kv_cache_memory_bytes",
            )
        self.target: Executor = target
        self.port = port
        self.sessions = Sessions(port)
        self.plan = plan
        self.rule = rule
        self.max_model_len = max_model_len
        self.limits = QueueLimits(max_num_queued_reqs, max_num_queued_tokens)
        self.allocator = BlockAllocator(num_blocks)
        self.pool = KVPool(
            target.info.spec,
            num_blocks,
            block_size,
            target.info.dtype,
            target.device,
            target.feature_dim,
            places=max_num_seqs,
        )
        rows = max(max_num_batched_tokens, max_num_seqs)
        recurrent = is_recurrent(target.info.spec)  # shared blocks would come without the state
        shared = enable_prefix_caching and not recurrent
        self.prefix = PrefixCache(self.allocator, block_size) if shared else None
        most = MAX_DRAFT if recurrent else None
        self.scheduler = Scheduler(self.allocator, max_num_seqs, rows, self.prefix, most)
        self.sequences: dict[str, Sequence] = {}
        self.stats = EngineStats()
        self.pace = Pace()
        self.speculation: Speculation | None = None
        self.steering: Steering | None = None  # beside `speculation` alone
        self._asking_s = 0.0  # what asking for this step's blocks took
        self.fixed = FixedLength()  # while there is no cost curve to choose by
        self._stall_s = stall_s
        self._clock_ns = clock_ns

    # -- requests ---------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        return bool(self.sequences)

    def add(self, request: EngineRequest) -> list[TokenEvent]:
        """Queue a request; raises InvalidRequest, DuplicateRequest or Overloaded. A request taken
        over after its last token is finished at once, with the event returned; so is one that
        gives its place in the queue to a tenant with fewer."""
        info = self.target.info
        validate(request, self.sequences, info.vocab_size, self.max_model_len, info.eos_ids)
        total = len(request.prompt_ids) + len(request.output_ids)
        limit = min(len(request.prompt_ids) + request.sampling.max_tokens, self.max_model_len)
        if request.output_ids:
            done = settle(
                request.output_ids[-1:],
                len(request.output_ids) - 1,
                total - 1,
                request.sampling,
                self.target.info.eos_ids,
                self.max_model_len,
            )
            if done.finish:
                return [
                    TokenEvent(request.request_id, finish=done.finish, stop_token=done.stop_token)
                ]
        crowd = self.limits.check(request, self.scheduler.waiting)
        seq = Sequence(
            request,
            [*request.prompt_ids, *request.output_ids],
            BlockTable(self.pool.block_size, self.target.device),
            self.pool,
            limit,
            self._clock_ns(),
        )
        self.sequences[request.request_id] = seq
        self.scheduler.enqueue(seq)
        return [] if crowd is None else [self._give_way(crowd)]

    def _give_way(self, seq: Sequence) -> TokenEvent:
        """A tenant with less of the full queue has come; another verifier may have room."""
        self._release(seq, "overloaded")
        error = Overloaded("the queue is full, and this tenant has the most of it")
        return TokenEvent(seq.request_id, finish=_ERROR, error=error)

    def abort(self, request_id: str) -> bool:
        """Drop a request at any moment; everything it holds goes back before this returns.
        Unknown ids are ignored. No event follows."""
        seq = self.sequences.get(request_id)
        if seq is None:
            return False
        self._release(seq, "abort")
        self.stats.aborts += 1
        return True

    def _release(self, seq: Sequence, reason: str) -> None:
        self.sessions.close(seq, reason, whole=reason in WHOLE)
        self.scheduler.remove(seq)
        del self.sequences[seq.request_id]
        if self.speculation is not None:
            self.speculation.forget(seq.request_id)
        if self.steering is not None:
            self.steering.forget(seq.request_id)

    # -- the round --------------------------------------------------------------------------

    def step(self) -> list[TokenEvent]:
        """One round for everyone who is ready."""
        started = time.perf_counter()
        started_ns = self._clock_ns()
        admitted = self.scheduler.admit(started_ns)
        self._rest()
        for seq in admitted:
            self.sessions.admit(seq)
        gathered = self._gather()
        room = prompt_rows(self.pace, self.scheduler.max_rows, self._stall_s)
        segments = self.scheduler.compose(self._worthwhile(gathered.drafts, room), room)
        forward_started = time.perf_counter()
        decided: list[Sequence] = []
        events = self._run(segments, started_ns, decided) if segments else []
        forward_s = time.perf_counter() - forward_started
        asking_s = self._ask(decided)
        self._account(started, forward_s, gathered, segments, events)
        self._asking_s = asking_s
        return events

    def _gather(self) -> Gathered:
        """The blocks there are, after waiting for the others as long as they are worth it."""
        writing = [seq for seq in self.scheduler.running if seq.pending == 1]
        wanted = {seq.request_id: seq.depth for seq in writing if seq.depth > 0}
        gathered = self.port.gather(wanted, Later(partial(self._worth, wanted, len(writing))))
        self.fixed.heard(gathered)
        if self.speculation is not None:
            self.speculation.heard(gathered)
        if self.steering is not None:
            self.steering.heard(gathered, self._asking_s)
        for seq in writing:
            reason = gathered.missing.get(seq.request_id, "")
            seq.owed = reason == "late" and not weighs_laws(self.rule)  # late is too late there
            seq.depth_reason = reason or seq.depth_reason
        return gathered

    def _worth(self, wanted: dict[str, int], writers: int) -> Mapping[str, float]:
        """How long the step may wait for each block."""
        if self.speculation is None:
            return self.fixed.worth(wanted, writers, self.pace.decode_s)
        return self.speculation.worth(wanted, writers)

    def _worthwhile(self, drafts: dict[str, Draft], room: int) -> dict[str, Draft]:
        """What of the blocks is worth its rows; `room`: rows that prompts may take."""
        if self.speculation is None or not drafts:
            return drafts
        pending = [seq.pending for seq in self.scheduler.running]
        prompts = min(room, sum(count for count in pending if count > 1))
        asked = {request_id: self.sequences[request_id].depth for request_id in drafts}
        steering = self.steering
        chosen = self.speculation.select(
            drafts,
            pending.count(1),
            prompts,
            asked,
            None if steering is None else steering.most(drafts),
            0.0 if steering is None else steering.spent_s,
        )
        for request_id in drafts.keys() - chosen.keys():
            draft = drafts[request_id]
            reason = NO_GAIN if steering is None else steering.refused(request_id, draft)
            self.sequences[request_id].depth_reason = reason
        if steering is not None:
            for request_id, draft in chosen.items():
                seq = self.sequences[request_id]
                seq.depth_reason = steering.why(seq, drafts[request_id], draft)
        return chosen

    def _rest(self) -> None:
        """In a batch where no drafted row can pay, drafters are left alone."""
        if self.speculation is not None:
            running = self.scheduler.running
            resting = self.speculation.hopeless(len(running), self.plan.most)
            self.sessions.rest(resting, running)

    def _run(
        self, segments: list[Segment], started_ns: int, decided: list[Sequence]
    ) -> list[TokenEvent]:
        """Forward and verify; when the whole batch fails, each segment alone, so that one bad
        request takes nobody with it (pitfalls S52). Who wrote and goes on is appended to
        `decided`."""
        try:
            verdicts = verify(self.target, self.pool, segments, self.stats, self.rule)
        except Exception as error:
            if len(segments) > 1:
                return [e for s in segments for e in self._run([s], started_ns, decided)]
            if segments[0].draft is not None:
                return self._run([undrafted(segments[0])], started_ns, decided)
            seq = segments[0].sequence
            return [self._fail(seq, RequestFailed(f"the forward pass failed: {error}"))]
        events: list[TokenEvent] = []
        for segment, verdict in zip(segments, verdicts, strict=True):
            if segment.sequence.status is not Status.RUNNING:
                continue  # aborted while the forward ran
            if verdict is not None and verdict.error and segment.draft is not None:
                events.extend(self._run([undrafted(segment)], started_ns, decided))
                continue
            event = self._commit(segment, verdict, started_ns, decided)
            if event is not None:
                events.append(event)
        return events

    def _commit(
        self,
        segment: Segment,
        verdict: Verdict | None,
        started_ns: int,
        decided: list[Sequence],
    ) -> TokenEvent | None:
        """Fold one verdict into its sequence; one that goes on is appended to `decided`."""
        seq = segment.sequence
        if verdict is None:
            seq.kv_len += segment.count
            self.scheduler.publish(seq)
            self.sessions.prefilled(seq)
            self.stats.prefill_tokens += segment.count
            return None
        if verdict.error:
            return self._fail(seq, RequestFailed(verdict.error))
        from_len, first = len(seq.tokens), seq.first_token_ns == 0
        settled = settle(
            verdict.tokens,
            seq.output_len,
            from_len,
            seq.sampling,
            self.target.info.eos_ids,
            self.max_model_len,
        )
        seq.tokens.extend(settled.tokens)
        seq.kv_len = len(seq.tokens) - 1
        self.scheduler.publish(seq)
        seq.first_token_ns = seq.first_token_ns or self._clock_ns()
        event = event_of(
            segment,
            verdict,
            settled.tokens,
            first=first,
            started_ns=started_ns,
            ended_ns=self._clock_ns(),
        )
        self._count(segment, verdict, event)
        if settled.finish:
            self._release(seq, settled.finish)
            return replace(event, finish=settled.finish, stop_token=settled.stop_token)
        if self.speculation is not None:
            self.speculation.settle(seq.request_id, settled.tokens)
        seq.round += 1
        decided.append(seq)
        return event

    def _ask(self, decided: list[Sequence]) -> float:
        """Plan the next round and ask for its blocks, now that this one's tokens are committed;
        the seconds that asking took."""
        if self.steering is not None and self.steering.still(self.scheduler.running):
            return 0.0
        caps = {
            seq.request_id: self.plan.depth(
                seq.request.cohort, seq.request.max_draft_len, seq.remaining
            )
            for seq in decided
        }
        if self.steering is not None:
            self.steering.decide(self.scheduler.running, self.port.arms, caps, self.plan.most)
        for seq in decided:
            if self.steering is not None:
                self.steering.ask(seq, caps[seq.request_id])
            else:
                self._plan(seq, caps[seq.request_id])
        began = time.perf_counter()
        self.sessions.commit(decided)
        return time.perf_counter() - began

    def _plan(self, seq: Sequence, depth: Depth) -> None:
        """How much to ask of the drafter for the next round, where no policy says."""
        seq.depth, seq.depth_reason = depth
        seq.asked = seq.depth
        if self.speculation is not None:
            seq.asked = self.speculation.ask(seq.request_id, depth.tokens) if seq.drafting else 0
            if not seq.asked and not (seq.owed and seq.drafting) and depth.tokens:
                seq.depth, seq.depth_reason = 0, NO_GAIN

    def _count(self, segment: Segment, verdict: Verdict, event: TokenEvent) -> None:
        self.stats.tokens += len(event.tokens)
        self.stats.invalid += verdict.invalid
        if segment.draft:
            self.stats.rounds += 1
            self.stats.drafted += event.drafted
            self.stats.accepted += event.accepted
            self.fixed.verified(event.drafted, verdict.accepted)
            if self.speculation is not None:
                self.speculation.verified(event.request_id, event.drafted, verdict.accepted)
        if segment.count > 1:
            self.stats.prefill_tokens += segment.count

    def _fail(self, seq: Sequence, error: EngineError) -> TokenEvent:
        self.scheduler.distrust(seq)
        self._release(seq, "error")
        self.stats.errors += 1
        return TokenEvent(seq.request_id, finish=_ERROR, error=error)

    def _account(
        self,
        started: float,
        forward_s: float,
        gathered: Gathered,
        segments: list[Segment],
        events: list[TokenEvent],
    ) -> None:
        stats, took_s = self.stats, time.perf_counter() - started
        if segments:
            prompts = sum(s.count for s in segments if s.count > 1)
            self.pace = observed(self.pace, forward_s, prompts)
            if not prompts:
                self._learn(segments, events, gathered, forward_s, took_s)
        stats.busy_s += took_s
        stats.wait_s += gathered.waited_s
        stats.steps += 1
        stats.preemptions = self.scheduler.preemptions
        stats.prefix_queries = self.scheduler.prefix_queries
        stats.prefix_hits = self.scheduler.prefix_hits
        stats.step_s = self.pace.decode_s

    def _learn(
        self,
        segments: list[Segment],
        events: list[TokenEvent],
        gathered: Gathered,
        forward_s: float,
        step_s: float,
    ) -> None:
        """After a step without prompts: what it cost, and what it brought."""
        rows = sum(segment.rows for segment in segments)
        if self.steering is None:
            if self.speculation is not None:
                self.speculation.observe(rows, forward_s)
            return
        written_now = sum(len(event.tokens) for event in events)
        if self.steering.learnt(len(segments), written_now, step_s, forward_s):
            return
        writers, tokens = written(segments, events)
        self.steering.learn(
            writers,
            tokens,
            gathered,
            rows=rows,
            forward_s=forward_s,
            step_s=step_s,
        )

    # -- start ------------------------------------------------------------------------------

    def self_check(self) -> None:
        """Prove on a short forward that the paged attention is the model's own, before serving."""
        assert isinstance(self.target, Target)  # others are checked when they take its place
        self_check(self.target, self.pool, self.allocator)

    def shutdown(self) -> None:
        """Drop everything."""
        for request_id in list(self.sequences):
            self.abort(request_id)
        self.port.shutdown()


def drain(engine: Engine, max_steps: int = 100_000) -> Iterable[TokenEvent]:
    """Run until nothing is left to do; for tests and tools."""
    for _ in range(max_steps):
        if not engine.has_work:
            return
        yield from engine.step()
    raise EngineError(f"still at work after {max_steps} steps")
