"""MTP heads whose decoder layer is not dense grouped-query attention: experts, latent attention,
gates. transformers' own MTP over the same weights says what they draft."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, DeepseekV3Config, Glm4MoeConfig, Qwen3NextConfig
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel

from actors.drafters.config import DrafterConfig
from actors.drafters.errors import DrafterLoadError
from actors.drafters.mtp import MtpDrafter
from actors.drafters.table import build_drafter
from tests.checkpoints.target import made_up
from tests.law.learned import Follower, propose
from tests.models import BARE

torch.set_num_threads(1)

VOCAB, HIDDEN, LAYERS = 128, 64, 2
COMMON: dict[str, Any] = {
    **BARE,
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "num_experts_per_tok": 2,
    "initializer_range": 0.3,
}


def deepseek() -> Any:
    """Latent attention, values narrower than keys, routed and shared experts."""
    return DeepseekV3Config(
        **{**COMMON, "num_key_value_heads": 4},
        kv_lora_rank=16,
        q_lora_rank=24,
        qk_nope_head_dim=8,
        qk_rope_head_dim=8,
        v_head_dim=12,
        n_routed_experts=4,
        n_shared_experts=1,
        n_group=1,
        topk_group=1,
        first_k_dense_replace=1,
        num_nextn_predict_layers=1,
    )


def glm() -> Any:
    """Experts behind grouped queries with a part of each head turned."""
    return Glm4MoeConfig(
        **COMMON,
        head_dim=16,
        n_routed_experts=4,
        n_shared_experts=1,
        n_group=1,
        topk_group=1,
        first_k_dense_replace=1,
        num_nextn_predict_layers=1,
        use_qk_norm=True,
    )


def qwen() -> Any:
    """A gate on the attention, norms of 1 + weight, experts."""
    config = Qwen3NextConfig(
        **COMMON,
        head_dim=16,
        num_experts=4,
        shared_expert_intermediate_size=32,
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        layer_types=["linear_attention", "full_attention"],
    )
    config.num_mtp_layers = 1
    config.mtp_layer_types = ["full_attention"]
    return config


FAMILIES: dict[str, Callable[[], Any]] = {"deepseek_v3": deepseek, "glm4_moe": glm, "qwen": qwen}
_QWEN = {
    "enorm": "mtp.pre_fc_norm_embedding",
    "hnorm": "mtp.pre_fc_norm_hidden",
    "eh_proj": "mtp.fc",
    "post_norm": "mtp.norm",
}


def head_names(family: str, name: str, tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """A tensor of transformers' MTP layer under the names of the family's files."""
    stem, _, rest = name.partition(".")
    if stem == "mtp_block":
        at = "mtp.layers.0." if family == "qwen" else f"model.layers.{LAYERS}."
        if rest == "mlp.experts.gate_up_proj":
            halves = ("gate_proj", "up_proj")
        elif rest == "mlp.experts.down_proj":
            halves = ("down_proj",)
        else:
            return {f"{at}{rest}": tensor}
        return {
            f"{at}mlp.experts.{e}.{half}.weight": part
            for e, stacked in enumerate(tensor)
            for half, part in zip(halves, stacked.chunk(len(halves)), strict=True)
        }
    if family == "qwen":
        return {f"{_QWEN[stem]}.{rest}": tensor}
    stem = "shared_head.norm" if stem == "post_norm" else stem
    return {f"model.layers.{LAYERS}.{stem}.{rest}": tensor}


def write(family: str, folder: Path) -> tuple[Any, MtpModel]:
    """A target with a head inside; the model and the head as transformers computes them."""
    torch.manual_seed(1)
    config = FAMILIES[family]()
    config._experts_implementation = "eager"
    main = AutoModelForCausalLM.from_config(config).double().eval()
    head = MtpModel(main, 1).double().eval()
    with torch.no_grad():
        for name, tensor in head.layers[0].state_dict().items():
            middle = 1.0 if "norm" in name and family != "qwen" else 0.0
            tensor.copy_(middle + 0.3 * torch.randn_like(tensor))
        main.model.norm.weight.add_(0.3 * torch.randn(HIDDEN).double())
    main.save_pretrained(folder)
    held = load_file(folder / "model.safetensors")
    for name, tensor in head.layers[0].state_dict().items():
        held |= {n: t.contiguous().clone() for n, t in head_names(family, name, tensor).items()}
    save_file(held, folder / "model.safetensors")
    return main, head


def build(folder: Path, **fields: Any) -> MtpDrafter:
    drafter = build_drafter(
        DrafterConfig("mtp", target=str(folder), dtype="float64", prefill_rows=16, **fields)
    )
    assert isinstance(drafter, MtpDrafter)
    return drafter


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_a_head_drafts_what_transformers_says_of_it(family: str, tmp_path: Path) -> None:
    main, head = write(family, tmp_path)
    drafter = build(tmp_path)
    tokens = [(7 * i + 3) % VOCAB for i in range(30)]
    follower = Follower(drafter, "r", tokens[:9])
    drafter.open([follower.opening()])
    for stop in (12, 13, 22, 30):
        propose(drafter, {follower.key: 3})
        drafter.observe([follower.commit(tokens[len(follower.tokens) : stop])])
        seen: list[torch.Tensor] = []
        logits = drafter.logits
        drafter.logits = lambda z: seen.append(logits(z)) or seen[-1]  # type: ignore[method-assign, func-returns-value]
        ours = propose(drafter, {follower.key: 3})[follower.key].tokens
        drafter.logits = logits  # type: ignore[method-assign]
        tapped = made_up(tokens, 0, stop - 1, HIDDEN)
        theirs, expected, _ = head(
            input_ids=torch.tensor([tokens[1:stop]]),
            last_hidden_states=main.model.norm(tapped)[None],
            attention_mask=None,
            position_ids=torch.arange(stop - 1)[None],
            mtp_cache=MtpCache(config=head.config),
        )
        assert ours[0] == theirs[0, 0]
        torch.testing.assert_close(seen[0], expected[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_drafting_over_commits_equals_a_fresh_pass(family: str, tmp_path: Path) -> None:
    write(family, tmp_path)
    drafter, whole = build(tmp_path), build(tmp_path)
    follower = Follower(drafter, "r", [5, 17, 99, 3, 64])
    drafter.open([follower.opening()])
    for kept in (0, 3, 1):
        block = propose(drafter, {follower.key: 3})[follower.key].tokens
        drafter.observe([follower.commit([*block[:kept], 11])])
    whole.open([follower.opening()])
    again = propose(whole, {follower.key: 3})[follower.key].tokens
    assert propose(drafter, {follower.key: 3})[follower.key].tokens == again


def test_a_model_that_transformers_does_not_know_is_refused_by_name(tmp_path: Path) -> None:
    write("glm4_moe", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "glm99"}))
    with pytest.raises(DrafterLoadError, match="glm99"):
        build(tmp_path)
