"""Tiny tokenizers and a scripted backend that keep the real contracts."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import httpx
from fastapi import FastAPI
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from actors.sampling.params import SamplingParams
from cluster.gateway.http import create_app
from cluster.gateway.service import GenerationService
from cluster.gateway.settings import GatewaySettings
from cluster.gateway.text import TextCodec
from cluster.gateway.types import (
    Chunk,
    Finish,
    GenerateSpec,
    ModelInfo,
    PositionScores,
    Score,
)

EOS = 16
TEXTS = (
    "The pilot fish swims ahead of the shark.",
    "Größe, naïve café, 你好世界, Привет, हिन्दी",
    "🎉 party 👩‍👩‍👧 family 🇩🇪 flag 🤷🏽‍♂️ shrug",
)


def make_char_tokenizer() -> Tokenizer:
    """Token t is chr(97 + t) for t < 16; 16 is the special <eos>."""
    vocab = {chr(97 + t): t for t in range(16)} | {"<eos>": EOS}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken("<eos>", special=True)])
    return tokenizer


def make_bpe_tokenizer(merges: int = 40) -> Tokenizer:
    """Byte-level BPE of all bytes and a few merges: characters split over tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=257 + merges,
        initial_alphabet=alphabet,
        special_tokens=["<eos>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def make_byte_fallback_tokenizer() -> Tokenizer:
    """Sentencepiece-like: ▁ for a space, <0xXX> for unknown bytes, one leading space dropped."""
    pieces = ["<unk>", *(f"<0x{b:02X}>" for b in range(256)), "▁", "▁hello", "▁world", "a", "b"]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


class FakeChatTokenizer:
    """What the gateway uses of transformers' fast tokenizer; the template is plain text."""

    def __init__(self, backend: Tokenizer) -> None:
        self.backend_tokenizer = backend

    def apply_chat_template(
        self, conversation: Any, *, tokenize: bool, add_generation_prompt: bool
    ) -> str:
        assert not tokenize
        if conversation[0]["role"] == "assistant":
            raise ValueError("conversation roles must begin with user")
        turns = "".join(m["content"] for m in conversation)
        return turns + ("b" if add_generation_prompt else "")


def make_codec(tokenizer: Tokenizer | None = None) -> TextCodec:
    return TextCodec(FakeChatTokenizer(tokenizer or make_char_tokenizer()))


def make_info(vocab_size: int = 17, max_model_len: int = 64) -> ModelInfo:
    return ModelInfo("tiny", vocab_size, max_model_len, "float64", "digest")


def make_spec(prompt_ids: Sequence[int] = (0,), **changes: Any) -> GenerateSpec:
    sampling = changes.pop("sampling", None) or SamplingParams(
        temperature=0.0, max_tokens=20, min_tokens=changes.pop("min_tokens", 0)
    )
    request_id = changes.pop("request_id", "request")
    return GenerateSpec(request_id, tuple(prompt_ids), sampling, **changes)


def make_scores(token: int, n: int = 2) -> PositionScores:
    top = tuple(Score((token + k) % 16, -float(k)) for k in range(n))
    return PositionScores(Score(token, 0.0), top)


def make_chunks(
    tokens: Sequence[int],
    depth: int = 3,
    *,
    finish: Finish = "length",
    stop_token: int | None = None,
    accepted: int | None = None,
    logprobs: bool = False,
    remote: bool = True,
) -> list[Chunk]:
    """An engine's chunks for `tokens`: the first from prefill, then rounds that draft `depth` and
    accept `accepted` of them (default: all), the last one as far as it goes."""
    accepts = depth if accepted is None else accepted
    blocks = [tokens[:1]]
    blocks += [tokens[i : i + accepts + 1] for i in range(1, len(tokens), accepts + 1)]
    chunks = []
    for i, block in enumerate(blocks):
        last = i == len(blocks) - 1
        drafted = depth if i else 0
        chunks.append(
            Chunk(
                tokens=tuple(block),
                logprobs=tuple(map(make_scores, block)) if logprobs else (),
                drafted=drafted,
                accepted=min(accepts, len(block)) if drafted else 0,
                mechanism="suffix" if drafted else "",
                reason="" if drafted else ("client" if i else "prefill"),
                remote=remote and drafted > 0,
                finish=finish if last else None,
                stop_token=stop_token if last else None,
                queue_s=0.0 if i else 0.25,
                prefill_s=0.0 if i else 0.5,
                cached_tokens=0 if i else len(tokens[:1]),
            )
        )
    return chunks


def successors(count: int, first: int = 1) -> list[int]:
    """The output of a model whose greedy next of t is (t + 1) % 16."""
    return [(first + i) % 16 for i in range(count)]


class ScriptedBackend:
    """Gives each request the chunks of `script(spec)`; counts what was started and aborted.

    pace: awaited before each chunk but the first `free` ones. failure: raised after the chunks.
    """

    def __init__(
        self,
        script: Callable[[GenerateSpec], Sequence[Chunk]] | None = None,
        *,
        info: ModelInfo | None = None,
        failure: Exception | None = None,
        pace: Callable[[], Any] | None = None,
        free: int = 0,
    ) -> None:
        self._script = script or (
            lambda spec: make_chunks(successors(spec.sampling.max_tokens, spec.prompt_ids[-1] + 1))
        )
        self._info = info or make_info()
        self._failure = failure
        self._pace = pace
        self._free = free
        self.specs: list[GenerateSpec] = []
        self.running: set[str] = set()
        self.aborted: list[str] = []
        self.rounds = 0
        self.idle = asyncio.Event()

    async def info(self) -> ModelInfo:
        return self._info

    async def generate(self, spec: GenerateSpec) -> AsyncIterator[Chunk]:
        self.specs.append(spec)
        self.running.add(spec.request_id)
        self.idle.clear()
        ended = False
        try:
            for i, chunk in enumerate(self._script(spec)):
                if self._pace is not None and i >= self._free:
                    await self._pace()
                self.rounds += 1
                yield chunk
            ended = True
            if self._failure is not None:
                raise self._failure
        finally:
            self.running.discard(spec.request_id)
            if not ended:
                self.aborted.append(spec.request_id)
            if not self.running:
                self.idle.set()


def make_service(
    backend: ScriptedBackend, tokenizer: Tokenizer | None = None, **settings: Any
) -> GenerationService:
    settings.setdefault("num_speculative_tokens", 3)
    chat = FakeChatTokenizer(tokenizer or make_char_tokenizer())
    return GenerationService(backend, chat, GatewaySettings(**settings))


def make_app(
    backend: ScriptedBackend | None = None, tokenizer: Tokenizer | None = None, **settings: Any
) -> FastAPI:
    settings.setdefault("num_speculative_tokens", 3)
    chat = FakeChatTokenizer(tokenizer or make_char_tokenizer())
    return create_app(backend or ScriptedBackend(), chat, GatewaySettings(**settings))


def make_client(app: FastAPI) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


def split_at(items: Sequence[int], cuts: Sequence[int]) -> list[list[int]]:
    """`items` in blocks that end at `cuts`."""
    bounds = [0, *sorted(set(cuts)), len(items)]
    return [list(items[a:b]) for a, b in itertools.pairwise(bounds) if a < b]
