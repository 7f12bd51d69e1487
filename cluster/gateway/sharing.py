"""What a client may say about sharing the verifier: its place in line, and with whom its prefixes
may be shared."""

from __future__ import annotations

import re

from cluster.gateway.errors import InvalidRequest

MAX_PRIORITY = 2**31 - 1
MAX_SALT_CHARS = 256
TENANT_HEADER = "x-pilotfish-tenant"
"""Set by whoever authenticates clients in front of this server, and stripped from what clients
send. Tenants share places and rows alike and never see each other's prefixes."""

_TENANT = re.compile(r"[A-Za-z0-9._:/-]{1,64}")


def resolve_priority(given: int | None) -> int:
    """vLLM's: lower is earlier, 0 the default."""
    priority = given or 0
    if not -MAX_PRIORITY - 1 <= priority <= MAX_PRIORITY:
        raise InvalidRequest(
            f"priority must be between {-MAX_PRIORITY - 1} and {MAX_PRIORITY}.", param="priority"
        )
    return priority


def resolve_cache_salt(given: str | None) -> str:
    """vLLM's: 1 to 256 characters; None is the salt of all who give none."""
    if given is None:
        return ""
    if not 1 <= len(given) <= MAX_SALT_CHARS:
        raise InvalidRequest(
            f"cache_salt must have 1 to {MAX_SALT_CHARS} characters, not {len(given)}.",
            param="cache_salt",
        )
    if not given.isprintable():  # lone surrogates and control characters
        raise InvalidRequest("cache_salt must be printable.", param="cache_salt")
    return given


def resolve_tenant(given: str | None) -> str:
    if not given:
        return ""
    if not _TENANT.fullmatch(given):
        raise InvalidRequest(
            f"{TENANT_HEADER} must be 1 to 64 characters of A-Z a-z 0-9 . _ : / -",
            param=TENANT_HEADER,
        )
    return given
