"""Shapes of well-known models, from the `config.json` each is published with."""

from __future__ import annotations

from collections.abc import Mapping

from policies.codesign.shape import Experts, Latent, Shape


def _dense(
    name: str,
    hidden: int,
    layers: int,
    heads: int,
    kv_heads: int,
    intermediate: int,
    vocab: int,
    *,
    head_dim: int = 128,
    tied: bool = False,
) -> Shape:
    return Shape(name, hidden, layers, heads, kv_heads, head_dim, intermediate, vocab, tied=tied)


MODELS: Mapping[str, Shape] = {
    shape.name: shape
    for shape in (
        _dense("SmolLM2-135M", 576, 30, 9, 3, 1536, 49152, head_dim=64, tied=True),
        _dense("Llama-3.2-1B", 2048, 16, 32, 8, 8192, 128256, head_dim=64, tied=True),
        _dense("Llama-3.2-3B", 3072, 28, 24, 8, 8192, 128256, tied=True),
        _dense("Llama-3.1-8B", 4096, 32, 32, 8, 14336, 128256),
        _dense("Llama-3.3-70B", 8192, 80, 64, 8, 28672, 128256),
        _dense("Llama-3.1-405B", 16384, 126, 128, 8, 53248, 128256),
        _dense("Mistral-7B-v0.3", 4096, 32, 32, 8, 14336, 32768),
        _dense("Qwen2.5-7B", 3584, 28, 28, 4, 18944, 152064),
        _dense("Qwen2.5-72B", 8192, 80, 64, 8, 29568, 152064),
        _dense("Qwen3-0.6B", 1024, 28, 16, 8, 3072, 151936, tied=True),
        _dense("Qwen3-1.7B", 2048, 28, 16, 8, 6144, 151936, tied=True),
        _dense("Qwen3-4B", 2560, 36, 32, 8, 9728, 151936, tied=True),
        _dense("Qwen3-8B", 4096, 36, 32, 8, 12288, 151936),
        _dense("Qwen3-32B", 5120, 64, 64, 8, 25600, 151936),
        Shape("Qwen3-30B-A3B", 2048, 48, 32, 4, 128, 0, 151936, experts=Experts(128, 8, 768)),
        Shape("Qwen3-235B-A22B", 4096, 94, 64, 4, 128, 0, 151936, experts=Experts(128, 8, 1536)),
        Shape("Mixtral-8x7B", 4096, 32, 32, 8, 128, 0, 32000, experts=Experts(8, 2, 14336)),
        Shape(
            "gpt-oss-120b",
            2880,
            36,
            64,
            8,
            64,
            0,
            201088,
            experts=Experts(128, 4, 2880),
            windowed_layers=18,
            window=128,
        ),
        Shape(
            "DeepSeek-V3",
            7168,
            61,
            128,
            128,
            128,
            18432,
            129280,
            dtype="fp8",
            experts=Experts(256, 8, 2048, shared=2048, dense_layers=3),
            latent=Latent(q_rank=1536, kv_rank=512, rope=64, nope=128, value=128),
        ),
    )
}
"""Dtypes are those of the published weights; gpt-oss is published in 4 bits, and planned for in
bf16 unless `--dtype` says otherwise."""
