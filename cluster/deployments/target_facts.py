"""What a drafter must know of the target, read from the target's folder without its weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from actors.exchange.compat import target_digest, tokenizer_digest
from cluster.config import AppArgs


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """folder: or a Hugging Face id. vocab_size, max_context: 0 is unknown. Empty digests agree with
    anything."""

    folder: str
    vocab_size: int
    max_context: int
    tokenizer: str
    target_digest: str
    tokenizer_digest: str


def target_facts(args: AppArgs) -> TargetFacts:
    """Resolves the model on this node. Raises ModelStoreError, OSError or ValueError."""
    from transformers import AutoConfig

    from cluster.models.resolve import resolve

    path = str(resolve(args.model, args.revision))
    tokenizer = str(resolve(args.tokenizer)) if args.tokenizer else path
    gguf = sorted(Path(path).glob("*.gguf")) if not (Path(path) / "config.json").exists() else []
    keywords = {"gguf_file": gguf[0].name} if gguf else {}
    config = AutoConfig.from_pretrained(path, revision=args.revision, **keywords)
    text = config.get_text_config()
    context = int(getattr(text, "max_position_embeddings", 0) or 0)
    return TargetFacts(
        folder=path,
        vocab_size=int(text.vocab_size),
        max_context=min(filter(None, (context, args.max_model_len)), default=0),
        tokenizer=tokenizer,
        target_digest=target_digest(config.to_dict()),
        tokenizer_digest=_digest_of(Path(tokenizer)),
    )


def _digest_of(tokenizer: Path) -> str:
    """A tokenizer that is not a folder here cannot be compared before it is loaded."""
    try:
        return tokenizer_digest(tokenizer) if tokenizer.exists() else ""
    except (FileNotFoundError, ValueError):
        return ""
