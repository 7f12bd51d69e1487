"""How many threads torch takes for its own operations.

Its setting is the process's, and the right number is not: a model that torch computes wants many,
the small operations around a library's kernels want one. Others would be woken for next to nothing
and then spin for milliseconds on the core that the next kernel needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """As many within, as before afterwards; None leaves them alone."""
    before = torch.get_num_threads()
    if count is None or count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
