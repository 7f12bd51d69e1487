"""An optional API key, as OpenAI clients send it: `Authorization: Bearer KEY`."""

from __future__ import annotations

import hmac
import os
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Header

from cluster.gateway.errors import Unauthenticated


def authorise(authorization: str | None, key: str) -> None:
    """Raises `Unauthenticated` unless the header, bytes read as latin-1, carries `key`; the time
    it takes tells nothing about where they differ."""
    scheme, _, given = (authorization or "").partition(" ")
    same = hmac.compare_digest(given.strip(" ").encode("latin-1", "replace"), key.encode())
    if scheme.lower() != "bearer" or not same:
        raise Unauthenticated("A valid API key is required: Authorization: Bearer KEY.")


def key_dependency(variable: str) -> Callable[[str | None], Awaitable[None]]:
    """A FastAPI dependency for the key in the environment variable; lets all pass when unset."""
    key = os.environ.get(variable, "")

    async def check(authorization: Annotated[str | None, Header()] = None) -> None:
        if key:
            authorise(authorization, key)

    return check
