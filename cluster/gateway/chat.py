"""/v1/chat/completions: how a chat answer's choices look."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from cluster.gateway.answers import MIN_LOGPROB, Answer, Collected, Json
from cluster.gateway.text import TextCodec
from cluster.gateway.types import Delta, PositionScores, Score


class ChatAnswer(Answer):
    prefix = "chatcmpl"
    object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    @override
    def opening(self) -> list[Json]:
        return [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]

    @override
    def part(self, delta: Delta) -> Json | None:
        options = self.options
        wanted = options.token_ids or options.top_logprobs is not None
        if not (delta.text or delta.finish or (wanted and delta.token_ids)):
            return None
        choice: Json = {
            "delta": {"content": delta.text} if delta.text or wanted else {},
            "logprobs": self._logprobs(delta.logprobs),
            **self.ending(delta),
        }
        if options.token_ids:
            choice["token_ids"] = list(delta.token_ids)
        return choice

    @override
    def choice(self, collected: Collected) -> Json:
        choice: Json = {
            "message": {"role": "assistant", "content": collected.text, "refusal": None},
            "logprobs": self._logprobs(collected.logprobs),
            **self.ending(collected.last),
        }
        if self.options.token_ids:
            choice["token_ids"] = collected.token_ids
        return choice

    def _logprobs(self, scores: Sequence[PositionScores]) -> Json | None:
        top = self.options.top_logprobs
        if top is None:
            return None
        return {
            "content": [
                {
                    **_score(self.codec, position.chosen),
                    "top_logprobs": [_score(self.codec, s) for s in position.top[:top]],
                }
                for position in scores
            ]
        }


def _score(codec: TextCodec, score: Score) -> Json:
    return {
        "token": codec.token_text(score.token),
        "logprob": max(score.logprob, MIN_LOGPROB),
        "bytes": list(codec.token_bytes(score.token)),
    }
