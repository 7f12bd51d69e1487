"""Records and the wire's messages, both ways. Whatever a peer controls is checked here, before
anything is allocated for it.

Tensors travel as raw little-endian bytes: one copy in, one copy out. torch is imported only where
a tensor is at hand, so that gateways and drafters of tokens alone never load it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from actors.contracts import Commit, DrafterInfo, OpenSession, Proposal, SessionKey
from actors.exchange.compat import Compat
from actors.exchange.law_codec import law_to_pb
from actors.exchange.limits import MAX_COMMIT, MAX_DETAIL, MAX_REQUEST_ID, Limits
from actors.exchange.sink import Trace
from actors.exchange.timing_codec import timings_from_pb, timings_to_pb
from actors.exchange.wire_error import WireError
from actors.exchange.wire_error import check as _check
from actors.sampling.params import (
    MAX_REPETITION_PENALTY,
    MIN_REPETITION_PENALTY,
    SamplingParams,
)
from pilotfish.v1 import common_pb2, exchange_pb2

if TYPE_CHECKING:
    import torch

_DTYPES = {"bf16": "bfloat16", "f32": "float32", "f8e4m3x64": "uint8"}  # wire's name -> torch's
_BYTES = {"bf16": 2, "f32": 4, "f8e4m3x64": 1}
_FP8 = "f8e4m3x64"  # rows packed by `actors.exchange.fp8`
_NAMES = {f"torch.{theirs}": name for name, theirs in _DTYPES.items()}
_MAX_BIASES = 1024
_MAX_STOP_IDS = 1024
_MAX_LOGPROBS = 1024


# ---------------------------------------------------------------------------------- sampling


def sampling_to_pb(params: SamplingParams) -> common_pb2.Sampling:
    return common_pb2.Sampling(
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        repetition_penalty=params.repetition_penalty,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        logit_bias=[common_pb2.TokenBias(token=t, bias=b) for t, b in params.logit_bias],
        seed=params.seed,
        max_tokens=params.max_tokens,
        min_tokens=params.min_tokens,
        stop_token_ids=sorted(params.stop_token_ids),
        ignore_eos=params.ignore_eos,
        logprobs=params.logprobs,
    )


def sampling_from_pb(message: common_pb2.Sampling) -> SamplingParams:
    """Raises WireError with the field's name. No field has an implied default."""
    _check(0.0 <= message.temperature < math.inf, "temperature", "must be finite and at least 0")
    _check(0.0 < message.top_p <= 1.0, "top_p", "must be in (0, 1]")
    _check(0.0 <= message.min_p <= 1.0, "min_p", "must be in [0, 1]")
    _check(
        MIN_REPETITION_PENALTY <= message.repetition_penalty <= MAX_REPETITION_PENALTY,
        "repetition_penalty",
        f"must be in [{MIN_REPETITION_PENALTY:g}, {MAX_REPETITION_PENALTY:g}]",
    )
    for name in ("presence_penalty", "frequency_penalty"):
        _check(math.isfinite(getattr(message, name)), name, "must be finite")
    _check(len(message.logit_bias) <= _MAX_BIASES, "logit_bias", f"more than {_MAX_BIASES}")
    _check(all(math.isfinite(b.bias) for b in message.logit_bias), "logit_bias", "must be finite")
    _check(
        len(message.stop_token_ids) <= _MAX_STOP_IDS, "stop_token_ids", f"more than {_MAX_STOP_IDS}"
    )
    wants_logprobs = message.HasField("logprobs")
    _check(
        not wants_logprobs or message.logprobs <= _MAX_LOGPROBS,
        "logprobs",
        f"more than {_MAX_LOGPROBS}",
    )
    return SamplingParams(
        temperature=message.temperature,
        top_k=message.top_k,
        top_p=message.top_p,
        min_p=message.min_p,
        repetition_penalty=message.repetition_penalty,
        presence_penalty=message.presence_penalty,
        frequency_penalty=message.frequency_penalty,
        logit_bias=tuple((b.token, b.bias) for b in message.logit_bias),
        seed=message.seed,
        max_tokens=message.max_tokens,
        min_tokens=message.min_tokens,
        stop_token_ids=frozenset(message.stop_token_ids),
        ignore_eos=message.ignore_eos,
        logprobs=message.logprobs if wants_logprobs else None,
    )


# ---------------------------------------------------------------------------------- tensors


def tensor_to_pb(rows: torch.Tensor, message: common_pb2.Tensor | None = None) -> common_pb2.Tensor:
    """Any device and layout; dtypes without a name on the wire are sent as bf16, uint8 is what
    `fp8.pack` made."""
    if message is None:
        message = common_pb2.Tensor()
    rows = rows.detach()
    if str(rows.dtype) not in _NAMES:
        rows = rows.bfloat16()
    rows = rows.cpu().contiguous()
    message.dtype = _NAMES[str(rows.dtype)]
    message.shape.extend(rows.shape)
    import torch

    # numpy has no bf16, so the bytes are viewed, not converted.
    message.data = rows.view(torch.uint8).numpy().tobytes() if rows.numel() else b""
    return message


def tensor_from_pb(
    message: common_pb2.Tensor, *, max_rows: int, max_columns: int, rows: int | None = None
) -> torch.Tensor:
    """A [rows, columns] tensor of its own memory. Raises WireError."""
    if message.dtype not in _DTYPES:
        raise WireError("dtype", f"{message.dtype[:16]!r} is not one of {', '.join(_DTYPES)}")
    _check(len(message.shape) == 2, "shape", f"has {len(message.shape)} dimensions, not 2")
    height, width = message.shape
    _check(rows is None or height == rows, "shape", f"{height} rows where {rows} belong")
    _check(height <= max_rows, "shape", f"{height} rows, at most {max_rows} are taken")
    _check(0 < width <= max_columns, "shape", f"{width} columns, at most {max_columns} are taken")
    expected = height * width * _BYTES[message.dtype]
    _check(len(message.data) == expected, "data", f"{len(message.data)} bytes, not {expected}")
    import torch

    dtype: torch.dtype = getattr(torch, _DTYPES[message.dtype])
    if expected:
        tensor = torch.frombuffer(bytearray(message.data), dtype=dtype).view(height, width)
    else:
        tensor = torch.empty((height, width), dtype=dtype)
    return _unpacked(tensor) if message.dtype == _FP8 else tensor


def _unpacked(rows: torch.Tensor) -> torch.Tensor:
    """bf16 rows of what came in fp8."""
    from actors.exchange import fp8

    try:
        return fp8.unpack(rows)
    except ValueError as error:
        raise WireError("shape", str(error)) from error


# ---------------------------------------------------------------------------------- sessions


def key_to_pb(key: SessionKey) -> exchange_pb2.SessionKey:
    return exchange_pb2.SessionKey(request=key.request, epoch=key.epoch)


def key_from_pb(message: exchange_pb2.SessionKey, verifier: str) -> SessionKey:
    request = message.request
    if not 0 < len(request) <= MAX_REQUEST_ID:
        raise WireError("key", f"a request id has 1 to {MAX_REQUEST_ID} characters")
    return SessionKey(verifier, request, message.epoch)


def open_to_pb(
    session: OpenSession, *, features_follow: bool, trace: Trace = ("", "")
) -> exchange_pb2.Open:
    """Without the features: they go over the bulk lane."""
    parent, state = trace
    return exchange_pb2.Open(
        key=key_to_pb(session.key),
        tokens=session.tokens,
        sampling=sampling_to_pb(session.sampling),
        tenant=session.tenant,
        features_follow=features_follow,
        prompt_len=session.prompt_len,
        trace=common_pb2.TraceContext(traceparent=parent, tracestate=state) if parent else None,
    )


def open_from_pb(message: exchange_pb2.Open, key: SessionKey, limits: Limits) -> OpenSession:
    """Without features. Raises WireError."""
    _check(len(message.tokens) > 0, "tokens", "an Open holds the whole committed prefix, not none")
    tokens = _tokens(message.tokens, limits.max_tokens, limits.vocab_size)
    _check(message.prompt_len <= len(tokens), "prompt_len", f"more than the {len(tokens)} tokens")
    sampling = sampling_from_pb(message.sampling)
    tenant = message.tenant[:MAX_REQUEST_ID]
    return OpenSession(key, tokens, sampling, tenant, prompt_len=message.prompt_len)


