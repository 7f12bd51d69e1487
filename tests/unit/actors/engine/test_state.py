"""What each layer keeps, by the model's config; what cannot be rolled back is refused by name."""

from __future__ import annotations

import pytest
from transformers import (
    BambaConfig,
    FalconH1Config,
    JambaConfig,
    Lfm2Config,
    LlamaConfig,
    MambaConfig,
    MiniMaxConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3_5Config,
    Qwen3NextConfig,
)

from actors.engine.errors import ModelLoadError
from actors.engine.state import (
    Convolution,
    GatedDelta,
    PagedKV,
    is_recurrent,
    paged_layers,
    state_specification,
)

TINY = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def test_every_attention_layer_is_paged() -> None:
    assert state_specification(LlamaConfig(**TINY)) == (PagedKV(2, 16), PagedKV(2, 16))


def test_a_window_limits_what_a_row_sees() -> None:
    assert state_specification(MistralConfig(**TINY, sliding_window=8))[0].window == 8
    config = Qwen2Config(**TINY, use_sliding_window=True, sliding_window=8, max_window_layers=1)
    assert [layer.window for layer in state_specification(config)] == [None, 8]


def test_recurrent_layers_of_an_unknown_family_are_refused_by_name() -> None:
    config = LlamaConfig(**TINY)
    config.layer_types = ["linear_attention", "full_attention"]
    with pytest.raises(ModelLoadError, match="llama: layers of kind linear_attention"):
        state_specification(config)


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (MambaConfig(), "linear_attention"),
        (JambaConfig(), "linear_attention"),
        (BambaConfig(), "linear_attention"),
        (MiniMaxConfig(), "linear_attention"),
        (FalconH1Config(), "hybrid"),
    ],
)
def test_mamba_and_its_kin_are_refused_by_name(config: PreTrainedConfig, kind: str) -> None:
    with pytest.raises(ModelLoadError, match=f"{config.model_type}: layers of kind {kind}"):
        state_specification(config)


def test_hybrids_keep_a_state_of_fixed_size_in_their_recurrent_layers() -> None:
    spec = state_specification(Qwen3NextConfig())
    assert [isinstance(layer, PagedKV) for layer in spec] == [i % 4 == 3 for i in range(48)]
    assert spec[3] == PagedKV(2, 256)
    assert spec[0] == GatedDelta(16, 32, 128, 128, 4)
    assert state_specification(Qwen3_5Config())[0] == GatedDelta(16, 32, 128, 128, 4)
    lfm2 = state_specification(Lfm2Config(full_attn_idxs=[2]))
    assert lfm2[1:3] == (Convolution(2560, 3), PagedKV(8, 80))
    assert [layer.row_elements for layer in lfm2[1:3]] == [0, 2 * 8 * 80]


def test_who_can_do_with_attention_alone_says_so() -> None:
    llama = state_specification(LlamaConfig(**TINY))
    assert paged_layers(llama) == llama
    assert not is_recurrent(llama)
    qwen = state_specification(Qwen3NextConfig())
    assert is_recurrent(qwen)
    with pytest.raises(ModelLoadError, match="36 of 48 layers carry a recurrent state"):
        paged_layers(qwen)


def test_a_hybrid_that_does_not_say_which_layers_attend_is_refused() -> None:
    """A config.json as it stands may leave it to transformers' defaults."""
    config = LlamaConfig(**TINY)
    config.model_type = "qwen3_next"
    with pytest.raises(ModelLoadError, match="which layers attend"):
        state_specification(config)
