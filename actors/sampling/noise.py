"""Shared noise: a counter-based hash of (seed, absolute position, token id) (DESIGN §5).

Target and drafter evaluate the same function, so a drafter that believes what the target believes
picks the token that the target picks. Nothing else enters the hash: not the round, the row, the
draft length or the batch. That is why no schedule, failover or replay can change a text.

The law of one number: v is an odd multiple of 2^-53 in (0, 1), its high 31 bits from a two-round
32-bit mix (cheap, over a whole vocabulary), its low 22 bits from an independent 64-bit mix
(computed for the few tokens that can win). Fine steps matter: a token of probability 1e-9 wins
only below v = 1e-9. All arithmetic is on integers until the last step, so CPU and GPU agree.

With E = -log1p(-v), exponential of rate 1, argmin E/p is a draw from p (the exponential race);
-log E is standard Gumbel, and argmax(log p + g) is the same token.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
import torch

HIGH_BITS = 31  # of v, from `high_bits`; the low ones come from `uniform`
_LOW_BITS = 22
_M32 = 0xFFFFFFFF
_M64 = 0xFFFFFFFFFFFFFFFF
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio, odd: Weyl steps of splitmix64
_MUL32 = 0x21F0AAAD  # multipliers with low avalanche bias, by exhaustive search (prospector)
_MUL32_B = 0x735A2D97


def mix64(x: int) -> int:
    """splitmix64's finalizer: a bijection of 64-bit integers with full avalanche."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _M64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _M64
    return x ^ (x >> 31)


def sub_seed(seed: int, choice: int) -> int:
    """The seed of choice i of a request with n > 1; choice 0 keeps the request's own."""
    return seed if choice == 0 else mix64((mix64(seed ^ _GOLDEN) + choice * _GOLDEN) & _M64)


@dataclass(frozen=True, slots=True)
class NoiseKey:
    """What (seed, position) contributes; unsigned. `offset` and `multiplier` (odd) key the 32-bit
    mix, `low` the 64-bit one."""

    offset: int
    multiplier: int
    low: int


def noise_key(seed: int, position: int) -> NoiseKey:
    """Keys of one position. For a fixed seed the inner state is a bijection of the position, for
    a fixed position one of the seed, so neighbours never share it."""
    state = mix64(mix64((seed + _GOLDEN) & _M64) ^ ((position * _GOLDEN) & _M64))
    pair = mix64((state + _GOLDEN) & _M64)
    return NoiseKey(pair >> 32, (pair & _M32) | 1, mix64((state + 2 * _GOLDEN) & _M64))


def _token_code(token: int) -> int:
    """A fixed 32-bit bijection: removes the order of token ids before any key is applied."""
    x = ((token ^ (token >> 16)) * _MUL32) & _M32
    x = ((x ^ (x >> 15)) * _MUL32_B) & _M32
    return x ^ (x >> 15)


def _high(key: NoiseKey, token: int) -> int:
    """The scalar form of `high_bits`."""
    x = _token_code(token) ^ key.offset
    x = ((x ^ (x >> 16)) * key.multiplier) & _M32
    x = ((x ^ (x >> 15)) * _MUL32) & _M32
    x = x ^ (x >> 16) ^ (0x7FFF0000 if x >> 31 else 0)  # an arithmetic shift, see `high_bits`
    return x & 0x7FFFFFFF


def uniform(key: NoiseKey, token: int) -> float:
    """v of one token: an odd multiple of 2^-53 in (0, 1), exact in fp64."""
    low = mix64(key.low ^ ((token * _GOLDEN) & _M64)) >> (64 - _LOW_BITS)
    return math.ldexp((_high(key, token) << _LOW_BITS) | low | 1, -HIGH_BITS - _LOW_BITS)


def gumbel(v: float) -> float:
    """-log E for E = -log1p(-v); finite for every v of `uniform`."""
    return -math.log(-math.log1p(-v))


def _signed(x: int) -> int:
    return x - 0x100000000 if x & 0x80000000 else x


@functools.lru_cache(maxsize=16)
def token_codes(size: int, device: torch.device) -> torch.Tensor:
    """`_token_code` of ids 0 … size-1, int32 [size]; read only."""
    x = torch.arange(size, dtype=torch.int32, device=device)
    x = (x ^ (x >> 16)) * _MUL32
    x = (x ^ ((x >> 15) & 0x1FFFF)) * _MUL32_B
    return x ^ ((x >> 15) & 0x1FFFF)


def high_bits(key: NoiseKey, codes: torch.Tensor) -> torch.Tensor:
    """floor(v * 2^31) of the tokens with these codes: int32, the same shape, a new tensor.

    The last shift is arithmetic: the 31 bits kept are still uniform (the sign and they determine
    the input), and a device whose integers are signed saves a mask.
    """
    return _high_bits_cpu(key, codes) if codes.device.type == "cpu" else _high_bits(key, codes)


def _high_bits(key: NoiseKey, codes: torch.Tensor) -> torch.Tensor:
    """torch's int32 has no logical shift, so shifts are masked."""
    x = torch.bitwise_xor(codes, _signed(key.offset))
    t = torch.bitwise_right_shift(x, 16)
    x.bitwise_xor_(t.bitwise_and_(0xFFFF)).mul_(_signed(key.multiplier))
    torch.bitwise_right_shift(x, 15, out=t)
    x.bitwise_xor_(t.bitwise_and_(0x1FFFF)).mul_(_MUL32)
    torch.bitwise_right_shift(x, 16, out=t)
    return x.bitwise_xor_(t).bitwise_and_(0x7FFFFFFF)


def _high_bits_cpu(key: NoiseKey, codes: torch.Tensor) -> torch.Tensor:
    """The same in numpy, whose integers are unsigned too: half the time of a whole row."""
    u32 = np.uint32
    x = codes.numpy().view(u32) ^ u32(key.offset)
    t = x >> u32(16)
    x ^= t
    x *= u32(key.multiplier)
    np.right_shift(x, u32(15), out=t)
    x ^= t
    x *= u32(_MUL32)
    np.right_shift(x.view(np.int32), 16, out=t.view(np.int32))
    x ^= t
    x &= u32(0x7FFFFFFF)
    return torch.from_numpy(x.view(np.int32))