def commit_to_pb(commit: Commit, message: exchange_pb2.Commit | None = None) -> exchange_pb2.Commit:
    """Into `message` where it already is, which saves copies of the features."""
    if message is None:
        message = exchange_pb2.Commit()
    message.key.request = commit.key.request
    message.key.epoch = commit.key.epoch
    message.round = commit.round
    message.from_len = commit.from_len
    message.tokens.extend(commit.tokens)
    message.depth = commit.depth
    if commit.features is not None:
        tensor_to_pb(commit.features, message.features)
    return message


def commit_from_pb(message: exchange_pb2.Commit, key: SessionKey, limits: Limits) -> Commit:
    """Raises WireError."""
    count = len(message.tokens)
    if not 0 < count <= MAX_COMMIT:
        raise WireError("tokens", f"a Commit brings 1 to {MAX_COMMIT} of them, not {count}")
    if message.from_len + count > limits.max_tokens:
        raise WireError("from_len", f"over {limits.max_tokens} tokens")
    features = None
    if message.HasField("features"):
        features = tensor_from_pb(
            message.features,
            max_rows=MAX_COMMIT,
            max_columns=limits.max_columns,
            rows=count,
        )
    tokens = _tokens(message.tokens, MAX_COMMIT, limits.vocab_size)
    return Commit(key, message.round, message.from_len, tokens, features, message.depth)


def block_to_pb(proposal: Proposal, round: int, draft_us: int, queue_us: int) -> exchange_pb2.Block:
    return exchange_pb2.Block(
        key=key_to_pb(proposal.key),
        round=round,
        base_len=proposal.base_len,
        tokens=proposal.tokens,
        confidence=proposal.confidence,
        draft_us=min(draft_us, 0xFFFFFFFF),
        queue_us=min(queue_us, 0xFFFFFFFF),
        law=law_to_pb(proposal.law) if proposal.law else None,
        cold=proposal.cold,
    )


def fault_to_pb(key: SessionKey, code: exchange_pb2.FaultCode, detail: str) -> exchange_pb2.Fault:
    return exchange_pb2.Fault(key=key_to_pb(key), code=code, detail=detail[:MAX_DETAIL])


def info_to_pb(info: DrafterInfo, max_sessions: int) -> exchange_pb2.DrafterInfo:
    return exchange_pb2.DrafterInfo(
        mechanism=info.mechanism,
        revision=info.revision,
        vocab_size=info.vocab_size,
        needs_features=info.needs_features,
        taps=info.taps,
        max_block=info.max_block,
        gives_law=info.gives_law,
        max_context=info.max_context,
        max_sessions=max_sessions,
        weight_bytes=info.weight_bytes,
        token_bytes=info.token_bytes,
        timings=timings_to_pb(info.timings),
    )


def info_from_pb(message: exchange_pb2.DrafterInfo) -> DrafterInfo:
    return DrafterInfo(
        mechanism=message.mechanism,
        revision=message.revision,
        vocab_size=message.vocab_size,
        needs_features=message.needs_features,
        taps=tuple(message.taps),
        max_block=message.max_block,
        gives_law=message.gives_law,
        max_context=message.max_context,
        weight_bytes=message.weight_bytes,
        token_bytes=message.token_bytes,
        timings=timings_from_pb(message.timings),
    )


def compat_to_pb(compat: Compat) -> exchange_pb2.Compat:
    return exchange_pb2.Compat(
        target=compat.target,
        tokenizer=compat.tokenizer,
        drafter=compat.drafter,
        taps=compat.taps,
        projection=compat.projection,
        rule=compat.rule,
    )


def compat_from_pb(message: exchange_pb2.Compat) -> Compat:
    return Compat(
        target=message.target,
        tokenizer=message.tokenizer,
        drafter=message.drafter,
        taps=tuple(message.taps),
        projection=message.projection,
        rule=message.rule,
    )


def _tokens(tokens: Sequence[int], most: int, vocab_size: int) -> tuple[int, ...]:
    if len(tokens) > most:
        raise WireError("tokens", f"{len(tokens)} of them, at most {most} are taken")
    ids = tuple(tokens)
    if vocab_size and max(ids) >= vocab_size:
        raise WireError("tokens", f"id {max(ids)} of a vocabulary of {vocab_size}")
    return ids
