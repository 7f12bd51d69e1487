"""Who must agree before drafts can be useful: protocol, digests, taps and rule.

Digests cover what a draft depends on and nothing else, so rolling updates of hosts, runtimes and
precisions keep working; the full fingerprint is the gates' business.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.sampling.rules import DEFAULT, Rule

PROTOCOL = 1

_VOLATILE = frozenset(
    {
        "attn_implementation",
        "distributed_config",
        "dtype",
        "name_or_path",
        "output_attentions",
        "output_hidden_states",
        "quantization_config",
        "return_dict",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    }
)


def rule_name(rule: Rule) -> str:
    """How the acceptance rule is named on the wire."""
    return f"greedy+{rule}"


RULE = rule_name(DEFAULT)


@dataclass(frozen=True, slots=True)
class Compat:
    """One side's view. An empty digest, and a drafter without taps, agree with anything."""

    target: str = ""
    tokenizer: str = ""
    drafter: str = ""
    taps: tuple[int, ...] = ()
    rule: str = RULE
    projection: str = ""


def difference(
    protocol: int, theirs: Compat, ours: Compat, *, needs_features: bool
) -> tuple[str, str] | None:
    """The first field in which a verifier (`theirs`) and a drafter (`ours`) differ, with both
    values; None when they can work together. Taps matter to drafters that need features."""
    if protocol != PROTOCOL:
        return "protocol", f"this drafter speaks {PROTOCOL}, the verifier {protocol}"
    for name in ("target", "tokenizer", "drafter"):
        a, b = getattr(ours, name), getattr(theirs, name)
        if a and b and a != b:
            return name, f"this drafter has {a!r}, the verifier {b!r}"
    if needs_features and ours.taps != theirs.taps:
        return "taps", f"this drafter needs {list(ours.taps)}, the verifier has {list(theirs.taps)}"
    if needs_features and ours.projection != theirs.projection:
        have, come = (side.projection or "raw features" for side in (ours, theirs))
        return "projection", f"this drafter takes {have}, the verifier sends {come}"
    if ours.rule != theirs.rule:
        return "rule", f"this drafter follows {ours.rule!r}, the verifier {theirs.rule!r}"
    return None


def target_digest(config: Mapping[str, Any]) -> str:
    """Digest of a model's config (shapes, vocabulary, positions); names, versions, precision and
    run-time switches do not count."""
    return _digest(json.dumps(_steady(config), sort_keys=True, default=str).encode())


def tokenizer_digest(source: str | Path | Mapping[str, int]) -> str:
    """Digest of the (token, id) pairs: of a vocabulary, of a `tokenizer.json`, or of a folder
    with one. The same for a tokenizer's `get_vocab()` and for its file. Raises FileNotFoundError
    or ValueError."""
    vocabulary = source if isinstance(source, Mapping) else read_vocabulary(Path(source))
    pairs = sorted((index, token) for token, index in vocabulary.items())
    return _digest(json.dumps(pairs, ensure_ascii=True, separators=(",", ":")).encode())


def _steady(value: Any) -> Any:
    if isinstance(value, Mapping):
        kept = ((str(k), v) for k, v in value.items())
        return {k: _steady(v) for k, v in kept if k not in _VOLATILE and not k.startswith("_")}
    if isinstance(value, (list, tuple)):
        return [_steady(item) for item in value]
    return value


def read_vocabulary(path: Path) -> dict[str, int]:
    """Id by token, of a `tokenizer.json` or a folder with one. Raises FileNotFoundError or
    ValueError."""
    file = path / "tokenizer.json" if path.is_dir() else path
    data = json.loads(file.read_text(encoding="utf-8"))
    try:
        vocab: Mapping[str, int] | Iterable[tuple[str, float]] = data["model"]["vocab"]
        added = {str(item["content"]): int(item["id"]) for item in data.get("added_tokens") or []}
    except (KeyError, TypeError) as error:
        raise ValueError(f"{file.name} has no vocabulary") from error
    if isinstance(vocab, Mapping):
        return {**vocab, **added}
    # Unigram models list (token, score); the id is the place in the list.
    return {**{str(item[0]): index for index, item in enumerate(vocab)}, **added}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
