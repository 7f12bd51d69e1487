"""A draft model of another vocabulary: what both have in common is drafted (TLI, Timor et al.,
arXiv 2502.05202).

Tokens of the same text are one token; all others have probability 0, so drafts are ids of the
target like any others, and its rules stay what they are. Text is translated token by token: one
that both have is one id, any other is spelled by the draft model's tokenizer on its own. So the
translation of a text's beginning never changes as it grows; where the draft model would cut the
text otherwise, acceptance suffers and nothing else.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch

from actors.drafters.config import DrafterConfig
from actors.drafters.errors import DrafterLoadError, refusal

logger = logging.getLogger(__name__)

Spell = Callable[[str], Sequence[int]]
"""Text -> ids of the draft model."""

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_BROKEN = "\ufffd"


class Intersection:
    """common: draft id by target id, both distinct. texts: of the target's other tokens, by id.
    size: of the target's vocabulary. unknown: what stands for a text that cannot be spelled."""

    def __init__(
        self,
        common: Mapping[int, int],
        texts: Mapping[int, str],
        spell: Spell,
        size: int,
        unknown: int = 0,
    ) -> None:
        self.size = size
        self._common = dict(common)
        self._texts = texts
        self._spell = spell
        self._unknown = unknown
        self._spelled: dict[int, tuple[int, ...]] = {}
        self._target = torch.tensor(list(self._common.keys()))
        self._draft = torch.tensor(list(self._common.values()))

    def __len__(self) -> int:
        return len(self._common)

    def own(self, token: int) -> int:
        """The draft model's id of a draft."""
        return self._common[token]

    def read(self, tokens: Sequence[int]) -> list[int]:
        """Tokens of the target as the draft model reads them; at least one id for each."""
        return [own for token in tokens for own in self._ids(token)]

    def ends(self, eos: frozenset[int]) -> frozenset[int]:
        """The draft model's ends that the target has too, as the target's ids."""
        return frozenset(target for target, own in self._common.items() if own in eos)

    def rows(self, logits: torch.Tensor) -> torch.Tensor:
        """[n, draft vocabulary] -> [n, size], -inf where only the target has a token."""
        device = logits.device
        if self._target.device != device:
            self._target, self._draft = self._target.to(device), self._draft.to(device)
        out = logits.new_full((logits.shape[0], self.size), float("-inf"))
        return out.index_copy_(1, self._target, logits.index_select(1, self._draft))

    def _ids(self, token: int) -> tuple[int, ...]:
        if (own := self._common.get(token)) is not None:
            return (own,)
        if token not in self._spelled:
            text = self._texts.get(token, "")
            self._spelled[token] = tuple(self._spell(text) if text else ()) or (self._unknown,)
        return self._spelled[token]


def intersect(config: DrafterConfig, draft_size: int) -> Intersection:
    """Of the tokenizers of target and draft model. draft_size: ids that the model knows. Raises
    DrafterLoadError: one cannot be read, or they have nothing in common."""
    if not config.target_tokenizer:
        raise DrafterLoadError(
            "use_heterogeneous_vocab compares two tokenizers, and the target's is not known",
            "use_heterogeneous_vocab",
        )
    theirs = _tokenizer(config.target_tokenizer, None)
    ours = _tokenizer(config.model or "", config.revision)
    size = config.target_vocab_size or 1 + max(theirs.get_vocab().values(), default=0)
    own: dict[str, int] = {}
    for index, text in sorted(token_texts(ours.get_vocab()).items()):
        if index < draft_size:
            own.setdefault(text, index)
    texts = {i: t for i, t in token_texts(theirs.get_vocab()).items() if i < size}
    common: dict[int, int] = {}
    for index, text in sorted(texts.items()):
        if text and (match := own.pop(text, None)) is not None:
            common[index] = match
    if not common:
        raise refusal(f"the vocabularies of the target and of {config.model} share no token")
    logger.info("%d of the target's %d tokens can be drafted", len(common), size)

    def spell(text: str) -> list[int]:
        return [i for i in ours.encode(text, add_special_tokens=False) if i < draft_size]

    return Intersection(common, texts, spell, size, ours.unk_token_id or 0)


def token_texts(vocabulary: Mapping[str, int]) -> dict[int, str]:
    """The text that each token stands for, "" for parts of a character. Byte-level vocabularies
    write bytes as letters, others a space as ▁ and a byte as <0x..>."""
    byte_level = all(letter in vocabulary for letter in _letters())
    text_of = _byte_text if byte_level else _plain_text
    return {index: text_of(token) for token, index in vocabulary.items()}


def _byte_text(token: str) -> str:
    letters = _letters()
    if any(letter not in letters for letter in token):
        return token  # one that was added as it is
    text = bytes(letters[letter] for letter in token).decode("utf-8", "replace")
    return "" if _BROKEN in text else text


def _plain_text(token: str) -> str:
    if match := _BYTE.fullmatch(token):
        code = int(match[1], 16)
        return chr(code) if code < 0x80 else ""
    return token.replace("\u2581", " ")


@cache
def _letters() -> dict[str, int]:
    """The byte that each letter of a byte-level vocabulary stands for."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return {letter: byte for byte, letter in bytes_to_unicode().items()}


def _tokenizer(path: str, revision: str | None) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(path, revision=revision)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise refusal(f"cannot read the tokenizer of {path!r}: {error}") from error
