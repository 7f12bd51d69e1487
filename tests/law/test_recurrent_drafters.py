"""EAGLE-3, P-EAGLE and MTP against what they are said to be: formulas written a second time, and
transformers' own MTP where it has one."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel as TheirMtp

from tests.checkpoints import eagle, mtp
from tests.checkpoints.block import VOCAB
from tests.checkpoints.reference_eagle import ReferenceEagle, rotate
from tests.checkpoints.target import made_up, target
from tests.law.learned import Follower, checkpoint, make, propose

torch.set_num_threads(1)

TEXTS = [[(7 * i + 3) % VOCAB for i in range(n)] for n in (2, 3, 17, 40)]


def drafts_of(name: str, tokens: Sequence[int], depth: int, **fields: Any) -> list[int]:
    """Greedy, after a session that was opened early and told the rest in commits."""
    drafter = make(name, num_speculative_tokens=depth, prefill_rows=7, **fields)
    follower = Follower(drafter, "r", list(tokens[:2]))
    drafter.open([follower.opening()])
    rng, at = random.Random(len(tokens)), 2
    while at < len(tokens):
        propose(drafter, {follower.key: rng.randrange(depth + 1)})
        stop = min(len(tokens), at + rng.randrange(1, 5))
        drafter.observe([follower.commit(tokens[at:stop])])
        at = stop
    return list(propose(drafter, {follower.key: depth})[follower.key].tokens)


@pytest.mark.parametrize("name", eagle.FORMATS)
def test_eagle_drafts_what_its_formulas_say_over_the_whole_sequence(
    name: str, tmp_path: Path
) -> None:
    written = eagle.FORMATS[name](tmp_path)
    shared = {"embed_tokens.weight": target().model.embed_tokens.weight.detach()}
    reference = ReferenceEagle(written.spec, {**shared, **written.tensors}, written.draft_ids)
    width = written.spec.feature_dim
    for tokens in TEXTS:
        features = made_up(tokens, 0, len(tokens) - 1, width)
        assert drafts_of(name, tokens, 6) == reference.greedy(tokens, features, 6)


def theirs(written: mtp.Written, stages: int) -> TheirMtp:
    """transformers' MTP over the head's target, with the weights that were written."""
    main = copy.deepcopy(mtp.make_target())
    main.config.num_mtp_layers = stages
    main.config.mtp_hidden_states_first = written.spec.hidden_first
    model = TheirMtp(main, stages).double().eval()
    with torch.no_grad():
        for i, layer in enumerate(model.layers):
            own = {
                name.removeprefix(f"stages.{i}.").replace("block.", "mtp_block."): tensor
                for name, tensor in written.tensors.items()
                if name.startswith(f"stages.{i}.")
            }
            own["post_norm.weight"] = own.pop("norm.weight")
            layer.load_state_dict(own)
    return model


@pytest.mark.parametrize("stages", [1, 2, 3])
@torch.inference_mode()
def test_a_token_for_each_mtp_stage_is_that_of_transformers(stages: int, tmp_path: Path) -> None:
    """The logits too, within 1e-5."""
    written = mtp.deepseek(tmp_path, stages)
    model = theirs(written, stages)
    drafter = make("MTP DeepSeek", model=str(written.folder), target=str(written.target))
    for tokens in TEXTS[2:]:
        tapped = made_up(tokens, 0, len(tokens) - 1, drafter.feature_dim)
        cache = MtpCache(config=model.config)
        drafted, logits, _ = model(
            input_ids=torch.tensor([tokens[1:]]),
            last_hidden_states=mtp.make_target().model.norm(tapped)[None],
            attention_mask=None,
            position_ids=torch.arange(1, len(tokens))[None],
            mtp_cache=cache,
        )
        seen: list[torch.Tensor] = []
        plain_logits = drafter.logits  # type: ignore[attr-defined]
        drafter.logits = lambda z: seen.append(plain_logits(z)) or seen[-1]  # type: ignore[attr-defined]
        follower = Follower(drafter, f"r{len(tokens)}", list(tokens))
        drafter.open([follower.opening()])
        ours = propose(drafter, {follower.key: stages})[follower.key]
        drafter.logits = plain_logits  # type: ignore[attr-defined]
        assert list(ours.tokens) == drafted[0].tolist()
        torch.testing.assert_close(torch.cat(seen[-stages:]), logits[0], atol=1e-5, rtol=0)


class ReferenceMtp:
    """One stage reused: every step recomputes all of its entries."""

    def __init__(self, written: mtp.Written) -> None:
        self.w, self.spec = written.tensors, written.spec

    def greedy(self, tokens: Sequence[int], tapped: torch.Tensor, depth: int) -> list[int]:
        model = mtp.make_target()
        embedding = model.model.embed_tokens.weight.detach()
        states = list(self.norm(tapped, model.model.norm.weight.detach()))
        text, drafts = list(tokens), list[int]()
        for _ in range(depth):
            z = self.stage(embedding[text[1:]], torch.stack(states))[-1]
            drafts.append(int((model.lm_head.weight.detach() @ z).argmax()))
            text.append(drafts[-1])
            states.append(z)
        return drafts

    def stage(self, embedded: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        w = {n.removeprefix("stages.0."): t for n, t in self.w.items()}
        parts = [self.norm(embedded, w["enorm.weight"]), self.norm(states, w["hnorm.weight"])]
        x = torch.cat(parts[::-1] if self.spec.hidden_first else parts, -1) @ w["eh_proj.weight"].T
        y, rows, layer = self.norm(x, w["block.input_layernorm.weight"]), len(x), self.spec.layer
        made = {}
        for part, count in (("q", layer.heads), ("k", layer.kv_heads), ("v", layer.kv_heads)):
            at = f"block.self_attn.{part}"
            row = y @ w[f"{at}_proj.weight"].T + w.get(f"{at}_proj.bias", torch.zeros(1).double())
            row = row.view(rows, count, -1)
            if layer.qk_norm and part != "v":
                row = self.norm(row, w[f"{at}_norm.weight"])
            row = row if part == "v" else rotate(row)
            made[part] = row.repeat_interleave(layer.heads // count, 1)
        scores = torch.einsum("ihd,jhd->hij", made["q"], made["k"]) / layer.head_dim**0.5
        scores += torch.full((rows, rows), float("-inf")).double().triu(1)
        out = torch.einsum("hij,jhd->ihd", scores.softmax(-1), made["v"]).reshape(rows, -1)
        x = x + out @ w["block.self_attn.o_proj.weight"].T
        y = self.norm(x, w["block.post_attention_layernorm.weight"])
        gate, up = (y @ w[f"block.mlp.{p}_proj.weight"].T for p in ("gate", "up"))
        x = x + (F.silu(gate) * up) @ w["block.mlp.down_proj.weight"].T
        return self.norm(x, w["norm.weight"])

    def norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight


@pytest.mark.parametrize("name", ["MTP DeepSeek", "MTP Qwen3-Next", "MTP MiMo", "MTP speculators"])
def test_one_mtp_stage_reused_drafts_what_its_formulas_say(name: str, tmp_path: Path) -> None:
    """[embedding, hidden] or [hidden, embedding], the target's final norm on the feature."""
    written = mtp.FORMATS[name](tmp_path)
    for tokens in TEXTS:
        tapped = made_up(tokens, 0, len(tokens) - 1, written.spec.layer.hidden)
        drafts = drafts_of(name, tokens, 5, model=str(written.folder), target=str(written.target))
        assert drafts == ReferenceMtp(written).greedy(tokens, tapped, 5)


