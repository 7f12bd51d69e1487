"""A request's bytes to a JSON object: size, encoding, numbers and nesting checked by name."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any, NoReturn, TypeAlias

from cluster.gateway.errors import InvalidRequest, RequestTooLarge

LARGE_BODY = 64 * 1024  # bytes; more is parsed on a thread, off the event loop
_SHOWN = 128  # characters of a client's own names in a message
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


async def read_json(chunks: AsyncIterator[bytes], limit: int) -> dict[str, Any]:
    """Raises `RequestTooLarge` as soon as more than `limit` bytes came, `InvalidRequest` for
    anything that is not a JSON object in UTF-8."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > limit:
            raise RequestTooLarge(f"The request body is larger than {limit} bytes.")
    if len(body) > LARGE_BODY:
        return await asyncio.to_thread(parse_json, bytes(body))
    return parse_json(bytes(body))


def parse_json(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"The request body is not valid UTF-8 (byte {error.start})."
        ) from error
    except json.JSONDecodeError as error:
        raise InvalidRequest(
            f"The request body is not valid JSON: {error.msg} at line {error.lineno}, "
            f"column {error.colno}."
        ) from error
    except RecursionError as error:
        raise InvalidRequest("The request body is nested too deeply.") from error
    except ValueError as error:  # an integer of thousands of digits
        raise InvalidRequest("The request body holds a number that is too long.") from error
    if not isinstance(document, dict):
        raise InvalidRequest("The request body must be a JSON object.")
    if _SURROGATE_ESCAPE.search(body):
        _refuse_lone_surrogates(document)
    return document


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidRequest(f"{name} is not a JSON number.")


_Steps: TypeAlias = "tuple[_Steps, str | int] | None"
"""A place in a document: the steps before, and the last one. None is the document itself."""


def _refuse_lone_surrogates(document: dict[str, Any]) -> None:
    """A lone \\ud800 … \\udfff is no character: no tokenizer can take it and no answer show it."""
    stack: list[tuple[_Steps, Any]] = [(None, document)]
    while stack:
        steps, value = stack.pop()
        if isinstance(value, str):
            if not _encodable(value):
                path = _path(steps)
                raise InvalidRequest(
                    f"{path} holds a lone surrogate, which is no character.", param=path
                )
        elif isinstance(value, list):
            stack.extend(((steps, i), item) for i, item in enumerate(value))
        elif isinstance(value, dict):
            for name, item in value.items():
                if not _encodable(name):
                    raise InvalidRequest("A field's name holds a lone surrogate.")
                stack.append(((steps, name), item))


def _path(steps: _Steps) -> str:
    """`messages[0].content`; names are the client's own, so what is shown of them is bounded."""
    parts: list[str] = []
    while steps is not None:
        steps, step = steps
        parts.append(f"[{step}]" if isinstance(step, int) else f".{step[:_SHOWN]}")
    path = "".join(reversed(parts)).removeprefix(".")
    return path if len(path) <= _SHOWN else f"{path[: _SHOWN - 3]}..."


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
