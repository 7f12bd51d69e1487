"""What both doors know of a request that cohort rules may look at (`policies.cohorts`).

What a client declares chooses among the cohorts that the rules name and never adds one: a value
that no rule lists is as good as none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cluster.cohort_rules import WORD
from cluster.gateway.errors import InvalidRequest

HEADER = "x-pilotfish-cohort"
METADATA = ("cohort", "task")
"""Keys of OpenAI's `metadata` that declare a task, the first one first."""

_TASK = re.compile(WORD)
_GRAMMARS = ("response_format", "structured_outputs")
_TOOLS = ("tools", "functions")


def resolve_task(given: str | None, param: str) -> str:
    """The declared task; raises `InvalidRequest` by the name under which the client gave it."""
    if not given:
        return ""
    if not _TASK.fullmatch(given):
        raise InvalidRequest(
            f"{param} must be 1 to 64 characters of A-Z a-z 0-9 . _ : / -", param=param
        )
    return given


def declared(metadata: Mapping[str, str] | None, header: str | None) -> str:
    """Over HTTP: the body's word before the header's, which a proxy may have put there for all."""
    for key in METADATA:
        if given := (metadata or {}).get(key):
            return resolve_task(given, f"metadata.{key}")
    return resolve_task(header, HEADER)


def shape_of(document: Mapping[str, Any]) -> tuple[bool, bool]:
    """(whether a grammar bounds the output, whether tools may be called), from a body as sent.

    While grammars and tools are refused (`fields`), every request that gets this far is plain.
    """
    text = {"type": "text"}
    structured = any(document.get(name) not in (None, {}, text) for name in _GRAMMARS)
    choice = document.get("tool_choice", document.get("function_call"))
    tools = choice != "none" and any(document.get(name) for name in _TOOLS)
    return structured, tools
