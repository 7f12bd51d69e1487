"""A decoder's shape, and what follows from it: weights, KV bytes, query heads per KV head."""

from __future__ import annotations

from dataclasses import dataclass

BYTES = {"bf16": 2.0, "fp8": 1.0, "fp4": 0.5}


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention: one cached row of kv_rank + rope elements for all heads."""

    q_rank: int
    kv_rank: int
    rope: int
    nope: int
    value: int


@dataclass(frozen=True, slots=True)
class Experts:
    """A routed feed-forward part: `chosen` of `count` experts for each row, and shared ones.
    dense_layers: so many first layers have the plain part instead."""

    count: int
    chosen: int
    intermediate: int
    shared: int = 0
    dense_layers: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """A model as the roofline sees it. dtype: of weights and operands; the KV cache is bf16 unless
    kv_dtype says fp8. window: the layers beyond `full_layers` see so many tokens only.
    extra: further weights that every forward reads (a drafter's projections)."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    dtype: str = "bf16"
    kv_dtype: str = "bf16"
    tied: bool = False
    experts: Experts | None = None
    latent: Latent | None = None
    windowed_layers: int = 0
    window: int = 0
    extra: int = 0

    def __post_init__(self) -> None:
        sizes = (self.hidden, self.layers, self.heads, self.kv_heads, self.head_dim, self.vocab)
        if min(sizes) < 1:
            raise ValueError(f"{self.name}: sizes of a model are positive")
        if self.heads % self.kv_heads:
            raise ValueError(
                f"{self.name}: {self.heads} query heads are no multiple of {self.kv_heads} KV heads"
            )
        if self.dtype not in BYTES or self.kv_dtype not in BYTES:
            raise ValueError(f"{self.name}: dtypes are {', '.join(BYTES)}")
        if not 0 <= self.windowed_layers <= self.layers:
            raise ValueError(f"{self.name}: more windowed layers than layers")

    @property
    def weight_bytes(self) -> float:
        """Bytes of one weight."""
        return BYTES[self.dtype]

    @property
    def group(self) -> int:
        """G, query heads that share a cached row: all of them with latent attention."""
        return self.heads if self.latent else self.heads // self.kv_heads

    @property
    def attention_weights(self) -> int:
        """Projections of one layer."""
        if (mla := self.latent) is not None:
            down = self.hidden * (mla.q_rank + mla.kv_rank + mla.rope)
            queries = mla.q_rank * self.heads * (mla.nope + mla.rope)
            values = mla.kv_rank * self.heads * (mla.nope + mla.value)
            return down + queries + values + self.heads * mla.value * self.hidden
        return 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)

    @property
    def expert_layers(self) -> int:
        return 0 if self.experts is None else self.layers - self.experts.dense_layers

    @property
    def expert_weights(self) -> int:
        """One expert of one layer: three matrices."""
        return 0 if self.experts is None else 3 * self.hidden * self.experts.intermediate

    @property
    def common_weights(self) -> int:
        """What every forward reads, whatever its rows: all but embedding and routed experts."""
        dense = 3 * self.hidden * self.intermediate * (self.layers - self.expert_layers)
        shared = self.experts.shared if self.experts else 0
        router = self.experts.count if self.experts else 0
        routed = self.expert_layers * self.hidden * (3 * shared + router)
        body = self.layers * self.attention_weights + dense + routed
        return body + self.vocab * self.hidden + self.extra

    @property
    def weights(self) -> int:
        """All parameters, norms apart."""
        experts = self.experts.count * self.expert_weights if self.experts else 0
        embedding = 0 if self.tied else self.vocab * self.hidden
        return self.common_weights + self.expert_layers * experts + embedding

    @property
    def active_weights(self) -> int:
        """Parameters that one row multiplies with."""
        chosen = self.experts.chosen * self.expert_weights if self.experts else 0
        return self.common_weights + self.expert_layers * chosen

    @property
    def cached_elements(self) -> int:
        """Elements that one token keeps in one layer."""
        if self.latent is not None:
            return self.latent.kv_rank + self.latent.rope
        return 2 * self.kv_heads * self.head_dim

    @property
    def kv_bytes_per_token(self) -> float:
        """In all layers that keep every token; windowed layers keep a window, see `kv_bytes`."""
        full = self.layers - self.windowed_layers
        return full * self.cached_elements * BYTES[self.kv_dtype]

    def kv_bytes(self, context: int) -> float:
        """Cache of one sequence of `context` tokens."""
        seen = min(context, self.window)
        windowed = self.windowed_layers * self.cached_elements * BYTES[self.kv_dtype] * seen
        return self.kv_bytes_per_token * context + windowed
