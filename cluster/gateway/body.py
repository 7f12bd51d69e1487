"""A request's bytes to a JSON object: size, encoding, numbers and nesting checked by name."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any, NoReturn

from cluster.gateway.errors import InvalidRequest, RequestTooLarge

LARGE_BODY = 64 * 1024  # bytes; more is parsed on a thread, off the event loop
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


def _refuse_lone_surrogates(document: dict[str, Any]) -> None:
    """A lone \\ud800 … \\udfff is no character: no tokenizer can take it and no answer show it."""
    stack: list[tuple[str, Any]] = [("", document)]
    while stack:
        path, value = stack.pop()
        if isinstance(value, str):
            if not _encodable(value):
                raise InvalidRequest(
                    f"{path} holds a lone surrogate, which is no character.", param=path
                )
        elif isinstance(value, list):
            stack.extend((f"{path}[{i}]", item) for i, item in enumerate(value))
        elif isinstance(value, dict):
            for name, item in value.items():
                if not _encodable(name):
                    raise InvalidRequest("A field's name holds a lone surrogate.")
                stack.append((f"{path}.{name}" if path else name, item))


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
