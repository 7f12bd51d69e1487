"""Tiny models with known behaviour, real transformers classes, built in milliseconds.

RAND depends on its whole cache, so faults of KV or position change tokens. SUCC writes the
alphabet: exact control of accepted runs, EOS and stop positions, but blind to KV faults. CONST has
one next-token law at every position: for exact tests of distributions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SUCC_VOCAB = 16
CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


BARE: dict[str, Any] = {
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
"""A configuration without special tokens, of whatever family."""


def make_rand(
    vocab: int = 128,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    **kw: Any,
) -> LlamaForCausalLM:
    """A random Llama with large weights; no EOS unless `eos_token_id` is given."""
    return _build(
        dtype,
        seed,
        vocab_size=vocab,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        **{"intermediate_size": 2 * hidden, "initializer_range": 0.3, **kw},
    )


def make_succ(
    eos: int | None = None, dtype: torch.dtype = torch.float64, **kw: Any
) -> LlamaForCausalLM:
    """Greedy next of t is (t + 1) % 16, whatever came before."""
    model = _blind(SUCC_VOCAB, SUCC_VOCAB, dtype, eos_token_id=eos, **kw)
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(torch.eye(SUCC_VOCAB))
        # The final norm scales a one-hot row to sqrt(16) = 4.
        model.lm_head.weight.copy_(torch.eye(SUCC_VOCAB).roll(1, dims=0))
    return model


def make_const(
    p: Sequence[float], dtype: torch.dtype = torch.float64, **kw: Any
) -> LlamaForCausalLM:
    """The next-token law is `p` at every position: all rows are ones, lm_head columns log p."""
    hidden = 8
    model = _blind(len(p), hidden, dtype, **kw)
    logs = torch.tensor([math.log(x) if x > 0 else -1e9 for x in p], dtype=dtype)
    with torch.no_grad():
        model.model.embed_tokens.weight.fill_(1.0)
        model.lm_head.weight.copy_((logs / hidden)[:, None].expand(-1, hidden))
    return model


def _blind(vocab: int, hidden: int, dtype: torch.dtype, **kw: Any) -> LlamaForCausalLM:
    """One layer that adds nothing to the residual stream; RMS norm without epsilon."""
    model = _build(
        dtype,
        0,
        vocab_size=vocab,
        hidden_size=hidden,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        **{"intermediate_size": hidden, "rms_norm_eps": 0.0, **kw},
    )
    layer = model.model.layers[0]
    with torch.no_grad():
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    return model


def _build(dtype: torch.dtype, seed: int, **kw: Any) -> LlamaForCausalLM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(LlamaConfig(**{**BARE, **kw}))
    return model.to(dtype).eval()


def alphabet(vocab: int) -> list[str]:
    """One printable character a token: a … z, A … Z, 0 … 9, then Latin Extended upwards."""
    plain = [chr(97 + i) for i in range(26)] + [chr(65 + i) for i in range(26)]
    plain += [str(i) for i in range(10)]
    return (plain + [chr(0x100 + i) for i in range(max(0, vocab - len(plain)))])[:vocab]


def make_tokenizer(
    vocab: int, eos: int | None = None, characters: Sequence[str] | None = None
) -> PreTrainedTokenizerFast:
    """A character is a token; a character outside the vocabulary is token 0."""
    names = list(characters) if characters is not None else alphabet(vocab)
    core = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, names[0]))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    core.decoder = decoders.Fuse()
    special = {} if eos is None else {"eos_token": names[eos]}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, **special)
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def save_tiny(
    model: LlamaForCausalLM, path: str | Path, characters: Sequence[str] | None = None
) -> str:
    """Write safetensors, config and a one-character-a-token tokenizer; returns the folder."""
    folder = Path(path)
    model.save_pretrained(folder)
    eos = model.config.eos_token_id
    make_tokenizer(model.config.vocab_size, eos, characters).save_pretrained(folder)
    return str(folder)
