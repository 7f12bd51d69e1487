"""The backbone of `block_model` with the heads that choose drafts on it, as one module whose
tensor names are the producers' own."""

from __future__ import annotations

from dataclasses import dataclass

from actors.drafters.learned.block_model import BlockModel, BlockSpec
from actors.drafters.learned.domino import DominoHead, DominoSpec
from actors.drafters.learned.markov import ConfidenceHead, MarkovHead, MarkovKind
from actors.drafters.learned.selector import CandidateSelector, SelectorSpec


@dataclass(frozen=True, slots=True)
class MarkovSpec:
    """vocab: tokens that may come before, the target's; draft_vocab: rows of the bias."""

    kind: MarkovKind
    rank: int
    vocab: int
    draft_vocab: int


@dataclass(frozen=True, slots=True)
class ConfidenceSpec:
    """rank: of the Markov embedding that it reads beside the hidden state; 0 is none."""

    rank: int
    bias: bool = True


@dataclass(frozen=True, slots=True)
class BlockHeadSpec:
    """draft_vocab: rows of the output head. embed_scale: of the target's input embeddings.
    logit_scale, softcap: logits become scale · x, then cap · tanh(x / cap)."""

    block: BlockSpec
    draft_vocab: int
    markov: MarkovSpec | None = None
    selector: SelectorSpec | None = None
    domino: DominoSpec | None = None
    confidence: ConfidenceSpec | None = None
    embed_scale: float = 1.0
    logit_scale: float = 1.0
    softcap: float = 0.0


class BlockHead(BlockModel):
    """A drafter but for the input embedding and the output head (`Ends`)."""

    def __init__(self, spec: BlockHeadSpec) -> None:
        super().__init__(spec.block)
        markov, confidence, hidden = spec.markov, spec.confidence, spec.block.layer.hidden
        self.markov_head: MarkovHead | None = None
        self.confidence_head: ConfidenceHead | None = None
        self.candidate_selector: CandidateSelector | None = None
        self.domino: DominoHead | None = None
        if markov is not None:
            self.markov_head = MarkovHead(
                markov.kind, markov.vocab, markov.draft_vocab, markov.rank, hidden
            )
        if spec.selector is not None:
            self.candidate_selector = CandidateSelector(spec.selector, hidden)
        if spec.domino is not None:
            self.domino = DominoHead(spec.domino, hidden)
        if confidence is not None:
            self.confidence_head = ConfidenceHead(hidden, confidence.rank, confidence.bias)
