"""Who runs in the next forward, with how many rows, and in which blocks.

Decode rows first, then chunks of the prompts within what is left of the row budget, shared fairly
(`policies.fairness`). Blocks are allocated as sequences grow; when none is left a draft is dropped,
then the least urgent sequence is preempted and later recomputed from its tokens. So memory never
runs out in mid-flight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from actors.contracts import Draft
from actors.engine.backlog import Backlog
from actors.engine.batch import Segment
from actors.engine.kv import BlockAllocator, Places
from actors.engine.prefix import PrefixCache
from actors.engine.sequence import Sequence, Status
from policies.fairness import Prompt, share_rows

PREFILL_SHARE = 4
"""A quarter of a forward's rows is kept for prompts while any waits for them."""


class Scheduler:
    """Owns the queue, the running set and the blocks.

    prefix: None computes every prompt whole. max_draft: longer blocks are cut.
    prefix_queries, prefix_hits: tokens that were looked up in the cache when requests first got a
    place, and those of them that were there.
    """

    def __init__(
        self,
        allocator: BlockAllocator,
        max_num_seqs: int,
        max_rows: int,
        prefix: PrefixCache | None = None,
        max_draft: int | None = None,
    ) -> None:
        self.allocator = allocator
        self.places = Places(max_num_seqs)
        self.max_draft = max_draft
        self.prefix = prefix
        self.max_num_seqs = max_num_seqs
        self.max_rows = max_rows
        self.waiting = Backlog()
        self.running: list[Sequence] = []
        self.preemptions = 0
        self.prefix_queries = 0
        self.prefix_hits = 0
        self._arrivals = 0

    # -- queue ------------------------------------------------------------------------------

    def enqueue(self, seq: Sequence) -> None:
        self._arrivals += 1
        seq.order = self._arrivals
        if self.prefix is not None:
            seq.chain = self.prefix.chain(seq.request.tenant, seq.request.cache_salt)
        self.waiting.push(seq)

    def admit(self, now_ns: int) -> list[Sequence]:
        """Move sequences from the queue while a place and the blocks of all their tokens plus
        the next are there. Nobody overtakes the one whose turn it is."""
        admitted: list[Sequence] = []
        if not self.waiting:
            return admitted
        places = Counter(seq.request.tenant for seq in self.running)
        while len(self.running) < self.max_num_seqs:
            seq = self.waiting.first(places)
            if seq is None or not self._seat(seq):
                break
            self.waiting.remove(seq)
            seq.status = Status.RUNNING
            seq.admitted_ns = seq.admitted_ns or now_ns
            self.running.append(seq)
            places[seq.request.tenant] += 1
            admitted.append(seq)
        return admitted

    def _seat(self, seq: Sequence) -> bool:
        """Blocks for all its tokens plus the next: those of a known prefix, shared, and new ones.
        False, and nothing changed, when there are too few."""
        shared: list[int] = []
        if self.prefix is not None and seq.chain is not None:
            shared = self.prefix.match(seq.chain, seq.tokens)
        needed = seq.table.missing(len(seq.tokens) + 1) - len(shared)
        if needed > self.allocator.free - self.allocator.count_idle(shared):
            return False
        seq.table.place = self.places.take()
        self.allocator.share(shared)
        seq.table.extend(shared + (self.allocator.allocate(needed) or []))
        seq.published = len(shared)
        seq.kv_len = len(shared) * seq.table.block_size
        if self.prefix is not None and not seq.admitted_ns:
            seq.cached_len = min(seq.kv_len, seq.prompt_len)
            self.prefix_queries += len(seq.tokens)
            self.prefix_hits += seq.kv_len
        return True

    def publish(self, seq: Sequence) -> None:
        """Let others share the blocks that committed rows have filled."""
        full = seq.kv_len // seq.table.block_size
        if self.prefix is not None and seq.chain is not None and full > seq.published:
            self.prefix.publish(seq.chain, seq.tokens, seq.table.blocks, seq.published, full)
            seq.published = full

    def distrust(self, seq: Sequence) -> None:
        """The sequence failed: nobody else shall read what it computed."""
        if self.prefix is not None:
            self.prefix.forget(seq.table.blocks)

    def remove(self, seq: Sequence) -> None:
        """Finish, abort or failure: everything the sequence holds goes back (law L3)."""
        if seq.status is Status.RUNNING:
            self.running.remove(seq)
            self.places.give_back(seq.table.place)
        elif seq.status is Status.WAITING:
            self.waiting.remove(seq)
        self.allocator.release(seq.table.clear())
        seq.status = Status.FINISHED

    # -- composition ------------------------------------------------------------------------

    def compose(self, drafts: Mapping[str, Draft], prompt_rows: int | None = None) -> list[Segment]:
        """Segments of the next forward, within the row budget and the blocks there are;
        prompt_rows: how many of the rows prompts may take beside streams that run."""
        decoding = [s for s in self.running if s.pending == 1]
        budget = self.max_rows - len(decoding)  # an anchor's row is never taken by a draft
        prefill = sum(s.pending for s in self.running if s.pending > 1)
        # Nor are all rows beside the anchors': drafts must not starve prompts.
        kept = max(1, self.max_rows // PREFILL_SHARE)
        room = budget - min(prefill, kept, max(budget, 0))
        segments: list[Segment] = []
        for seq in decoding:
            if seq.status is not Status.RUNNING:
                continue
            offered = drafts.get(seq.request_id)
            most = room if self.max_draft is None else min(room, self.max_draft)
            draft = self._fit(seq, _trim(offered, most))
            if offered is not None and offered.tokens and draft is None:
                seq.depth_reason = "budget"  # of rows or of KV blocks
            if seq.status is Status.RUNNING:
                segments.append(Segment(seq, 1, draft))
                room -= len(draft.tokens) if draft else 0
                budget -= len(draft.tokens) if draft else 0
        if segments and prompt_rows is not None:
            budget = min(budget, prompt_rows)
        segments += self._chunks(max(budget, 0))
        # A later sequence's growth may have preempted an earlier segment's.
        return [s for s in segments if s.sequence.status is Status.RUNNING]

    def _chunks(self, budget: int) -> list[Segment]:
        """Parts of the prompts that are not computed yet, `budget` rows in all."""
        prompts = sorted((s for s in self.running if s.pending > 1), key=lambda s: s.order)
        wants = [Prompt(s.request.tenant, s.request.priority, s.pending) for s in prompts]
        shares = zip(prompts, share_rows(wants, budget), strict=True)
        return [Segment(seq, count) for seq, count in shares if count]

    def _fit(self, seq: Sequence, draft: Draft | None) -> Draft | None:
        """Make room for the anchor and the draft; without room the draft goes first."""
        length = len(seq.tokens) + (len(draft.tokens) if draft else 0)
        if self._grow(seq, length):
            return draft
        while not self._grow(seq, len(seq.tokens)):
            self.preempt(max(self.running, key=lambda s: (s.request.priority, s.order)))
            if seq.status is not Status.RUNNING:
                break
        return None

    def _grow(self, seq: Sequence, length: int) -> bool:
        missing = seq.table.missing(length)
        if not missing:
            return True
        blocks = self.allocator.allocate(missing)
        if blocks is None:
            return False
        seq.table.extend(blocks)
        return True

    def preempt(self, seq: Sequence) -> None:
        """Take KV and place away and queue the sequence again; its tokens, and its drafter's
        session, stay. Recompute gives the same tokens: they depend on the prefix alone. What the
        cache still has of it by then is not even recomputed."""
        self.running.remove(seq)
        self.places.give_back(seq.table.place)
        self.allocator.release(seq.table.clear())
        seq.kv_len = 0
        seq.status = Status.WAITING
        seq.preemptions += 1
        self.preemptions += 1
        self.waiting.push(seq)


def _trim(draft: Draft | None, rows: int) -> Draft | None:
    if draft is None or not draft.tokens or rows <= 0:
        return None
    return draft.cut(rows)
