"""Verification: what the target itself writes, compared with what was drafted (DESIGN §5).

Each span is one request's rows of a step. Under `greedy` and `coupled` row 0 chooses y0; while the
block's token equals y the walk goes on; the first y that differs, or the row after a wholly
accepted block, is the commit. A row's y depends on the target, the prefix, the parameters and the
seed alone, so the block decides how many tokens come out and never which. Under `rejection` and
`block` (`weigh`) it has a say in which, and their law is the target's all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from actors.sampling.choose import BadLogits, check_top, choose
from actors.sampling.law import TokenLaw
from actors.sampling.logprobs import TokenScores, scores
from actors.sampling.params import SamplingParams
from actors.sampling.processors import Processors, must_process
from actors.sampling.rank import first_max
from actors.sampling.rules import DEFAULT, Rule, weighs_laws
from actors.sampling.weigh import weigh

__all__ = ["Span", "TokenScores", "Verdict", "decide"]


@dataclass(frozen=True, slots=True)
class Span:
    """Rows start … start+len(block) of the step's logits belong to one request.

    block: drafted ids, any integers. tokens: committed ids, prompt and output; row i decides the
    token at absolute position len(tokens) + i. laws: what the block's tokens were drawn from, or
    None; only rules that weigh laws read them.
    """

    start: int
    block: Sequence[int]
    params: SamplingParams
    tokens: Sequence[int]
    prompt_len: int
    eos_ids: frozenset[int]
    laws: Sequence[TokenLaw] | None = None
    rule: Rule = DEFAULT

    @property
    def end(self) -> int:
        return self.start + len(self.block) + 1

    @property
    def output_len(self) -> int:
        return len(self.tokens) - self.prompt_len

    @property
    def plain_greedy(self) -> bool:
        """Every row's token is the argmax of its raw logits."""
        return self.params.greedy and not must_process(self.params, self.output_len)

    @property
    def weighed(self) -> bool:
        """Drafts are accepted by the ratio of two laws."""
        return weighs_laws(self.rule) and not self.params.greedy

    def processors(self) -> Processors:
        """At row 0."""
        return Processors(self.params, self.tokens, self.prompt_len, self.eos_ids, self.output_len)


@dataclass(frozen=True, slots=True)
class Verdict:
    """tokens: the accepted drafts and one token of the target's own; empty with an error. Of a
    block that a broken row cuts short the last token accepted counts as the target's own.

    logprobs: one entry a token when asked for. error: why row 0 cannot decide; of this request
    alone. invalid: drafted ids outside the vocabulary, which are never accepted (S42).
    """

    accepted: int
    tokens: tuple[int, ...]
    logprobs: tuple[TokenScores, ...] | None = None
    error: str | None = None
    invalid: int = 0


def decide(logits: torch.Tensor, spans: Sequence[Span]) -> list[Verdict]:
    """Verdicts in the order of the spans; logits [N, V], raw.

    A row that cannot decide (NaN, +inf, nothing allowed) is an error of its request as row 0;
    further on it ends the walk before it, so that the text up to it is the one standard decode
    would have delivered, and the next round meets it as row 0 (S52). Raises ValueError when a span
    has rows that the logits have not.
    """
    for span in spans:
        if not 0 <= span.start < span.end <= len(logits):
            raise ValueError(f"rows {span.start} … {span.end - 1} of {len(logits)} rows of logits")
    tops = _tops(logits, [span for span in spans if span.plain_greedy])
    return [_verdict(logits, span, tops) for span in spans]


def _tops(logits: torch.Tensor, spans: Sequence[Span]) -> dict[int, tuple[float, int]]:
    """(maximum, argmax) by row for all rows of the spans, in one pass."""
    rows = sorted({row for span in spans for row in range(span.start, span.end)})
    if not rows:
        return {}
    tops = zip(*first_max(logits if len(rows) == len(logits) else logits[rows]), strict=True)
    return dict(zip(rows, tops, strict=True))


def _verdict(logits: torch.Tensor, span: Span, tops: dict[int, tuple[float, int]]) -> Verdict:
    """Walks one span, lazily: rows past the first mismatch are never drawn (but `block`, which
    decides about a block as one, reads them)."""
    vocab = logits.shape[1]
    invalid = sum(not 0 <= token < vocab for token in span.block)
    written: list[int] = []
    try:
        if span.weighed:
            written = _weighed(logits, span)
        else:
            choices = _choices(logits, span, tops)
            for token, drafted in zip(choices, (*span.block, None), strict=True):
                written.append(token)
                if token != drafted:
                    break
    except BadLogits as error:
        if not written:
            return Verdict(0, (), error=str(error), invalid=invalid)
    logprobs = None
    if span.params.logprobs is not None:
        rows = logits[span.start : span.start + len(written)]
        logprobs = scores(rows, written, span.params.logprobs)
    return Verdict(len(written) - 1, tuple(written), logprobs, None, invalid)


def _choices(logits: torch.Tensor, span: Span, tops: dict[int, tuple[float, int]]) -> Iterator[int]:
    """The target's tokens, row after row: asking for the next accepts the one before. Raises
    BadLogits."""
    rows = range(span.start, span.end)
    if span.plain_greedy:
        for position, row in enumerate(rows, len(span.tokens)):
            top, token = tops[row]
            check_top(top, position)
            yield token
        return
    process = span.processors()
    for position, row in enumerate(rows, len(span.tokens)):
        token = choose(logits[row], process, span.params, position)
        yield token
        process.advance(token)


def _weighed(logits: torch.Tensor, span: Span) -> list[int]:
    """What the span writes where laws are weighed. Raises BadLogits."""
    rows, process = logits[span.start : span.end], span.processors()
    base = len(span.tokens)
    return weigh(rows, span.block, span.laws, process, span.params, base, span.rule)
