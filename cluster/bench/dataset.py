"""Prompts from a file: Spec-Bench, SPEED-Bench as its tool prepares it, or plain JSON lines.

    {"question_id": 81, "category": "writing", "turns": ["Write …", "Now …"]}       Spec-Bench
    {"question_id": "…", "category": "coding", "messages": [{"role", "content"}]}   SPEED-Bench
    {"prompt": "…", "category": "mine", "id": "7"}                                  your own

Of several turns the first one is asked: what later turns look like depends on the answers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from cluster.bench.errors import DatasetError

BUILT_IN = "built-in"
# SPEED-Bench is published with its texts withheld; a file that was never prepared is no workload.
_WITHHELD = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"
_ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question. messages: (role, content), the last of them the user's."""

    id: str
    category: str
    messages: tuple[tuple[str, str], ...]

    @property
    def digest(self) -> str:
        """Equal for prompts that say the same, whatever they are called."""
        return hashlib.sha256(json.dumps(self.messages).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Dataset:
    """name: of the file; digest: of what is in it, so that two records can be told apart.
    duplicates: lines whose prompt stands in the file already; they are left out."""

    name: str
    digest: str
    prompts: tuple[Prompt, ...]
    duplicates: int = 0


def load(path: Path | None) -> Dataset:
    """The prompts of `path`; the project's own when None. Raises DatasetError."""
    if path is None:
        name, text = BUILT_IN, _built_in()
    else:
        name = path.name
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DatasetError(f"--dataset-path: cannot read {path}: {error}") from None
    read = [_prompt(name, n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    prompts: dict[str, Prompt] = {}
    for prompt in read:
        prompts.setdefault(prompt.digest, prompt)
    if not prompts:
        raise DatasetError(f"--dataset-path: {name}: no prompts")
    digest = hashlib.sha256("".join(sorted(prompts)).encode()).hexdigest()[:16]
    return Dataset(name, digest, tuple(prompts.values()), len(read) - len(prompts))


def _built_in() -> str:
    return resources.files("cluster.demo").joinpath("prompts.jsonl").read_text("utf-8")


def _prompt(name: str, number: int, line: str) -> Prompt:
    where = f"--dataset-path: {name}, line {number}"
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise DatasetError(f"{where}: not JSON: {line[:60]!r}") from None
    if not isinstance(record, dict):
        raise DatasetError(f"{where}: an object is wanted, not {line[:60]!r}")
    messages = _messages(record, where)
    if any(_WITHHELD in content for _, content in messages):
        raise DatasetError(
            f"{where}: the text is withheld in the published file; prepare SPEED-Bench with its "
            "own tool first (Model-Optimizer, specdec_bench/prepare_data.py)"
        )
    named = record.get("question_id", record.get("id", number))
    return Prompt(str(named), str(record.get("category", "uncategorised")), messages)


def _messages(record: Mapping[str, Any], where: str) -> tuple[tuple[str, str], ...]:
    if isinstance(record.get("prompt"), str):
        messages = [("user", record["prompt"])]
    elif isinstance(turns := record.get("turns"), list) and turns and isinstance(turns[0], str):
        messages = [("user", turns[0])]
    elif isinstance(record.get("messages"), list):
        messages = _first_question(record["messages"], where)
    else:
        raise DatasetError(
            f"{where}: neither prompt, turns nor messages; keys: {', '.join(map(str, record))[:80]}"
        )
    if not messages or not messages[-1][1].strip():
        raise DatasetError(f"{where}: the prompt is empty")
    return tuple(messages)


def _first_question(entries: list[Any], where: str) -> list[tuple[str, str]]:
    """Messages up to the first one of the user."""
    messages: list[tuple[str, str]] = []
    for entry in entries:
        role = entry.get("role") if isinstance(entry, dict) else None
        content = entry.get("content") if isinstance(entry, dict) else None
        if role not in _ROLES or not isinstance(content, str):
            raise DatasetError(f"{where}: a message has a role ({', '.join(_ROLES)}) and a text")
        messages.append((role, content))
        if role == "user":
            return messages
    raise DatasetError(f"{where}: no message of the user")
