"""Pilotfish: speculative decoding for large language models on a Ray cluster.

This package is the client side: a small gRPC SDK, without torch or ray.

    from pilotfish import Client

    with Client("127.0.0.1:8001") as client:
        print(client.generate("The pilot fish swims", max_tokens=32).text)
        with client.stream(messages=[{"role": "user", "content": "Hello"}]) as stream:
            for delta in stream:
                print(delta.text, end="", flush=True)

`AsyncClient` is the same for asyncio. Every error is a `PilotfishError`. Importing the package
loads neither grpc nor protobuf; the first use of a name from `__all__` does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pilotfish._async_client import AsyncClient, AsyncStream
    from pilotfish._client import Client, Stream
    from pilotfish._errors import (
        AuthenticationError,
        DeadlineExceededError,
        DuplicateRequestError,
        InternalError,
        InvalidRequestError,
        NotFoundError,
        OverloadedError,
        PilotfishError,
        RequestCancelledError,
        UnavailableError,
    )
    from pilotfish._options import GenerateOptions, Message
    from pilotfish._status import (
        CohortFigures,
        CohortPlan,
        Decision,
        DrafterStatus,
        EngineTotals,
        LinkStatus,
        Status,
        VerifierStatus,
    )
    from pilotfish._types import Delta, Generation, Model, Speculation, TokenScore, Usage

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "AsyncStream",
    "AuthenticationError",
    "Client",
    "CohortFigures",
    "CohortPlan",
    "DeadlineExceededError",
    "Decision",
    "Delta",
    "DrafterStatus",
    "DuplicateRequestError",
    "EngineTotals",
    "GenerateOptions",
    "Generation",
    "InternalError",
    "InvalidRequestError",
    "LinkStatus",
    "Message",
    "Model",
    "NotFoundError",
    "OverloadedError",
    "PilotfishError",
    "RequestCancelledError",
    "Speculation",
    "Status",
    "Stream",
    "TokenScore",
    "UnavailableError",
    "Usage",
    "VerifierStatus",
    "__version__",
]

_HOME = {
    "_async_client": ("AsyncClient", "AsyncStream"),
    "_client": ("Client", "Stream"),
    "_errors": (
        "AuthenticationError",
        "DeadlineExceededError",
        "DuplicateRequestError",
        "InternalError",
        "InvalidRequestError",
        "NotFoundError",
        "OverloadedError",
        "PilotfishError",
        "RequestCancelledError",
        "UnavailableError",
    ),
    "_options": ("GenerateOptions", "Message"),
    "_status": (
        "CohortFigures",
        "CohortPlan",
        "Decision",
        "DrafterStatus",
        "EngineTotals",
        "LinkStatus",
        "Status",
        "VerifierStatus",
    ),
    "_types": ("Delta", "Generation", "Model", "Speculation", "TokenScore", "Usage"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
