"""llama.cpp through llama-cpp-python, on the GGUF with its 4-bit weights: one request at a time."""

from __future__ import annotations

import time
from collections.abc import Sequence

import llama_cpp
from llama_cpp import Llama
from measure import Answer, Engine, Work, main


class LlamaCpp:
    together = False

    def __init__(self, work: Work) -> None:
        self._eos = set(work.eos_ids)
        self._llama = Llama(
            model_path=work.gguf,
            n_ctx=work.max_model_len,
            n_threads=work.threads,
            n_threads_batch=work.threads,
            verbose=False,
        )

    def run(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[Answer]:
        return [self._one(prompt, max_tokens) for prompt in prompts]

    def _one(self, prompt: Sequence[int], max_tokens: int) -> Answer:
        answer = Answer()
        self._llama.reset()  # every prompt is new to every peer
        began = time.perf_counter()
        for token in self._llama.generate(list(prompt), temp=0.0, top_k=1):
            answer.add(time.perf_counter() - began, [token])
            if token in self._eos or len(answer.ids) >= max_tokens:
                break
        return answer


def build(work: Work, variant: str) -> tuple[Engine, dict[str, str]]:
    return LlamaCpp(work), {"llama-cpp-python": llama_cpp.__version__}


if __name__ == "__main__":
    main("llama-cpp", build)
