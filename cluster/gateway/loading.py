"""The served model's tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# Classes that are wholly described by tokenizer.json.
_GENERIC = frozenset({"TokenizersBackend", "PreTrainedTokenizerFast"})


def load_tokenizer(path: str, revision: str | None = None) -> Any:
    """A transformers tokenizer of a folder or Hugging Face id. A generic one in a folder is loaded
    without AutoTokenizer, which would bring torch along: seconds of start-up and 200 MB."""
    if _class_name(Path(path)) in _GENERIC:
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast.from_pretrained(path)
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path, revision=revision or "main")


def _class_name(folder: Path) -> str:
    if not (folder / "tokenizer.json").is_file():
        return ""
    try:
        config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return ""
    return str(config.get("tokenizer_class", ""))
