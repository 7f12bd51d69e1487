"""From the engine's rounds to the client's text: stop strings, usage and statistics do not depend
on how tokens come in blocks (S02, S08)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from actors.engine.core import drain
from actors.engine.events import TokenEvent
from actors.engine.frames import chunk_of as engine_chunk
from actors.sampling.params import SamplingParams
from cluster.gateway.generation import generate
from cluster.gateway.text import TextCodec
from cluster.gateway.types import Chunk, Delta, GenerateSpec, ModelInfo
from cluster.gateway.verifier_wire import chunk_of as gateway_chunk
from tests.drafters.oracle import OracleDrafter
from tests.law.harness import make_engine, request
from tests.models import make_succ, make_tokenizer

CODEC = TextCodec(make_tokenizer(16))
LETTERS = "abcdefghijklmnop"


class EngineBackend:
    """The engine as a gateway's backend, through the wire's own messages."""

    def __init__(self, depth: int, eos: int | None = None) -> None:
        drafter = OracleDrafter(lambda prefix, _: (prefix[-1] + 1) % 16, vocab_size=16)
        self.engine = make_engine(make_succ(eos), drafter, depth, max_model_len=128)

    async def info(self) -> ModelInfo:
        return ModelInfo("succ", 16, 128, "float64", "")

    async def generate(self, spec: GenerateSpec) -> AsyncIterator[Chunk]:
        self.engine.add(request(spec.request_id, spec.prompt_ids, spec.sampling))
        try:
            for event in drain(self.engine):
                yield self._over_the_wire(event)
        finally:
            self.engine.abort(spec.request_id)

    @staticmethod
    def _over_the_wire(event: TokenEvent) -> Chunk:
        return gateway_chunk(
            type(engine_chunk(event)).FromString(engine_chunk(event).SerializeToString())
        )


async def answer(depth: int, spec: GenerateSpec, eos: int | None = None) -> list[Delta]:
    backend = EngineBackend(depth, eos)
    deltas = [delta async for delta in generate(backend, CODEC, spec)]
    assert backend.engine.allocator.free == backend.engine.allocator.num_blocks
    return deltas


def make_spec(**keywords) -> GenerateSpec:
    stop = keywords.pop("stop", ())
    params = SamplingParams(temperature=0.0, **{"max_tokens": 20, **keywords})
    return GenerateSpec("r", (0,), params, stop=stop)


@pytest.mark.parametrize("depth", range(9))
@pytest.mark.parametrize("place", range(1, 12))
async def test_a_stop_string_cuts_text_ids_and_logprobs_alike_at_any_depth(
    place: int, depth: int
) -> None:
    """Prompt "a", stop at one letter: the text before it, the ids up to and with it."""
    deltas = await answer(depth, make_spec(stop=(LETTERS[place],), logprobs=2))
    assert "".join(d.text for d in deltas) == LETTERS[1:place]
    assert [t for d in deltas for t in d.token_ids] == list(range(1, place + 1))
    assert sum(len(d.logprobs) for d in deltas) == place
    assert (deltas[-1].finish, deltas[-1].stop_reason) == ("stop", LETTERS[place])
    assert deltas[-1].completion_tokens == place


@pytest.mark.parametrize("depth", range(9))
async def test_a_stop_string_over_two_tokens_is_found_across_blocks(depth: int) -> None:
    deltas = await answer(depth, make_spec(stop=("fg",)))
    assert "".join(d.text for d in deltas) == "bcde"
    assert deltas[-1].completion_tokens == 6


@pytest.mark.parametrize("depth", range(9))
@pytest.mark.parametrize(
    ("keywords", "eos", "count"),
    [
        ({"max_tokens": 7}, None, 7),
        ({"stop_token_ids": frozenset([9])}, None, 9),
        ({}, 6, 6),
        ({"stop": ("h",)}, None, 7),
    ],
)
async def test_usage_and_statistics_count_what_was_delivered(
    keywords: dict, eos: int | None, count: int, depth: int
) -> None:
    deltas = await answer(depth, make_spec(**keywords), eos)
    ids = [t for d in deltas for t in d.token_ids]
    last = deltas[-1]
    assert last.prompt_tokens == 1
    assert last.completion_tokens == len(ids) == count
    assert last.stats is not None
    assert last.stats.accepted == sum(d.accepted for d in deltas) <= last.stats.drafted
    # The first token is the prefill's; each drafted round adds its accepted tokens and its own.
    assert sum(len(d.token_ids) - d.accepted for d in deltas) >= (count > 0)
