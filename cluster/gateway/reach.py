"""How much text one token can stand for: what lets a hopeless prompt be refused untokenised.

Only a tokenizer that keeps every character gives a bound: byte-level BPE with all 256 bytes in its
vocabulary knows no unknown token, which elsewhere may stand for any length of text. What drops or
swallows text beside the model (strip, lowercase, tokens that eat the blanks around them) gives
none.
"""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers

_NFC = 4
"""Characters that canonical composition makes one of, at most: Unicode's own bound."""
_SPLITS = frozenset({"Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"})


def most_characters(tokenizer: Tokenizer) -> int | None:
    """The most characters of a text that one of its tokens can cover; None where nothing bounds
    it. A byte-level token of n bytes covers at most n characters."""
    if not isinstance(tokenizer.model, models.BPE):
        return None
    shrinking = _shrinking(_state(tokenizer.normalizer))
    if shrinking is None or not _keeps_all(_state(tokenizer.pre_tokenizer)):
        return None
    added = tokenizer.get_added_tokens_decoder().values()
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    if any(token.lstrip or token.rstrip for token in added) or not (
        vocabulary.keys() >= set(pre_tokenizers.ByteLevel.alphabet())
    ):
        return None
    return shrinking * max(map(len, vocabulary))


def _state(part: Any) -> dict[str, Any] | None:
    """A tokenizer component as tokenizer.json has it."""
    if part is None:
        return None
    state: dict[str, Any] = json.loads(part.__getstate__())
    return state


def _shrinking(normalizer: dict[str, Any] | None) -> int | None:
    """Characters of text to one of the normalised; None is unknown."""
    if normalizer is None:
        return 1
    return _NFC if normalizer["type"] == "NFC" else None


def _keeps_all(splitter: dict[str, Any] | None) -> bool:
    """Whether a pre-tokenizer is byte-level and drops nothing of the text."""
    if splitter is None:
        return False
    parts = splitter["pretokenizers"] if splitter["type"] == "Sequence" else [splitter]
    kept = all(
        part["type"] in ("ByteLevel", "Digits")
        or (part["type"] == "Split" and part["behavior"] in _SPLITS)
        for part in parts
    )
    return kept and any(part["type"] == "ByteLevel" for part in parts)
