"""Decoder layers as one call of the compiled library: what torch computes, row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import nn

from actors.drafters.external_kv import SessionKV, Span
from actors.drafters.learned.attend import Block, Causal
from actors.drafters.learned.blocks import Attend, DecoderLayer, Rope
from actors.drafters.learned.eagle_model import EagleLayer
from actors.drafters.learned.packed_layer import PackedEagleLayer, PackedLayer, pack_layers
from actors.drafters.learned.spec import LayerSpec
from actors.engine.native.crew import Crew
from tests.native import compiled, needs_compiler

pytestmark = needs_compiler
torch.set_num_threads(1)

PLAIN = LayerSpec(hidden=40, heads=4, kv_heads=2, head_dim=16, intermediate=56, max_context=512)
LAYERS = {
    "plain": PLAIN,
    "norms and biases": replace(PLAIN, qk_norm=True, attention_bias=True, norm_offset=1.0),
    "neighbours turn": replace(PLAIN, interleaved=True),
    "half of a head turns": replace(
        PLAIN, rope={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    ),
    "heads of 64": replace(PLAIN, head_dim=64, heads=6, kv_heads=2),
    "heads of 128": replace(PLAIN, head_dim=128, heads=2, kv_heads=1),
}
WAYS: dict[str, Callable[[Sequence[Span]], Attend]] = {
    "causal": Causal,
    "causal, window": lambda spans: Causal(spans, 7),
    "block": Block,
    "block, window": lambda spans: Block(spans, ((False, 9),)),
    "causal block, window": lambda spans: Block(spans, ((True, 9),)),
}
ROWS = ((0, 41), (70, 3), (5, 1))
"""(rows that a session has, rows that come) of three: some pass a tile, some a capacity."""


def random_(module: nn.Module) -> nn.Module:
    """Large weights, so that every part shows."""
    for name, parameter in module.named_parameters():
        mean = 1.0 if "norm" in name else 0.0
        nn.init.normal_(parameter.data, mean, 0.3 if parameter.dim() == 1 else 0.2)
    return module.requires_grad_(False)


def run(
    layer: nn.Module,
    spec: LayerSpec,
    way: str,
    rows: Sequence[tuple[int, int]],
    inputs: int,
    spoiled: int = -1,
) -> torch.Tensor:
    """Rows of sessions, after a first pass that fills what they have; each session's own numbers
    whoever is beside it. spoiled: a session whose numbers are none."""
    rope, kept = Rope(spec), [SessionKV() for _ in rows]
    for fill in (True, False):
        spans, parts, positions = list[Span](), list[torch.Tensor](), list[int]()
        for (have, more), kv in zip(rows, kept, strict=True):
            first, count = (0, have) if fill else (have, more)
            made = torch.Generator().manual_seed(100 * have + more + fill)
            parts.append(torch.randn(count, inputs, spec.hidden, generator=made))
            if len(parts) - 1 == spoiled:
                parts[-1].fill_(float("nan"))
            start = len(positions)
            positions += range(first, first + count)
            if count:
                spans.append(Span(kv, first, start, len(positions)))
        attend = WAYS["causal" if fill else way](spans)
        table = rope(torch.tensor(positions))
        packed = torch.cat(parts).unbind(1)
        out: torch.Tensor = layer(*packed, rope, table, attend)
    return out


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", LAYERS)
@torch.inference_mode()
def test_a_packed_layer_is_the_layer(name: str, way: str) -> None:
    torch.manual_seed(0)
    layer = random_(DecoderLayer(LAYERS[name], 1))
    expected = run(layer, LAYERS[name], way, ROWS, 1)
    assert isinstance(layer, DecoderLayer)
    packed = PackedLayer(layer, Crew(compiled(), 2), torch.float32)
    found = run(packed, LAYERS[name], way, ROWS, 1)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("normed", [False, True])
@torch.inference_mode()
def test_a_packed_eagle_layer_is_the_layer(normed: bool) -> None:
    torch.manual_seed(0)
    layer = random_(EagleLayer(PLAIN, normed))
    expected = run(layer, PLAIN, "causal", ROWS, 2)
    assert isinstance(layer, EagleLayer)
    packed = PackedEagleLayer(layer, Crew(compiled(), 2), torch.float32)
    torch.testing.assert_close(
        run(packed, PLAIN, "causal", ROWS, 2), expected, rtol=1e-4, atol=1e-4
    )


@torch.inference_mode()
def test_bf16_weights_are_the_weights_rounded_and_nothing_else_is() -> None:
    torch.manual_seed(0)
    layer = random_(DecoderLayer(PLAIN, 0))
    for module in layer.modules():
        if isinstance(module, nn.Linear):
            module.weight.data = module.weight.bfloat16().float()
    expected = run(layer, PLAIN, "causal", ROWS, 1)
    assert isinstance(layer, DecoderLayer)
    packed = PackedLayer(layer, Crew(compiled()), torch.bfloat16)
    torch.testing.assert_close(
        run(packed, PLAIN, "causal", ROWS, 1), expected, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("way", WAYS)
@torch.inference_mode()
def test_a_sessions_bits_depend_on_nobody_beside_it_and_on_no_thread(way: str) -> None:
    torch.manual_seed(0)
    layer = random_(DecoderLayer(LAYERS["norms and biases"], 0))
    assert isinstance(layer, DecoderLayer)
    spec = LAYERS["norms and biases"]
    packed = PackedLayer(layer, Crew(compiled(), 3), torch.float32)
    together = run(packed, spec, way, ROWS, 1)
    done = 0
    for have, more in ROWS:
        alone = run(packed, spec, way, [(have, more)], 1)
        assert torch.equal(alone, together[done : done + more])
        done += more


@torch.inference_mode()
def test_one_sessions_nan_stays_its_own() -> None:
    torch.manual_seed(0)
    layer = random_(DecoderLayer(PLAIN, 0))
    assert isinstance(layer, DecoderLayer)
    packed = PackedLayer(layer, Crew(compiled()), torch.float32)
    sound, spoiled = (run(packed, PLAIN, "causal", ROWS, 1, spoiled=i) for i in (-1, 1))
    own = slice(ROWS[0][1], ROWS[0][1] + ROWS[1][1])
    assert spoiled[own].isnan().all()
    assert torch.equal(spoiled[: own.start], sound[: own.start])
    assert torch.equal(spoiled[own.stop :], sound[own.stop :])


@torch.inference_mode()
def test_layers_that_the_library_does_not_know_stay_as_they_are() -> None:
    odd = replace(PLAIN, head_dim=12)
    model = nn.ModuleList((DecoderLayer(PLAIN, 0), DecoderLayer(odd, 1), EagleLayer(PLAIN, True)))
    pack_layers(model, Crew(compiled()), torch.float32)
    assert [type(m) for m in model] == [PackedLayer, DecoderLayer, PackedEagleLayer]
