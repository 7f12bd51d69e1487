"""What config.json adds to the shapes of tensors: RoPE, windows, indices. Shapes themselves are
read from tensors, and a config that contradicts them is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from actors.drafters.checkpoints.collect import Shape
from actors.drafters.checkpoints.files import Checkpoint, refusal
from actors.drafters.learned.spec import LayerSpec

MAX_TAPS = 64


def layer_spec(
    shapes: Mapping[str, Shape],
    config: Mapping[str, Any],
    layer: str = "layers.0.",
    *,
    norm_offset: float = 0.0,
    window: int | None = None,
) -> LayerSpec:
    """The decoder layer under the prefix `layer`; hidden is what o_proj writes. `config` has
    transformers' names. Raises DrafterLoadError."""
    attn = f"{layer}self_attn."
    for need in ("q_proj", "k_proj", "v_proj", "o_proj"):
        if len(shapes.get(f"{attn}{need}.weight", ())) != 2:
            raise refusal(f"there is no matrix {attn}{need}.weight")
    q, k = shapes[f"{attn}q_proj.weight"][0], shapes[f"{attn}k_proj.weight"][0]
    qk_norm = f"{attn}q_norm.weight" in shapes
    hidden = shapes[f"{attn}o_proj.weight"][0]
    if qk_norm:
        head_dim = shapes[f"{attn}q_norm.weight"][0]
    else:
        heads = integer(config, "num_attention_heads", least=1)
        head_dim = integer(config, "head_dim", hidden // heads, least=1)
    if q % head_dim or k % head_dim or (q // head_dim) % max(1, k // head_dim):
        raise refusal(f"{q} rows of q_proj and {k} of k_proj are no heads of {head_dim}")
    agrees(config, "num_attention_heads", q // head_dim)
    agrees(config, "num_key_value_heads", k // head_dim)
    activation = config.get("hidden_act", "silu")
    if activation != "silu":
        raise refusal(f"hidden_act is {activation!r}; only silu is known here")
    return LayerSpec(
        hidden=hidden,
        heads=q // head_dim,
        kv_heads=k // head_dim,
        head_dim=head_dim,
        intermediate=shapes.get(f"{layer}mlp.gate_proj.weight", (0,))[0],
        eps=float(config.get("rms_norm_eps", 1e-6)),
        qk_norm=qk_norm,
        attention_bias=f"{attn}q_proj.bias" in shapes,
        norm_offset=norm_offset,
        max_context=integer(config, "max_position_embeddings", 0),
        window=window,
        interleaved=config.get("is_neox_style") is False,
        rope=rope_of(config),
    )


def rope_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """transformers' `rope_parameters`, of today's configs and of older ones (`rope_theta` and
    `rope_scaling`): a drafter's own, never the target's (pitfalls S37)."""
    rope = config.get("rope_parameters")
    if isinstance(rope, Mapping) and rope and all(isinstance(v, Mapping) for v in rope.values()):
        kinds = sorted(rope)  # one for each type of attention
        if any(rope[kind] != rope[kinds[0]] for kind in kinds):
            raise refusal(f"rope_parameters differ between {' and '.join(kinds)}")
        rope = rope[kinds[0]]
    made = dict(rope or config.get("rope_scaling") or {})
    kind = made.pop("type", None)
    made.setdefault("rope_type", kind or "default")
    made.setdefault("rope_theta", config.get("rope_theta") or 10000.0)
    if "partial_rotary_factor" in config:
        made.setdefault("partial_rotary_factor", config["partial_rotary_factor"])
    return made


def integers(value: object, name: str) -> tuple[int, ...]:
    """A short list of integers. Raises DrafterLoadError naming the key."""
    if (
        not isinstance(value, Sequence)
        or isinstance(value, str)
        or not 0 < len(value) <= MAX_TAPS
        or any(isinstance(v, bool) or not isinstance(v, int) for v in value)
    ):
        raise refusal(f"{name} is {value!r}, not a list of 1 to {MAX_TAPS} integers")
    return tuple(value)


def integer(
    config: Mapping[str, Any], name: str, default: int | None = None, least: int = 0
) -> int:
    """config[name], or `default`. Raises DrafterLoadError: missing, no integer, below `least`."""
    value = config.get(name)
    if value is None:
        if default is None:
            raise refusal(f"config.json has no {name}")
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise refusal(f"{name} is {value!r}, not an integer of at least {least}")
    return value


def draft_ids(
    checkpoint: Checkpoint, d2t: str, rows: int, vocab: int, t2d: str | None = None
) -> torch.Tensor:
    """Target ids of a reduced vocabulary of `rows` rows: d2t holds offsets, id = row + d2t[row].

    vocab: the target's, 0 unknown. Raises DrafterLoadError: another length, ids out of range or
    twice, a t2d that says otherwise.
    """
    offsets = checkpoint.tensor(d2t)
    if offsets.shape != (rows,) or offsets.is_floating_point() or offsets.dtype == torch.bool:
        raise refusal(f"{d2t} is {offsets.dtype} {list(offsets.shape)}, not {rows} integers")
    if not rows:
        raise refusal(f"{d2t} names no token")
    ids = torch.arange(rows) + offsets.long()
    top = vocab or (int(checkpoint.shapes[t2d][0]) if t2d else 0)
    distinct = ids.sort().values
    outside = int(distinct[0]) < 0 or (top and int(distinct[-1]) >= top)
    if outside or bool((distinct.diff() == 0).any()):
        raise refusal(f"{d2t} does not give distinct ids of the target's vocabulary")
    if t2d is not None:
        members = checkpoint.tensor(t2d).bool().nonzero().flatten()
        if not torch.equal(members, distinct):
            raise refusal(f"{d2t} and {t2d} do not name the same tokens")
    return ids


def agrees(config: Mapping[str, Any], name: str, found: int) -> None:
    """Raises DrafterLoadError where config.json says something else than the tensors."""
    said = config.get(name)
    if said is not None and said != found:
        raise refusal(f"{name} is {said} in config.json and {found} by the tensors")
