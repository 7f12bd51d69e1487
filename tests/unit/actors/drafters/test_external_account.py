"""What a draft model says of itself and of its sessions: its bytes, and where the output starts."""

from __future__ import annotations

from dataclasses import replace

import torch

from actors.drafters.config import DrafterConfig
from actors.drafters.external import ExternalDrafter
from actors.engine.options import EngineOptions
from actors.engine.ports import drafter_bytes_a_row
from actors.exchange.local import LocalPort
from actors.sampling.params import SamplingParams
from tests.drafters.knowing import continuation, detached
from tests.models import make_rand
from tests.unit.actors.drafters.builders import draft, make_commit, make_open

CONFIG = DrafterConfig("draft_model", num_speculative_tokens=8)


def make_external() -> ExternalDrafter:
    return ExternalDrafter(make_rand(dtype=torch.float32), CONFIG)


def test_weights_are_counted_once_and_in_bytes() -> None:
    tied = make_rand(dtype=torch.float32, tie_word_embeddings=True)
    own = sum(p.numel() for p in tied.parameters())  # each parameter once
    drafter = ExternalDrafter(tied, CONFIG)
    buffers = sum(b.numel() * b.element_size() for b in tied.buffers())
    assert drafter.info.weight_bytes == 4 * own + buffers
    assert make_external().info.weight_bytes == drafter.info.weight_bytes + 4 * 128 * 64


def test_no_session_takes_more_than_its_tokens_were_said_to() -> None:
    drafter = make_external()
    # 2 layers, keys and values, 2 heads of 16 numbers, 4 bytes; doubled as memory grows.
    assert drafter.info.token_bytes == 2 * 2 * 2 * 2 * 16 * 4
    drafter.open([make_open([7] * 70)])
    length = 70
    while length < 200:
        draft(drafter)
        (session,) = drafter.sessions
        held = sum(
            part.numel() * part.element_size()
            for layer in session.kv._layers.values()
            for part in layer
        )
        # Drafts in the making have rows as well, at most a block of them.
        assert held <= (length + 8) * drafter.info.token_bytes
        drafter.observe([make_commit(length, *([5] * 13))])
        length += 13


def test_a_co_located_drafter_counts_where_it_shares_the_device() -> None:
    drafter = make_external()
    port = LocalPort(drafter)
    options = EngineOptions("m", "v", speculative=CONFIG, placement="colocated")
    assert drafter_bytes_a_row(port, options) == drafter.info.token_bytes
    assert drafter_bytes_a_row(port, replace(options, device="cuda:0")) == 0
    assert drafter_bytes_a_row(port, replace(options, speculative=None)) == 0


def test_a_session_opened_in_the_middle_counts_penalties_from_the_prompts_end() -> None:
    model = make_rand(dtype=torch.float32)
    known = detached(model)
    sampling = SamplingParams(temperature=0.0, frequency_penalty=2.0, max_tokens=64)
    tokens, prompt_len = [5, 5, 17, 99], 4
    for _ in range(12):
        tokens.append(continuation(known, tokens, sampling, prompt_len))
    wanted = list(tokens)
    for _ in range(6):
        wanted.append(continuation(known, wanted, sampling, prompt_len))
    blind = list(tokens)
    for _ in range(6):
        blind.append(continuation(known, blind, sampling, len(tokens)))
    assert blind != wanted, "the penalty must matter here"
    drafter = ExternalDrafter(model, CONFIG)
    drafter.open([replace(make_open(tokens, sampling=sampling), prompt_len=prompt_len)])
    assert draft(drafter, 6) == tuple(wanted[len(tokens) :])
