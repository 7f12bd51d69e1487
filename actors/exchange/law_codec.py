"""Laws of drafted tokens on the wire, both ways: raw little-endian numbers, all counts checked
before anything is read from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from actors.exchange.limits import MAX_LAW
from actors.exchange.wire_error import check
from actors.sampling.law import TokenLaw, problem
from pilotfish.v1 import exchange_pb2

_IDS, _PROBS = np.dtype("<u4"), np.dtype("<f4")


def law_to_pb(laws: Sequence[TokenLaw]) -> exchange_pb2.Law:
    return exchange_pb2.Law(
        counts=[len(law.ids) for law in laws],
        ids=b"".join(law.ids.astype(_IDS).tobytes() for law in laws),
        probs=b"".join(law.probs.astype(_PROBS).tobytes() for law in laws),
    )


def law_from_pb(
    message: exchange_pb2.Law, tokens: Sequence[int], vocab_size: int
) -> tuple[TokenLaw, ...]:
    """One law for each drafted token. vocab_size 0: any id. Raises WireError."""
    counts = message.counts
    check(len(counts) == len(tokens), "law", f"{len(counts)} laws for {len(tokens)} tokens")
    check(all(0 < n <= MAX_LAW for n in counts), "law", f"a token's has 1 to {MAX_LAW} ids")
    total = sum(counts)
    for name, data in (("ids", message.ids), ("probs", message.probs)):
        check(len(data) == 4 * total, f"law.{name}", f"{len(data)} bytes, not {4 * total}")
    ids = np.frombuffer(message.ids, _IDS).astype(np.int64)
    probs = np.frombuffer(message.probs, _PROBS).astype(np.float32)
    laws, start = list[TokenLaw](), 0
    for token, count in zip(tokens, counts, strict=True):
        law = TokenLaw(ids[start : start + count], probs[start : start + count])
        wrong = problem(law, token, vocab_size or 1 << 32)
        check(not wrong, "law", wrong)
        laws.append(law)
        start += count
    return tuple(laws)
