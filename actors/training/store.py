"""Answers on disk, with the hidden states that the target had while it wrote them.

    answers.json            what the store was made with; a store is never mixed
    shards.jsonl            one line a finished shard: file, sha256, bytes, what is in it
    shard-00000.safetensors tokens int32 [n], features bf16 [n - sequences, taps · hidden],
                            lengths and prompt_lengths int32 [sequences]

A shard is there whole or not at all, so a run that was ended in any way goes on from the last.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from actors.training.errors import TrainingError

HEADER, INDEX = "answers.json", "shards.jsonl"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """One request, whole. sampled: its text is not the greedy target's. features: rows
    0 … len(tokens)-2, bf16 (the last token has none)."""

    name: str
    category: str
    sampled: bool
    tokens: tuple[int, ...]
    prompt_len: int
    features: torch.Tensor

    @property
    def bytes(self) -> int:
        return self.features.numel() * 2 + 4 * len(self.tokens)


@dataclass(frozen=True, slots=True)
class StoreHeader:
    """target: digest of its config and shared weights; taps: indices into hidden_states."""

    target: str
    taps: tuple[int, ...]
    hidden: int
    max_tokens: int
    max_prompt: int
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class ShardRecord:
    file: str
    sha256: str
    bytes: int
    names: tuple[str, ...]
    answer_tokens: int


class AnswerStore:
    """A folder of shards, read and grown. limit_bytes: of all shards together."""

    def __init__(self, folder: str | Path, header: StoreHeader, limit_bytes: int = 0) -> None:
        """Raises TrainingError where the folder holds answers made otherwise."""
        self.folder = Path(folder)
        self.header = header
        self.limit_bytes = limit_bytes
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / HEADER
        if path.exists():
            found = read_header(self.folder)
            if found != header:
                raise TrainingError(
                    f"{self.folder} holds answers of {found}, not of {header}; choose another "
                    "folder or remove it",
                    "output",
                )
        else:
            path.write_text(json.dumps(asdict(header), indent=2) + "\n", "utf-8")
        self.shards: list[ShardRecord] = read_index(self.folder)
        lines = "".join(json.dumps(asdict(shard)) + "\n" for shard in self.shards)
        (self.folder / INDEX).write_text(lines, "utf-8")  # without a line that was cut off

    @property
    def bytes(self) -> int:
        return sum(shard.bytes for shard in self.shards)

    @property
    def done(self) -> set[str]:
        """Names of the prompts that are answered."""
        return {name for shard in self.shards for name in shard.names}

    @property
    def full(self) -> bool:
        return bool(self.limit_bytes) and self.bytes >= self.limit_bytes

    def append(self, answers: Sequence[Answer]) -> None:
        """Write one shard of them."""
        if not answers:
            return
        file = f"shard-{len(self.shards):05d}.safetensors"
        path, part = self.folder / file, self.folder / f"{file}.part"
        tensors = {
            "tokens": torch.tensor([t for a in answers for t in a.tokens], dtype=torch.int32),
            "features": torch.cat([a.features for a in answers]).contiguous(),
            "lengths": torch.tensor([len(a.tokens) for a in answers], dtype=torch.int32),
            "prompt_lengths": torch.tensor([a.prompt_len for a in answers], dtype=torch.int32),
        }
        facts = [[a.name, a.category, a.sampled] for a in answers]
        save_file(tensors, part, metadata={"answers": json.dumps(facts)})
        record = ShardRecord(
            file,
            _sha256(part),
            part.stat().st_size,
            tuple(a.name for a in answers),
            sum(len(a.tokens) - a.prompt_len for a in answers),
        )
        os.replace(part, path)
        with (self.folder / INDEX).open("a", encoding="utf-8") as index:
            index.write(json.dumps(asdict(record)) + "\n")
        self.shards.append(record)


def read_header(folder: Path) -> StoreHeader:
    try:
        fields: dict[str, Any] = json.loads((folder / HEADER).read_text("utf-8"))
        return StoreHeader(**{**fields, "taps": tuple(fields["taps"])})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainingError(f"{folder} is no store of answers: {error}", "output") from error


def read_index(folder: Path) -> list[ShardRecord]:
    """The finished shards; a last line that was cut off is none."""
    try:
        lines = (folder / INDEX).read_text("utf-8").splitlines()
    except FileNotFoundError:
        return []
    records: list[ShardRecord] = []
    for i, line in enumerate(lines):
        try:
            fields = json.loads(line)
            records.append(ShardRecord(**{**fields, "names": tuple(fields["names"])}))
        except (ValueError, KeyError, TypeError) as error:
            if i == len(lines) - 1:
                break
            raise TrainingError(f"{folder / INDEX}:{i + 1}: {error}", "output") from error
    return records


def read_answers(folder: Path, shard: ShardRecord, *, verify: bool = False) -> Iterator[Answer]:
    """A shard's answers; features are views of its memory. verify: check its digest first.
    Raises TrainingError when it is damaged or gone."""
    path = folder / shard.file
    try:
        if verify and _sha256(path) != shard.sha256:
            raise TrainingError(f"{path} is not what was written; remove {folder} and start anew")
        from safetensors import safe_open

        with safe_open(path, framework="pt") as opened:
            facts = json.loads((opened.metadata() or {})["answers"])
        tensors = load_file(path)
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise TrainingError(f"cannot read {path}: {error}", "output") from error
    tokens, row = tensors["tokens"].tolist(), 0
    start = 0
    for (name, category, sampled), length, prompt_len in zip(
        facts, tensors["lengths"].tolist(), tensors["prompt_lengths"].tolist(), strict=True
    ):
        yield Answer(
            name,
            category,
            bool(sampled),
            tuple(tokens[start : start + length]),
            prompt_len,
            tensors["features"][row : row + length - 1],
        )
        start, row = start + length, row + length - 1


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
