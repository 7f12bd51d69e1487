"""The delta rule of several rows is that of one row after the other, and can be cut anywhere."""

from __future__ import annotations

import pytest
import torch
from transformers.models.qwen3_next.modeling_qwen3_next import torch_recurrent_gated_delta_rule

from actors.engine.hybrid.convolution import convolve, slide
from actors.engine.hybrid.delta import Rows, delta_rule, remember

KEY_HEADS, HEADS, KEY, VALUE = 2, 4, 5, 3


def make_rows(count: int, dtype: torch.dtype = torch.float64) -> Rows:
    generator = torch.Generator().manual_seed(count)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(count, *shape, generator=generator, dtype=torch.float64).to(dtype)

    return Rows(
        draw(KEY_HEADS, KEY),
        draw(KEY_HEADS, KEY),
        draw(HEADS, VALUE),
        -draw(HEADS).square(),
        draw(HEADS).sigmoid(),
    )


def make_memory() -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(HEADS, KEY, VALUE, generator=generator, dtype=torch.float64)


def one_by_one(rows: Rows, memory: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The rule as it is written down: outputs, and the memory after each row."""
    outputs, memories = [], []
    for q, k, v, g, beta in zip(*rows, strict=True):
        q = q / (q.square().sum(-1, keepdim=True) + 1e-6).sqrt() / KEY**0.5
        k = k / (k.square().sum(-1, keepdim=True) + 1e-6).sqrt()
        q, k = (x.repeat_interleave(HEADS // KEY_HEADS, dim=0) for x in (q, k))
        memory = g.exp()[:, None, None] * memory
        change = beta[:, None] * (v - torch.einsum("hkv,hk->hv", memory, k))
        memory = memory + torch.einsum("hk,hv->hkv", k, change)
        outputs.append(torch.einsum("hkv,hk->hv", memory, q))
        memories.append(memory)
    return torch.stack(outputs), memories


@pytest.mark.parametrize("count", [1, 2, 9, 64])
def test_rows_at_once_are_rows_one_by_one(count: int) -> None:
    rows, memory = make_rows(count), make_memory()
    outputs, keys, writes, decay = delta_rule(rows, memory)
    expected, memories = one_by_one(rows, memory)
    assert (outputs - expected).abs().max() < 1e-12
    assert (remember(memory, keys, writes, decay) - memories[-1]).abs().max() < 1e-12


def test_the_memory_after_any_row_follows_from_what_is_noted() -> None:
    """Rows after it, which a verifier may reject, change nothing."""
    rows, memory = make_rows(9), make_memory()
    _, *noted = delta_rule(rows, memory)
    _, memories = one_by_one(rows, memory)
    for kept in range(1, 10):
        after = remember(memory, *(tensor[:kept] for tensor in noted))
        assert (after - memories[kept - 1]).abs().max() < 1e-12


def test_transformers_computes_the_same() -> None:
    rows, memory = make_rows(11, torch.float32), make_memory().float()
    outputs, keys, writes, decay = delta_rule(rows, memory)
    q, k, v, g, beta = (tensor[None] for tensor in rows)
    expected, last = torch_recurrent_gated_delta_rule(
        q,
        k,
        v,
        g=g,
        beta=beta,
        initial_state=memory[None],
        output_final_state=True,
        use_qk_l2norm_in_kernel=True,
    )
    torch.testing.assert_close(outputs, expected[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(remember(memory, keys, writes, decay), last[0], atol=1e-5, rtol=1e-5)


def test_decay_that_forgets_everything_overflows_nothing() -> None:
    rows = make_rows(8)._replace(decay=torch.full((8, HEADS), -1e4, dtype=torch.float64))
    outputs, keys, writes, decay = delta_rule(rows, make_memory())
    assert outputs.isfinite().all()
    assert remember(make_memory(), keys, writes, decay).isfinite().all()


def test_a_convolution_goes_on_from_its_window() -> None:
    generator = torch.Generator().manual_seed(0)
    rows, weight = (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in ((9, 2), (2, 1, 4))
    )
    blank = torch.zeros(3, 2, dtype=torch.float64)
    whole = convolve(rows, blank, weight, None)
    assert whole[0].tolist() == (rows[0] * weight[:, 0, -1]).tolist()
    for cut in range(1, 9):
        window = slide(blank, rows[:cut])
        assert window.shape == blank.shape
        rest = convolve(rows[cut:], window, weight, None)
        assert (rest - whole[cut:]).abs().max() < 1e-12
