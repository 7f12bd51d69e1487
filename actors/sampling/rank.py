"""Order on a row of logits: descending by value, equal values by ascending id (S21).

One rule for argmax, top-k, top-p and logprob ranks, whatever order a device's kernels leave
equal values in. Each function takes a row of any length; a NaN counts as the largest value.
"""

from __future__ import annotations

import numpy as np
import torch

_BLOCK = 256
_WIDTHS = (256, 128, 64, 32, 16)
_LONG = 4096


def first_max(rows: torch.Tensor) -> tuple[list[float], list[int]]:
    """Each row's largest value and the lowest id that holds it; rows [R, V], any float dtype.

    Block maxima first, then one block: several times faster than `argmax` on a CPU.
    """
    if rows.shape[1] % _BLOCK or rows.shape[1] < _LONG:
        values, ids = rows.max(dim=1)
        return values.tolist(), ids.tolist()
    blocks = rows.reshape(len(rows), -1, _BLOCK)
    values, at = blocks.amax(dim=2).max(dim=1)
    inner = blocks[torch.arange(len(rows), device=rows.device), at].argmax(dim=1)
    return values.tolist(), (at * _BLOCK + inner).tolist()


def arg_max(row: torch.Tensor) -> int:
    """Where a largest value is; which of several is open. fp32 or fp64, no NaN."""
    # numpy's is eight times faster than torch's on a CPU.
    return int(row.numpy().argmax() if row.device.type == "cpu" else row.argmax())


def at_least(row: torch.Tensor, bound: float) -> list[int]:
    """Where the values of at least `bound` are, ascending; fp32 or fp64."""
    if row.device.type == "cpu":
        return np.flatnonzero(row.numpy() >= bound).tolist()
    found: list[int] = (row >= bound).nonzero().view(-1).tolist()
    return found


def equal_before(row: torch.Tensor, token: int) -> int:
    """How many entries before the token's equal it; fp32 or fp64."""
    if row.device.type == "cpu":
        values = row.numpy()
        return int(np.count_nonzero(values[:token] == values[token]))
    return int((row[:token] == row[token]).count_nonzero())


def sum_where(values: torch.Tensor, chosen: torch.Tensor) -> float:
    """The sum of the chosen values; fp32, bool, both [n]."""
    if values.device.type == "cpu":
        return float(np.dot(values.numpy(), chosen.numpy()))
    return float(values.dot(chosen.to(values.dtype)))


def top_any(row: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The `count` largest values, descending, and where they are; which of several equal ones at
    the end, and in which order, is open. count <= len(row).

    Seen as [width, len/width], the largest values lie in the columns with the largest maxima: a
    long row is ranked by column, then inside the columns kept.
    """
    length = len(row)
    fits = [w for w in _WIDTHS if length % w == 0 and length // w >= count]
    if not fits or length < _LONG:
        return row.topk(count)
    width = min(fits, key=lambda w: length // w + count * w)
    columns = row.view(width, -1)
    kept = columns.amax(dim=0).topk(count, sorted=False).indices
    values, places = columns.index_select(1, kept).view(-1).topk(count)
    return values, places // count * (length // width) + kept[places % count]


def largest(row: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The `count` first entries of the order: values and ids, both [min(count, V)]."""
    count = min(count, len(row))
    values, ids = top_any(row, min(count + 1, len(row)))
    if len(ids) > count and bool(values[count - 1] == values[count]):
        cut = values[count - 1]
        above = (row > cut).nonzero().view(-1)
        ties = (row == cut).nonzero().view(-1)
        ids = torch.cat((above, ties[: count - len(above)]))
    ids = ids[:count].sort().values
    values, order = row[ids].sort(descending=True, stable=True)
    return values, ids[order]


def rank_of(row: torch.Tensor, token: int) -> int:
    """The token's place in the order, 1 for the first."""
    value = row[token]
    above = (row > value).sum() + (row[:token] == value).sum()
    return int(above) + 1
