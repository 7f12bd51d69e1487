"""transformers' own generate, plain or with prompt lookup: one request at a time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
import transformers
from measure import Answer, Engine, Work, main
from transformers import AutoModelForCausalLM

LOOKUP_TOKENS = 5


class Streamer:
    """Notes when `generate` hands out tokens; the first hand is the prompt."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._prompt = True
        self._began = time.perf_counter()

    def put(self, value: torch.Tensor) -> None:
        if self._prompt:
            self._prompt = False
            return
        self._answer.add(time.perf_counter() - self._began, value.flatten().tolist())

    def end(self) -> None:
        """Nothing is held back."""


class Transformers:
    together = False

    def __init__(self, work: Work, lookup: bool) -> None:
        torch.set_num_threads(work.threads)
        model: Any = AutoModelForCausalLM.from_pretrained(work.model, dtype=torch.bfloat16)
        self._model = model.eval()
        self._eos = list(work.eos_ids)
        self._options = {"prompt_lookup_num_tokens": LOOKUP_TOKENS} if lookup else {}

    def run(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[Answer]:
        return [self._one(prompt, max_tokens) for prompt in prompts]

    @torch.inference_mode()
    def _one(self, prompt: Sequence[int], max_tokens: int) -> Answer:
        answer = Answer()
        ids = torch.tensor([list(prompt)])
        self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=max_tokens,
            eos_token_id=self._eos,
            pad_token_id=self._eos[0],
            streamer=Streamer(answer),
            **self._options,
        )
        return answer


def build(work: Work, variant: str) -> tuple[Engine, dict[str, str]]:
    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    return Transformers(work, lookup=variant == "lookup"), versions


if __name__ == "__main__":
    main("transformers", build)
