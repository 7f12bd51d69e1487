"""Linear maps on the executor's multiplication."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from actors.engine.native.crew import Crew
from actors.engine.native.linear import PackedLinear, pack_linears
from tests.native import compiled, needs_compiler

pytestmark = needs_compiler


def crew(threads: int = 1) -> Crew:
    return Crew(compiled(), threads)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("inner", "outer"), [(64, 48), (37, 50), (1, 1)])
@pytest.mark.parametrize("threads", [1, 2])
def test_it_is_the_map_of_its_weights(
    inner: int, outer: int, threads: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(inner, outer).to(dtype)
    packed = PackedLinear(linear.weight, linear.bias, crew(threads))
    for rows in (1, 2, 3, 5, 7, 13, 40):
        x = torch.randn(rows, inner)
        exact = nn.functional.linear(x.double(), linear.weight.double(), linear.bias.double())
        torch.testing.assert_close(packed(x).double(), exact, rtol=1e-5, atol=1e-5)


def test_maps_large_enough_for_the_whole_team_agree_with_one_thread_bit_by_bit() -> None:
    torch.manual_seed(0)
    weight = torch.randn(512, 512)
    alone, team = (PackedLinear(weight, None, crew(n)) for n in (1, 3))
    x = torch.randn(9, 512)
    assert torch.equal(alone(x), team(x))
    assert torch.equal(alone(x)[4], alone(x[4]))  # a row's bits do not depend on the batch


def test_all_linears_of_a_module_are_replaced_and_leading_dimensions_stay() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 24, bias=False), nn.Sequential(nn.SiLU(), nn.Linear(24, 4)))
    x = torch.randn(2, 3, 8)
    with torch.inference_mode():
        before = model(x)
        pack_linears(model, crew(), torch.float32)
        after = model(x)
    assert not [m for m in model.modules() if isinstance(m, nn.Linear)]
    torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-6)
    assert model(x[:0]).shape == (0, 3, 4)