def test_an_mtp_head_inside_the_target_needs_no_model_of_its_own() -> None:
    folder, _ = checkpoint("MTP Qwen3-Next")
    tokens = TEXTS[2]
    inside = drafts_of("MTP Qwen3-Next", tokens, 3, model=None, target=str(folder))
    assert inside == drafts_of("MTP Qwen3-Next", tokens, 3, target=str(folder))


def test_drafting_on_over_other_drafts_leaves_no_trace_in_the_next_block() -> None:
    """Rows of drafts that were rejected lie behind the committed ones and are overwritten."""
    for name in ("EAGLE-3 speculators", "P-EAGLE speculators", "MTP DeepSeek, 3 stages"):
        drafter = make(name, num_speculative_tokens=8)
        follower = Follower(drafter, "r", list(TEXTS[2]))
        drafter.open([follower.opening()])
        deep = propose(drafter, {follower.key: 6})[follower.key].tokens
        wrong = (deep[0] + 1) % VOCAB
        drafter.observe([follower.commit([wrong])])
        after = propose(drafter, {follower.key: 6})[follower.key].tokens
        assert list(after) == drafts_of(name, [*TEXTS[2], wrong], 6)


def test_every_way_of_counting_layers_taps_the_same_states() -> None:
    """S32: what vLLM calls the input of layer 3 is what ModelOpt calls the output of layer 2."""
    taps = {name: make(name).info.taps for name in eagle.FORMATS}
    assert taps["EAGLE-3 SafeAILab"] == (2, 3, 3)  # 2, L/2, L-3 of 6 layers
    assert taps["EAGLE-3 ModelOpt"] == (2, 4, 6)  # outputs of 1, 3, 5
    assert taps["EAGLE-3 DeepSpec"] == (1, 2, 4, 5, 6)  # outputs of 0, 1, 3, 4, 5
    assert taps["EAGLE-3 speculators"] == (1, 3, 6)  # inputs of 1, 3, 6
