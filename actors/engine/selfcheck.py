"""Before serving: the paged attention is proved to be the model's own, on one short forward."""

from __future__ import annotations

import torch

from actors.engine.batch import Segment, pack
from actors.engine.closeness import probe_ids
from actors.engine.kv import BlockAllocator, BlockTable, KVPool
from actors.engine.sequence import EngineRequest, Sequence, Status
from actors.engine.target import Target
from actors.sampling.params import SamplingParams

_GREEDY = SamplingParams(temperature=0.0)


def self_check(target: Target, pool: KVPool, allocator: BlockAllocator, length: int = 16) -> None:
    """Raises ModelLoadError when the target's logits differ from transformers' own."""
    ids = probe_ids(length, target.info.vocab_size)
    table = BlockTable(pool.block_size, target.device)
    table.extend(allocator.allocate(-(-length // pool.block_size)) or [])
    request = EngineRequest("self-check", tuple(ids), _GREEDY)
    seq = Sequence(request, ids, table, pool, length + 1, 0, Status.RUNNING)
    probe = pack([Segment(seq, length)], target.device)
    probe.keep = torch.arange(length, device=target.device)
    try:
        target.check_attention(pool, probe)
    finally:
        allocator.release(table.clear())
