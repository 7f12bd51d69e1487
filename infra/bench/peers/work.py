"""The same token ids for every peer: prompts through the model's own template, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cluster.bench.dataset import Prompt

MAX_TOKENS = 64
LENGTHS = (1024, 4096)
REPEATS = 3  # a first token is measured on so many different prompts of a length
MAX_MODEL_LEN = 4352


def write_work(path: Path, folder: Path, prompts: list[Prompt], threads: int) -> dict[str, Any]:
    """Everything a runner needs but its own paths; also returned."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = [_chat_ids(tokenizer, prompt) for prompt in prompts]
    config = json.loads((folder / "config.json").read_text("utf-8"))
    eos = config["eos_token_id"]
    work = {
        "model": str(folder),
        "gguf": "",
        "eos_ids": eos if isinstance(eos, list) else [eos],
        "max_tokens": MAX_TOKENS,
        "max_model_len": min(MAX_MODEL_LEN, config["max_position_embeddings"]),
        "threads": threads,
        "prompts": ids,
        "long_prompts": {length: long_prompts(ids, length) for length in LENGTHS},
    }
    path.write_text(json.dumps(work) + "\n", "utf-8")
    return work


def long_prompts(prompts: list[list[int]], length: int) -> list[list[int]]:
    """Prompts of exactly `length` tokens of natural text. They start at different places, so no
    two share a prefix and no cache can help."""
    text = [token for prompt in prompts for token in prompt]
    step = max(1, len(text) // (REPEATS + 1))
    made = []
    for number in range(REPEATS):
        start = (number * step + length) % len(text)
        turned = text[start:] + text[:start]
        made.append((turned * (length // len(turned) + 1))[:length])
    return made


def _chat_ids(tokenizer: Any, prompt: Prompt) -> list[int]:
    messages = [{"role": role, "content": content} for role, content in prompt.messages]
    encoded = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)
    return list(map(int, encoded["input_ids"]))
