"""Deltas of the gateway as inference.proto's answers, streamed and whole alike."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.gateway.text import TextCodec
from cluster.gateway.types import Delta, PositionScores, Score, Stats
from pilotfish.v1 import inference_pb2 as pb


def delta_message(delta: Delta, request_id: str, codec: TextCodec) -> pb.GenerateDelta:
    """finish_reason, usage and speculation on the last delta only."""
    message = pb.GenerateDelta(
        text=delta.text,
        token_ids=delta.token_ids,
        accepted=delta.accepted,
        logprobs=_scores(delta.logprobs, codec),
        request_id=request_id,
    )
    if delta.finish is not None:
        message.finish_reason = delta.finish
        message.usage.CopyFrom(_usage(delta))
        message.speculation.CopyFrom(_speculation(delta.stats))
    return message


def shows_nothing(delta: Delta) -> bool:
    """Text held back and no tokens: not worth a message."""
    return not (delta.text or delta.token_ids or delta.finish)


class WholeAnswer:
    """The unary answer: by construction the concatenation of the streamed one."""

    def __init__(self, request_id: str, model: str, codec: TextCodec) -> None:
        self._codec = codec
        self._texts: list[str] = []
        self._message = pb.GenerateResponse(request_id=request_id, model=model)

    def add(self, delta: Delta) -> None:
        message = self._message
        self._texts.append(delta.text)
        message.token_ids.extend(delta.token_ids)
        message.logprobs.extend(_scores(delta.logprobs, self._codec))
        if delta.finish is not None:
            message.text = "".join(self._texts)
            message.finish_reason = delta.finish
            message.usage.CopyFrom(_usage(delta))
            message.speculation.CopyFrom(_speculation(delta.stats))

    @property
    def message(self) -> pb.GenerateResponse:
        return self._message


def _usage(delta: Delta) -> pb.Usage:
    return pb.Usage(
        prompt_tokens=delta.prompt_tokens,
        completion_tokens=delta.completion_tokens,
        cached_tokens=0 if delta.stats is None else delta.stats.cached_tokens,
    )


def _speculation(stats: Stats | None) -> pb.SpeculationStats:
    if stats is None:
        return pb.SpeculationStats()
    return pb.SpeculationStats(
        rounds=stats.rounds,
        drafted=stats.drafted,
        accepted=stats.accepted,
        remote_accepted=stats.remote_accepted,
        reasons=sorted(stats.reasons),
    )


def _scores(positions: Sequence[PositionScores], codec: TextCodec) -> list[pb.TokenScore]:
    return [
        pb.TokenScore(
            token=position.chosen.token,
            text=codec.token_text(position.chosen.token),
            logprob=position.chosen.logprob,
            top=[_score(score, codec) for score in position.top],
        )
        for position in positions
    ]


def _score(score: Score, codec: TextCodec) -> pb.TokenScore:
    return pb.TokenScore(
        token=score.token, text=codec.token_text(score.token), logprob=score.logprob
    )
