"""/v1/completions: how a completion's choices look."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from cluster.gateway.answers import MIN_LOGPROB, Answer, Collected, Json
from cluster.gateway.types import Delta, PositionScores


class CompletionAnswer(Answer):
    prefix = "cmpl"
    object = "text_completion"
    chunk_object = "text_completion"
    _offset = 0  # characters of the tokens answered so far

    @override
    def opening(self) -> list[Json]:
        return []

    @override
    def part(self, delta: Delta) -> Json | None:
        wanted = self.options.token_ids or self.options.top_logprobs is not None
        if not (delta.text or delta.finish or (wanted and delta.token_ids)):
            return None
        return self._choice(delta.text, delta.token_ids, delta.token_texts, delta.logprobs, delta)

    @override
    def choice(self, collected: Collected) -> Json:
        c = collected
        return self._choice(c.text, c.token_ids, c.token_texts, c.logprobs, c.last)

    def _choice(
        self,
        text: str,
        token_ids: Sequence[int],
        token_texts: Sequence[str],
        logprobs: Sequence[PositionScores],
        last: Delta,
    ) -> Json:
        choice: Json = {
            "text": text,
            "logprobs": self._logprobs(token_texts, logprobs),
            **self.ending(last),
        }
        if self.options.token_ids:
            choice["token_ids"] = list(token_ids)
        return choice

    def _logprobs(
        self, token_texts: Sequence[str], scores: Sequence[PositionScores]
    ) -> Json | None:
        """OpenAI's older, columnar form; text_offset counts characters of the output."""
        top = self.options.top_logprobs
        if top is None:
            return None
        columns: Json = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for text, position in zip(token_texts, scores, strict=False):
            best = {
                self.codec.token_text(s.token): max(s.logprob, MIN_LOGPROB)
                for s in (position.chosen, *position.top[:top])
            }
            chosen = self.codec.token_text(position.chosen.token)
            columns["tokens"].append(chosen)
            columns["token_logprobs"].append(max(position.chosen.logprob, MIN_LOGPROB))
            columns["top_logprobs"].append(best)
            columns["text_offset"].append(self._offset)
            self._offset += len(text)
        return columns
