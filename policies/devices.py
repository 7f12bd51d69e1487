"""GPUs by name: what a roofline needs to know of them. Figures are the makers' data sheets.

Peaks are dense (without structured sparsity), bandwidths those of the device's own memory. What a
kernel reaches of them is `Reach`, not the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TILE = 128
"""Rows of an attention tile on current kernels; to be measured again for each runtime and GPU."""
GEMM_TILE = 64
"""Rows that a matrix product is padded to where it computes (64 or 128 in bf16 and fp8)."""


@dataclass(frozen=True, slots=True)
class Device:
    """flops: operations a second by the dtype of the operands ("bf16", "fp8", "fp4"). bandwidth
    and link: bytes a second, link one way to a neighbour of the same node. memory: bytes."""

    name: str
    title: str
    flops: Mapping[str, float]
    bandwidth: float
    memory: float
    link: float
    tile: int = TILE
    gemm_tile: int = GEMM_TILE


@dataclass(frozen=True, slots=True)
class Reach:
    """What is reached of the peaks, and what every step pays besides.

    The defaults put Llama-3.1-8B on an H100 within a tenth of a published fit of vLLM at one row
    (5.886 ms + 1.207 ms of host; arXiv 2601.11580). layer_s: launches and gaps of one layer in a
    captured graph. reduce_s: an all-reduce of few bytes. host_s: scheduling, sampling, hand-over.
    """

    bandwidth: float = 0.8
    compute: float = 0.7
    layer_s: float = 10e-6
    reduce_s: float = 12e-6
    host_s: float = 1.2e-3


class UnknownNameError(ValueError):
    """A name that no table has; the message lists those there are."""


def lookup(kind: str, name: str, known: Mapping[str, object]) -> str:
    """The table's spelling of `name`. Raises UnknownNameError."""
    plain = {_plain(key): key for key in known}
    if (found := plain.get(_plain(name))) is not None:
        return found
    raise UnknownNameError(f"unknown {kind} {name!r}; known: {', '.join(known)}")


def device(name: str) -> Device:
    """A device of the table, whatever the case. Raises UnknownNameError."""
    return DEVICES[lookup("GPU", name, DEVICES)]


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def _device(
    name: str,
    title: str,
    *,
    bf16: float,
    fp8: float = 0.0,
    fp4: float = 0.0,
    terabytes_s: float,
    gigabytes: float,
    link_gigabytes_s: float,
) -> Device:
    """Peaks in 10^12 operations a second."""
    peaks = {"bf16": bf16, "fp8": fp8, "fp4": fp4}
    return Device(
        name,
        title,
        {dtype: peak * 1e12 for dtype, peak in peaks.items() if peak},
        terabytes_s * 1e12,
        gigabytes * 1e9,
        link_gigabytes_s * 1e9,
    )


# Sources: the data sheets of NVIDIA A100, H100, H200, HGX B200, L4, L40S, A10, the Ada GPU
# architecture paper (RTX 4090), AMD Instinct MI300X. Sheets that print sparse peaks are halved.
DEVICES: Mapping[str, Device] = {
    d.name: d
    for d in (
        _device("A10", "NVIDIA A10", bf16=125, terabytes_s=0.6, gigabytes=24, link_gigabytes_s=32),
        _device(
            "A100",
            "NVIDIA A100 SXM 80 GB",
            bf16=312,
            terabytes_s=2.039,
            gigabytes=80,
            link_gigabytes_s=300,
        ),
        _device(
            "A100-40GB",
            "NVIDIA A100 SXM 40 GB",
            bf16=312,
            terabytes_s=1.555,
            gigabytes=40,
            link_gigabytes_s=300,
        ),
        _device(
            "B200",
            "NVIDIA B200 (HGX)",
            bf16=2250,
            fp8=4500,
            fp4=9000,
            terabytes_s=7.7,
            gigabytes=180,
            link_gigabytes_s=900,
        ),
        _device(
            "H100",
            "NVIDIA H100 SXM",
            bf16=989.4,
            fp8=1978.9,
            terabytes_s=3.35,
            gigabytes=80,
            link_gigabytes_s=450,
        ),
        _device(
            "H100-PCIe",
            "NVIDIA H100 PCIe",
            bf16=756,
            fp8=1513,
            terabytes_s=2.0,
            gigabytes=80,
            link_gigabytes_s=64,
        ),
        _device(
            "H200",
            "NVIDIA H200 SXM",
            bf16=989.4,
            fp8=1978.9,
            terabytes_s=4.8,
            gigabytes=141,
            link_gigabytes_s=450,
        ),
        _device(
            "L4",
            "NVIDIA L4",
            bf16=121,
            fp8=242,
            terabytes_s=0.3,
            gigabytes=24,
            link_gigabytes_s=32,
        ),
        _device(
            "L40S",
            "NVIDIA L40S",
            bf16=362,
            fp8=733,
            terabytes_s=0.864,
            gigabytes=48,
            link_gigabytes_s=32,
        ),
        _device(
            "MI300X",
            "AMD Instinct MI300X",
            bf16=1307.4,
            fp8=2614.9,
            terabytes_s=5.3,
            gigabytes=192,
            link_gigabytes_s=64,
        ),
        _device(
            "RTX-4090",
            "NVIDIA GeForce RTX 4090",
            bf16=165.2,
            fp8=330.3,
            terabytes_s=1.008,
            gigabytes=24,
            link_gigabytes_s=32,
        ),
    )
}
