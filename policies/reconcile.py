"""Is a drafted block still good? A block against the committed tokens, nothing else (DESIGN §7).

No verdict can change the text: the target verifies every token it is given. A wrong verdict costs
time only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Fit = Literal["use", "stale_tail", "stale", "stale_epoch", "parked"]


@dataclass(frozen=True, slots=True)
class Reconciled:
    """tokens: what may be verified next, at positions from the committed length on; empty unless
    fit is "use" or "stale_tail". "parked": drafted past the committed length, keep it until the
    commits reach its base. right: how many of its first tokens have been committed since."""

    fit: Fit
    tokens: tuple[int, ...] = ()
    right: int = 0


_STALE_EPOCH = Reconciled("stale_epoch")
_PARKED = Reconciled("parked")


def reconcile(
    *,
    base_len: int,
    block: tuple[int, ...],
    block_epoch: int,
    committed: Sequence[int],
    epoch: int,
) -> Reconciled:
    """`block` was drafted after `base_len` committed tokens in the session's `block_epoch`;
    `committed` is every committed token of the request now, `epoch` its session's.

    A block on a shorter base is used from the first position that is not committed yet, if all
    its earlier tokens are the committed ones: its drafter guessed what the target then wrote.
    """
    if block_epoch != epoch:
        return _STALE_EPOCH
    behind = len(committed) - base_len
    if behind == 0:
        return Reconciled("use", block)
    if behind < 0:
        return _PARKED
    if base_len < 0:
        return Reconciled("stale")
    written = committed[base_len : base_len + len(block)]
    right = 0
    while right < len(written) and written[right] == block[right]:
        right += 1
    if right < behind or behind == len(block):
        return Reconciled("stale", right=right)
    return Reconciled("stale_tail", block[behind:], right)
