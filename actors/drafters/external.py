"""Any Hugging Face causal LM as drafter, with a KV of its own, batched over sessions.

Greedy at temperature 0. Otherwise, under `coupled`, x = argmax(log q + g) with the noise the target
uses at the same position, so drafts are likely what the target will draw; under the rules that
weigh laws x is drawn from q, which goes with it, and always as many as were asked for, so that
neither the length nor the time of a block says what is in it (DESIGN §5).

Law of a session: KV rows 0 … kv_len-1 are those of its committed text, each at its absolute
position. A round feeds text[kv_len:], whatever it is: the draft that was accepted and never
fed (pitfalls S28), the tokens of rounds at D = 0 (S30), a prompt in parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import torch

from actors.contracts import (
    Commit,
    DrafterError,
    DrafterInfo,
    DraftRequest,
    OpenSession,
    Proposal,
    SessionKey,
)
from actors.drafters.allot import allot
from actors.drafters.config import DrafterConfig
from actors.drafters.external_choose import Prefix, next_drafts
from actors.drafters.external_forward import Feed, forward_for
from actors.drafters.external_head import Head
from actors.drafters.external_load import load_draft_model, other_vocabulary, with_model
from actors.drafters.external_vocabulary import Intersection
from actors.drafters.sessions import SessionTable, room
from actors.engine.loading import end_tokens
from actors.sampling.law import TokenLaw
from actors.sampling.params import SamplingParams
from actors.sampling.rules import weighs_laws


@dataclass(slots=True)
class ExternalSession:
    """text: the committed tokens as the draft model reads them: the same list, but for another
    vocabulary (`other`). fed: drafts after them whose KV rows exist too, rows `rows` … . block:
    what was last proposed after them, where a chain may go on from there."""

    key: SessionKey
    tokens: list[int]
    sampling: SamplingParams
    prompt_len: int
    kv: Any  # of the forward that feeds it
    kv_len: int = 0
    fed: list[int] = field(default_factory=list)
    block: list[int] = field(default_factory=list)
    other: Intersection | None = None
    text: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.text = self.tokens if self.other is None else self.other.read(self.tokens)

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def rows(self) -> int:
        """KV rows of the committed text."""
        return len(self.text)

    @property
    def start(self) -> int:
        """First row to feed; the newest token is always fed, for its logits."""
        return min(self.kv_len, self.rows - 1)

    def extend(self, tokens: Sequence[int]) -> None:
        """Commit: rows of drafts that were accepted stay, all others are forgotten."""
        for token, draft in zip(tokens, self.fed, strict=False):
            if token != draft:
                break
            self.kv_len += 1
        self.fed, self.block = [], []
        self.tokens.extend(tokens)
        if self.other is not None:
            self.text.extend(self.other.read(tokens))


@dataclass(slots=True)
class Chain:
    """A block in the making."""

    session: ExternalSession
    depth: int
    drafts: list[int] = field(default_factory=list)
    laws: list[TokenLaw] = field(default_factory=list)
    ended: bool = False
    cold: bool = False  # its prompt is still being fed

    @property
    def open(self) -> bool:
        return not self.ended and len(self.drafts) < self.depth

    def proposal(self) -> Proposal:
        key, length = self.session.key, self.session.length
        law = tuple(self.laws) if self.laws else None
        return Proposal(key, length, tuple(self.drafts), cold=self.cold, law=law)


class ExternalDrafter:
    """`model` is a transformers causal LM in eval mode; `name` goes into the revision. other: what
    its vocabulary shares with the target's, where that is another."""

    def __init__(
        self,
        model: Any,
        config: DrafterConfig,
        name: str = "draft",
        other: Intersection | None = None,
    ) -> None:
        context = _context(model, config.max_context)
        self._forward = forward_for(model, config, context)
        self._config = config
        self._inputs = int(model.get_input_embeddings().weight.shape[0])
        head = Head(model, config.target_vocab_size)
        self._spread = other.rows if other else head.spread
        self._vocab = other.size if other else head.size
        self._eos = other.ends(end_tokens(model)) if other else end_tokens(model)
        self._other = other
        self.sessions: SessionTable[ExternalSession] = SessionTable()
        self._info = DrafterInfo(
            "draft_model",
            f"{name}@{config.revision or 'local'}",
            vocab_size=self._vocab,
            max_block=config.num_speculative_tokens,
            max_ahead=config.max_ahead,
            gives_law=weighs_laws(config.rejection_sample_method),
            max_context=context,
            weight_bytes=self._forward.weight_bytes,
            token_bytes=self._forward.token_bytes,
        )

    @classmethod
    def load(cls, config: DrafterConfig) -> ExternalDrafter:
        """Load, check against the target, wrap. Raises DrafterLoadError."""
        config = with_model(config)
        model = load_draft_model(config)
        return cls(
            model, config, PurePath(config.model or "").name, other_vocabulary(model, config)
        )

    @property
    def info(self) -> DrafterInfo:
        return self._info

    # -- the contract ---------------------------------------------------------------------------

    def open(self, sessions: Sequence[OpenSession]) -> None:
        """Takes the prompts and feeds their first part while the target prefills."""
        latest = {s.key: s for s in sessions}  # of a key that comes twice, the last
        opened = [
            ExternalSession(
                s.key,
                list(s.tokens),
                s.sampling,
                s.prompt_len or len(s.tokens),
                self._forward.session(),
                other=self._other,
            )
            for s in latest.values()
        ]
        for session in opened:
            self.close(session.key)  # one that is open already starts anew
            self.sessions.put(session.key, session)
        fitting = [s for s in opened if 0 < s.rows <= self._limit]
        counts = allot([s.rows for s in fitting], 0, self._config.prefill_rows)
        self._feed([(s, n) for s, n in zip(fitting, counts, strict=True) if n])

    def observe(self, commits: Sequence[Commit]) -> None:
        self.sessions.observe(commits)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        """A session whose prompt is still being fed proposes nothing yet. Raises DrafterError
        naming the sessions whose logits are not finite; asking again for the others is safe."""
        info, chains = self._info, list[Chain]()
        for request, session in self.sessions.pairs(requests):
            depth = min(room(request.depth, n, info) for n in (session.length, session.rows))
            chains.append(self._begun(session, depth))
        self._draft([chain for chain in chains if chain.open])
        if info.max_ahead:
            for chain in chains:
                chain.session.block = chain.drafts
        return [chain.proposal() for chain in chains]

    def close(self, key: SessionKey) -> None:
        session = self.sessions.pop(key)
        if session is not None:
            self._forward.close(session.kv)

    # -- the work -------------------------------------------------------------------------------

    @property
    def _limit(self) -> int:
        return self._info.max_context or 1 << 62

    def _begun(self, session: ExternalSession, depth: int) -> Chain:
        """From the start, or where a longer chain is wanted after a block, from its end."""
        block = session.block
        if not 0 < len(block) < depth or len(session.fed) != len(block) - 1:
            return Chain(session, depth)
        return Chain(session, depth, list(block), ended=self._ends(block[-1], session.sampling))

    def _draft(self, chains: list[Chain]) -> None:
        """One forward that catches up, then one row a chain for each further token."""
        going = [chain for chain in chains if chain.drafts]
        chains, logits = self._caught_up([chain for chain in chains if not chain.drafts])
        if going:
            further = self._further(going)
            logits = torch.cat((logits, further)) if chains else further
            chains = [*chains, *going]
        while chains:
            self._choose(chains, logits)
            chains = [chain for chain in chains if chain.open]
            if chains:
                logits = self._further(chains)

    def _further(self, chains: Sequence[Chain]) -> torch.Tensor:
        """Feed the newest draft of each; logits [chains, vocab]."""
        feeds = [
            (c.session, [self._own(c.drafts[-1])], c.session.rows + len(c.drafts) - 1)
            for c in chains
        ]
        logits = self._rows(feeds)
        for chain in chains:
            chain.session.fed = list(chain.drafts)
        return logits

    def _own(self, draft: int) -> int:
        """A draft as the model reads it."""
        return draft if self._other is None else self._other.own(draft)

    def _caught_up(self, chains: list[Chain]) -> tuple[list[Chain], torch.Tensor]:
        """Those whose committed tokens are all fed now, and the logits [., vocab] after them."""
        missing = [c.session.rows - c.session.start for c in chains]
        entitled = 2 * (self._info.max_block + 1)
        counts = allot(missing, entitled, self._config.prefill_rows)
        rows = self._feed(
            [(c.session, n) for c, n in zip(chains, counts, strict=True)],
        )
        for chain, n, m in zip(chains, counts, missing, strict=True):
            chain.cold = n < m
        ready = [i for i, chain in enumerate(chains) if not chain.cold]
        return [chains[i] for i in ready], rows[ready] if ready else rows[:0]

    def _feed(self, parts: Sequence[tuple[ExternalSession, int]]) -> torch.Tensor:
        """The next n committed tokens of each session, n >= 1; logits [sessions, vocab]."""
        if not parts:
            return torch.empty(0, self._vocab)
        feeds = [(s, s.text[s.start : s.start + n], s.start) for s, n in parts]
        logits = self._rows(feeds)
        for session, tokens, start in feeds:
            session.kv_len = start + len(tokens)
        return logits

    def _rows(self, feeds: Sequence[tuple[ExternalSession, list[int], int]]) -> torch.Tensor:
        """Tokens at their positions; logits [sessions, vocab] of each last row. An id the model
        does not know is fed as id 0: positions stay, acceptance suffers a little."""
        known = range(self._inputs)
        logits = self._forward(
            [Feed(s.kv, [t if t in known else 0 for t in ids], at) for s, ids, at in feeds]
        )
        return self._spread(logits)

    def _choose(self, chains: Sequence[Chain], logits: torch.Tensor) -> None:
        """The next draft of each chain from its row of logits [chains, vocab]."""
        prefixes = [self._prefix(chain) for chain in chains]
        drafts = next_drafts(logits, prefixes, self._eos)
        bad: list[SessionKey] = []
        for chain, prefix, draft in zip(chains, prefixes, drafts, strict=True):
            if draft is None:
                bad.append(chain.session.key)
                continue
            token, law = draft
            chain.drafts.append(token)
            if law is not None:
                chain.laws.append(law)
            chain.ended = not prefix.drawn and self._ends(token, prefix.sampling)
        if bad:
            raise DrafterError("the draft model's logits are not finite", bad)

    def _prefix(self, chain: Chain) -> Prefix:
        session = chain.session
        return Prefix(
            session.tokens + chain.drafts,
            session.prompt_len,
            session.sampling,
            session.length,
            self._info.gives_law and not session.sampling.greedy,
        )

    def _ends(self, token: int, sampling: SamplingParams) -> bool:
        """Nothing follows an end; whether it is one, the target decides (pitfalls S09)."""
        return token in sampling.stop_token_ids or (token in self._eos and not sampling.ignore_eos)


def _context(model: Any, served: int) -> int:
    """Positions that exist on both sides; 0 when neither has a bound."""
    text = model.config.get_text_config()
    own = int(getattr(text, "max_position_embeddings", 0) or 0)
    return min(own or served, served or own)
