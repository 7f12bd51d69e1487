"""What decides the law of each token of one request (DESIGN §5)."""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_SEED = 2**64 - 1
MIN_REPETITION_PENALTY = 0.01  # logits are divided by it, in fp32: far below it they overflow
MAX_REPETITION_PENALTY = 100.0


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Fully resolved sampling parameters; the wire's `Sampling`.

    With the token ids before a position, these fields and the target's logits fix the token at
    that position (rules `greedy` and `coupled`), so any verifier can take the request over.

    temperature: 0 is greedy. top_k: 0 is off. top_p: 1 is off. min_p: 0 is off.
    seed: 0 … 2^64-1, drawn by the gateway when the client gave none.
    max_tokens, min_tokens: output tokens in all, those of earlier verifiers included.
    logprobs: None, or n for the chosen token and the n most likely.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int = 0
    max_tokens: int = 16
    min_tokens: int = 0
    stop_token_ids: frozenset[int] = field(default_factory=frozenset)
    ignore_eos: bool = False
    logprobs: int | None = None

    @property
    def greedy(self) -> bool:
        """An explicit mask, never a tiny temperature (pitfalls S19)."""
        return self.temperature == 0.0

    @property
    def reads_history(self) -> bool:
        """True when a row's law depends on the tokens before it beyond the logits."""
        return (
            self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )
