"""How many threads torch takes beside a library's kernels, and for models that it computes."""

from __future__ import annotations

import pytest
import torch

from actors.drafters.threads import torch_threads


def test_torch_has_its_threads_back_whatever_happens_within() -> None:
    before = torch.get_num_threads()

    @torch_threads(before + 1)
    def fail() -> None:
        assert torch.get_num_threads() == before + 1
        raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert torch.get_num_threads() == before
    with torch_threads(None):
        assert torch.get_num_threads() == before
