"""Who runs in the next forward, with how many rows, and in which blocks.

Decode rows first, prefill chunks with what is left of the row budget, first come first served.
Blocks are allocated as sequences grow; when none is left a draft is dropped, then the youngest
sequence is preempted and later recomputed from its tokens. So memory never runs out in mid-flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from actors.contracts import Draft
from actors.engine.batch import Segment
from actors.engine.kv import BlockAllocator
from actors.engine.sequence import Sequence, Status

PREFILL_SHARE = 4
"""A quarter of a forward's rows is kept for prompts while any waits for them."""


class Scheduler:
    """Owns the queue, the running set and the block allocator."""

    def __init__(self, allocator: BlockAllocator, max_num_seqs: int, max_rows: int) -> None:
        self.allocator = allocator
        self.max_num_seqs = max_num_seqs
        self.max_rows = max_rows
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.preemptions = 0

    # -- queue ------------------------------------------------------------------------------

    def enqueue(self, seq: Sequence) -> None:
        self.waiting.append(seq)

    def admit(self, now_ns: int) -> list[Sequence]:
        """Move sequences from the queue while a place and the blocks of all their tokens plus
        the next are there. Order is kept: nobody overtakes the head of the queue."""
        admitted = []
        while self.waiting and len(self.running) < self.max_num_seqs:
            seq = self.waiting[0]
            blocks = self.allocator.allocate(seq.table.missing(len(seq.tokens) + 1))
            if blocks is None:
                break
            self.waiting.popleft()
            seq.table.extend(blocks)
            seq.status = Status.RUNNING
            seq.admitted_ns = seq.admitted_ns or now_ns
            self.running.append(seq)
            admitted.append(seq)
        return admitted

    def remove(self, seq: Sequence) -> None:
        """Finish, abort or failure: everything the sequence holds goes back (law L3)."""
        if seq.status is Status.RUNNING:
            self.running.remove(seq)
        elif seq.status is Status.WAITING:
            self.waiting.remove(seq)
        self.allocator.release(seq.table.clear())
        seq.status = Status.FINISHED

    # -- composition ------------------------------------------------------------------------

    def compose(self, drafts: Mapping[str, Draft]) -> list[Segment]:
        """Segments of the next forward, within the row budget and the blocks there are."""
        decoding = [s for s in self.running if s.pending == 1]
        budget = self.max_rows - len(decoding)  # an anchor's row is never taken by a draft
        prefill = sum(s.pending for s in self.running if s.pending > 1)
        # Nor are all rows beside the anchors': drafts must not starve prompts.
        room = budget - min(prefill, self.max_rows // PREFILL_SHARE, max(budget, 0))
        segments: list[Segment] = []
        for seq in decoding:
            if seq.status is not Status.RUNNING:
                continue
            offered = drafts.get(seq.request_id)
            draft = self._fit(seq, _trim(offered, room))
            if offered is not None and offered.tokens and draft is None:
                seq.depth_reason = "budget"  # of rows or of KV blocks
            if seq.status is Status.RUNNING:
                segments.append(Segment(seq, 1, draft))
                room -= len(draft.tokens) if draft else 0
                budget -= len(draft.tokens) if draft else 0
        for seq in [s for s in self.running if s.pending > 1]:
            if budget <= 0:
                break
            count = min(seq.pending, budget)
            segments.append(Segment(seq, count))
            budget -= count
        # A later sequence's growth may have preempted an earlier segment's.
        return [s for s in segments if s.sequence.status is Status.RUNNING]

    def _fit(self, seq: Sequence, draft: Draft | None) -> Draft | None:
        """Make room for the anchor and the draft; without room the draft goes first."""
        length = len(seq.tokens) + (len(draft.tokens) if draft else 0)
        if self._grow(seq, length):
            return draft
        while not self._grow(seq, len(seq.tokens)):
            self.preempt(self.running[-1])
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
        """Take the KV away and queue the sequence first; its tokens, and its drafter's session,
        stay. Recompute gives the same tokens: they depend on the prefix alone."""
        self.running.remove(seq)
        self.allocator.release(seq.table.clear())
        seq.kv_len = 0
        seq.status = Status.WAITING
        seq.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(seq)


def _trim(draft: Draft | None, rows: int) -> Draft | None:
    if draft is None or not draft.tokens or rows <= 0:
        return None
    if len(draft.tokens) <= rows:
        return draft
    return Draft(draft.tokens[:rows], draft.mechanism, draft.remote, draft.draft_us)
