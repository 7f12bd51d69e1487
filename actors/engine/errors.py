"""Typed errors of the engine. Each concerns one request or one model, never the batch.

EngineError
├── InvalidRequest      the request; `param` names the field
├── DuplicateRequest    the request id is in use
├── Overloaded          the queue is full
├── RequestFailed       this request alone failed (non-finite logits, …)
└── ModelLoadError      the target cannot be served; says why
"""

from __future__ import annotations


class EngineError(Exception):
    """Base of all engine errors."""

    def __init__(self, message: str, param: str = "") -> None:
        super().__init__(message)
        self.param = param


class InvalidRequest(EngineError):
    pass


class DuplicateRequest(EngineError):
    pass


class Overloaded(EngineError):
    pass


class RequestFailed(EngineError):
    pass


class ModelLoadError(EngineError):
    pass
