"""vLLM's engine in this process's hands, plain or with n-gram drafts: no HTTP between it and the
clock, which is to its favour."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any

import torch
import vllm
from measure import Answer, Engine, Work, main
from vllm import LLM, SamplingParams

NGRAM = {
    "method": "ngram",
    "num_speculative_tokens": 5,
    "prompt_lookup_max": 5,
    "prompt_lookup_min": 2,
}


class Vllm:
    together = True

    def __init__(self, work: Work, ngram: bool) -> None:
        llm: Any = LLM(
            model=work.model,
            dtype="bfloat16",
            max_model_len=work.max_model_len,
            enable_prefix_caching=False,  # every prompt is new to every peer
            speculative_config=NGRAM if ngram else None,
            disable_log_stats=True,
        )
        self._engine = llm.llm_engine
        self._numbers = itertools.count()

    def run(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[Answer]:
        answers: dict[str, Answer] = {}
        began = time.perf_counter()
        for prompt in prompts:
            name = str(next(self._numbers))
            answers[name] = Answer()
            params = SamplingParams(temperature=0.0, max_tokens=max_tokens, detokenize=False)
            self._engine.add_request(name, {"prompt_token_ids": list(prompt)}, params)
        while self._engine.has_unfinished_requests():
            for output in self._engine.step():
                answer = answers[output.request_id]
                ids = list(output.outputs[0].token_ids)
                answer.add(time.perf_counter() - began, ids[len(answer.ids) :])
        return list(answers.values())


def build(work: Work, variant: str) -> tuple[Engine, dict[str, str]]:
    return Vllm(work, ngram=variant == "ngram"), {
        "vllm": vllm.__version__,
        "torch": torch.__version__,
    }


if __name__ == "__main__":  # its engine process imports this file again
    main("vllm", build)
