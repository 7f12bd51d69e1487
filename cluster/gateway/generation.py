"""Token chunks in, text deltas out: one request's output as the client sees it.

`Assembler` is pure state; `generate` drives it over a backend. Text, token ids, log-probabilities,
usage and statistics are trimmed alike when a stop string ends the output inside a block.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from cluster.gateway.errors import RequestFailed
from cluster.gateway.stops import StopMatcher
from cluster.gateway.text import TextCodec
from cluster.gateway.types import PREFILL, Backend, Chunk, Delta, Finish, GenerateSpec, Stats


class Assembler:
    """Turns one request's chunks into deltas.

    Order of endings (S04): a stop string that an earlier or the same token completes comes before
    the chunk's own finish. A stop token's text is shown only with include_stop_str_in_output. As
    for stop tokens, a stop string counts from token min_tokens + 1 on.
    """

    def __init__(self, codec: TextCodec, spec: GenerateSpec) -> None:
        self._spec = spec
        self._detokenizer = codec.detokenizer(spec.skip_special_tokens, spec.prompt_ids)
        self._stops = StopMatcher(spec.stop, spec.include_stop_str_in_output)
        self._count = 0
        self._stats = Stats()

    def push(self, chunk: Chunk) -> Delta:
        """The delta of one engine step; `finish` is set when the output ends here."""
        # Of a verifier that took over, what it had says nothing about the prompt's first reading.
        cached = 0 if self._count else chunk.cached_tokens
        self._stats.cached_tokens += cached
        text, texts = self._texts(chunk)
        kept = len(texts)
        stopped = self._stops.hit
        accepted = min(chunk.accepted, kept)
        self._record(chunk, accepted)
        finish: Finish | None = "stop" if stopped is not None else chunk.finish
        last = finish is not None
        return Delta(
            text="".join(text),
            token_ids=chunk.tokens[:kept],
            token_texts=tuple(texts),
            logprobs=chunk.logprobs[:kept],
            drafted=chunk.drafted,
            accepted=accepted,
            mechanism=chunk.mechanism,
            reason=chunk.reason,
            remote=chunk.remote,
            cached_tokens=cached,
            finish=finish,
            stop_reason=stopped if stopped is not None else chunk.stop_token,
            prompt_tokens=len(self._spec.prompt_ids) if last else 0,
            completion_tokens=self._count if last else 0,
            stats=self._stats if last else None,
        )

    def _texts(self, chunk: Chunk) -> tuple[list[str], list[str]]:
        """(released text in pieces, text each kept token adds)."""
        out: list[str] = []
        texts: list[str] = []
        final = len(chunk.tokens) - 1 if chunk.finish is not None else -1
        for i, token in enumerate(chunk.tokens):
            self._count += 1
            hidden = i == final and chunk.finish == "stop" and not self._stops.include
            piece = "" if hidden else self._detokenizer.push(token)
            if i == final:
                piece += self._detokenizer.flush()
            texts.append(piece)
            out.append(self._stops.feed(piece, self._count > self._spec.sampling.min_tokens))
            if self._stops.hit is not None:
                _cut(texts, self._stops.cut)
                return out, texts
        if chunk.finish is not None:
            if final < 0:
                out.append(self._stops.feed(self._detokenizer.flush(), armed=False))
            out.append(self._stops.finish())
        return out, texts

    def _record(self, chunk: Chunk, accepted: int) -> None:
        stats = self._stats
        stats.queue_s += chunk.queue_s
        stats.prefill_s += chunk.prefill_s
        if chunk.drafted:
            stats.rounds += 1
            stats.drafted += chunk.drafted
            stats.accepted += accepted
            stats.remote_accepted += accepted if chunk.remote else 0
            stats.per_step_drafted.append(chunk.drafted)
            stats.per_step_accepted.append(accepted)
            stats.mechanisms[chunk.mechanism] = stats.mechanisms.get(chunk.mechanism, 0) + 1
        elif chunk.reason and chunk.reason != PREFILL:
            stats.reasons[chunk.reason] = stats.reasons.get(chunk.reason, 0) + 1


async def generate(
    backend: Backend, codec: TextCodec, spec: GenerateSpec
) -> AsyncGenerator[Delta, None]:
    """Deltas until one has `finish`. Closing early, an error or a stop string closes the
    backend's iterator, which aborts the request; an output that ended by itself is not aborted.
    """
    assembler = Assembler(codec, spec)
    # The contract asks for an iterator that can be closed: an async generator.
    chunks = cast("AsyncGenerator[Chunk, None]", backend.generate(spec))
    async with aclosing(chunks):
        async for chunk in chunks:
            delta = assembler.push(chunk)
            if delta.finish is None:
                yield delta
                continue
            if chunk.finish is not None:
                await anext(chunks, None)  # let it end, so that closing it aborts nothing
            break
        else:
            raise RequestFailed("The verifier's stream ended before the output did.")
    yield delta


def _cut(texts: list[str], characters: int) -> None:
    """Drop the last `characters` characters of a list of texts, keeping its length."""
    for i in range(len(texts) - 1, -1, -1):
        dropped = min(characters, len(texts[i]))
        texts[i] = texts[i][: len(texts[i]) - dropped]
        characters -= dropped
