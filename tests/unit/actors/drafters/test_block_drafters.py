"""DFlash and DSpark against their papers' formulas, written out whole (reference_block)."""

from __future__ import annotations

import random

import pytest
import torch

from tests.checkpoints.block import FORMATS, Written
from tests.checkpoints.reference_block import drafts
from tests.checkpoints.target import made_up, target
from tests.law.learned import Follower, checkpoint, make, propose

torch.set_num_threads(1)


def ends(written: Written) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Embedding, head and draft ids: the checkpoint's own, else the target's."""
    from actors.drafters.checkpoints.files import open_checkpoint
    from tests.checkpoints.block import DRAFT_IDS

    stored = open_checkpoint(written.folder)
    model = target()
    own = {
        n: stored.tensor(n) for n in stored.files if n in ("embed_tokens.weight", "lm_head.weight")
    }
    embedding = own.get("embed_tokens.weight", model.get_input_embeddings().weight.detach())
    head = own.get("lm_head.weight", model.get_output_embeddings().weight.detach())
    return embedding, head, DRAFT_IDS if written.reduced else None


@pytest.mark.parametrize("name", FORMATS)
@torch.inference_mode()
def test_a_block_is_what_the_papers_formulas_give_for_the_whole_prefix(name: str) -> None:
    rng = random.Random(4)
    folder, _ = checkpoint(name)
    written = FORMATS[name](folder)
    embedding, head, ids = ends(written)
    drafter = make(name)
    distinct = set[int]()
    for length in (2, 5, 9, 14, 30):
        s = Follower(drafter, f"r{length}", [rng.randrange(128) for _ in range(length)])
        drafter.open([s.opening()])
        for depth in (1, 3, 4):
            found = propose(drafter, {s.key: depth})[s.key]
            tokens, sure = drafts(
                written.spec,
                written.tensors,
                embedding,
                head,
                ids,
                made_up(s.tokens, 0, length - 1, s.width),
                s.tokens[-1],
                depth,
            )
            assert list(found.tokens) == tokens
            assert list(found.confidence or ()) == pytest.approx(sure, abs=1e-6)
            distinct.update(tokens)
    assert len(distinct) > 5  # the drafts say something
