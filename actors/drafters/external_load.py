"""Loading a draft model, and proving that it can draft for this target, before any session.

What would only lower acceptance without a word is refused here by name: another vocabulary, an
attention that is more than causal attention, a state that cannot be rolled back, rounded RoPE.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from actors.drafters.checkpoints.locate import drafter_folder
from actors.drafters.config import DrafterConfig
from actors.drafters.errors import DrafterLoadError
from actors.drafters.external_cut import cut_folder, load_cut
from actors.drafters.external_kv import ATTENTION, DraftStep, SessionKV, Span
from actors.drafters.external_vocabulary import Intersection, intersect
from actors.engine.errors import ModelLoadError
from actors.engine.loading import load_config, load_model, resolve_dtype
from actors.engine.native.family import config_obstacle


def with_model(config: DrafterConfig) -> DrafterConfig:
    """Without a `model` it is the one that is shipped for the target. Raises DrafterLoadError."""
    if config.model:
        return config
    if not config.target:
        raise DrafterLoadError("draft_model needs a model", "model")
    return replace(config, model=str(drafter_folder(config)), revision=None)


def load_draft_model(config: DrafterConfig) -> Any:
    """A transformers causal LM from safetensors or GGUF, checked. One that was cut from its target
    has the rest, and so the vocabulary, from there. Raises DrafterLoadError."""
    config = with_model(config)
    assert config.model
    if config.threads:
        torch.set_num_threads(config.threads)
    try:
        dtype = resolve_dtype(config.dtype, config.device, native=_is_native(config))
        cut = cut_folder(config.model, config.revision)
        if cut is None:
            model = load_model(config.model, config.revision, dtype, config.device)
        else:
            model = load_cut(cut, config, dtype)
    except ModelLoadError as error:
        raise DrafterLoadError(f"draft model: {error}", error.param) from error
    if cut is None and config.target_tokenizer and not config.use_heterogeneous_vocab:
        compare_vocabularies(
            vocabulary(config.target_tokenizer), vocabulary(config.model, config.revision)
        )
    model.set_attn_implementation(ATTENTION)
    check_rope(model)
    check_incremental(model)
    return model


def _is_native(config: DrafterConfig) -> bool:
    """Whether the executor will compute it, which is fast in bf16 on every CPU."""
    if config.device != "cpu" or not config.compile_cache:
        return False
    return not config_obstacle(load_config(config.model or "", config.revision))


def other_vocabulary(model: Any, config: DrafterConfig) -> Intersection | None:
    """What the draft model's vocabulary shares with the target's, where another is allowed. One
    that was cut from its target has the target's own."""
    if not config.use_heterogeneous_vocab or cut_folder(config.model or "", config.revision):
        return None
    outputs = int(model.get_output_embeddings().weight.shape[0])
    return intersect(config, outputs)


def vocabulary(path: str, revision: str | None = None) -> dict[int, str]:
    """Token by id of the tokenizer at `path`. Raises DrafterLoadError when there is none."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path, revision=revision)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise DrafterLoadError(
            f"cannot read the tokenizer of {path!r}, so its ids cannot be compared: {error}",
            "model",
        ) from error
    return {index: token for token, index in tokenizer.get_vocab().items()}


def compare_vocabularies(target: dict[int, str], draft: dict[int, str]) -> None:
    """Ids that both have must mean the same token; one may have more (pitfalls S34)."""
    common = sorted(target.keys() & draft.keys())
    for index in common:
        if target[index] != draft[index]:
            raise DrafterLoadError(
                f"token id {index} is {target[index]!r} in the target's vocabulary and "
                f"{draft[index]!r} in the draft model's; use_heterogeneous_vocab drafts what both "
                "have",
                "model",
            )
    if not common:
        raise DrafterLoadError("the two vocabularies have no token id in common", "model")


def check_rope(model: Any) -> None:
    """RoPE frequencies in half precision lose acceptance as the position grows."""
    for name, buffer in model.named_buffers():
        if "inv_freq" in name and buffer.dtype.itemsize < 4:
            raise DrafterLoadError(f"{name} is {buffer.dtype}, not fp32", "dtype")


@torch.inference_mode()
def check_incremental(model: Any, length: int = 8) -> None:
    """A short text fed in two parts must give what transformers' own attention gives in one.

    Only rows of the second part are compared, by norm: they need the first part's state, and in
    bf16 single logits of odd texts differ by a quarter between two sound kernels.
    """
    vocab = int(model.get_input_embeddings().weight.shape[0])
    ids = torch.tensor([[(7 * i + 1) % vocab for i in range(length)]], device=model.device)
    kv, half = SessionKV(), length // 2
    _feed(model, kv, ids, 0, half)
    ours = _feed(model, kv, ids, half, length)
    model.set_attn_implementation("eager")
    try:
        theirs = model(input_ids=ids, use_cache=False).logits[0, half:].float()
    finally:
        model.set_attn_implementation(ATTENTION)
    off = ((ours - theirs).norm() / theirs.norm().clamp(min=1e-6)).item()
    if not off <= (0.05 if model.dtype.itemsize < 4 else 1e-3):
        raise DrafterLoadError(
            f"{model.config.model_type}: fed in parts, the model's logits are off by {off:.1e} of "
            "their norm; this architecture cannot draft",
            "model",
        )


def _feed(model: Any, kv: SessionKV, ids: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    """Logits [stop - start, vocab] of one session's next rows, fp32."""
    logits: torch.Tensor = model(
        input_ids=ids[:, start:stop],
        position_ids=torch.arange(start, stop, device=ids.device)[None],
        use_cache=False,
        draft_step=DraftStep([Span(kv, start, 0, stop - start)]),
    ).logits
    return logits[0].float()
