"""What can keep a benchmark from being made, in words for a terminal."""

from __future__ import annotations


class BenchError(Exception):
    """The run cannot be made as asked; the message names the flag or the file."""


class DatasetError(BenchError):
    """The file is not what `--dataset-path` takes; says which line and why."""
