"""EAGLE-3, DFlash, DSpark and MTP against the classes that `speculators` trains, on the same random
weights, through a checkpoint that the package itself has saved.

The package pins other versions of what we run on, so it lies in a folder of its own and borrows our
torch and transformers:

    pip install --no-deps --target /tmp/reference speculators==0.9.0 hs-connectors==0.9.0 \\
        loguru==0.7.3 datasets==5.1.0 pyarrow pandas dill multiprocess xxhash
    PYTHONPATH=.:/tmp/reference python infra/reference/speculators_drafters.py

Its forwards are those of training, teacher-forced: EAGLE-3's steps see what a served chain sees;
MTP's steps after the first are one more pass of the layer over all rows, and are compared as such.
Windows are the one thing that it trains otherwise than anybody serves: there all slots of a block
see as far back as the anchor does, and one row further. Compared are windows of the slots' own.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from actors.drafters.checkpoints.files import open_checkpoint
from actors.drafters.checkpoints.head import LoadedHead, TargetShape
from actors.drafters.checkpoints.table import read_head
from actors.drafters.external_kv import SessionKV, Span
from actors.drafters.learned.attend import Block, Causal
from actors.drafters.learned.block_head import BlockHead
from actors.drafters.learned.eagle_model import EagleModel
from actors.drafters.learned.mtp_model import MtpModel

HIDDEN, LAYERS, VOCAB, ROWS, STEPS, BLOCK, WINDOW = 64, 2, 128, 24, 3, 5, 12
TAPS = [1, 3, 5]
TARGET = TargetShape(HIDDEN, 6, VOCAB)
MOST = 1e-5


def layers(kind: type[Any], count: int = LAYERS, **more: Any) -> Any:
    """The configuration of the decoder layers."""
    made = kind(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=96,
        num_hidden_layers=count,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=256,
        rms_norm_eps=1e-6,
        **more,
    )
    made._attn_implementation = "eager"
    return made


def said(algorithm: str) -> Any:
    """What every checkpoint of the package says about itself."""
    from speculators import SpeculatorsConfig, VerifierConfig
    from speculators.proposals.greedy import GreedyTokenProposalConfig

    return SpeculatorsConfig(
        algorithm=algorithm,
        proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=STEPS)],
        default_proposal_method="greedy",
        verifier=VerifierConfig(name_or_path=None, architectures=["LlamaForCausalLM"]),
    )


def randomised(model: Any) -> Any:
    """Norms too, so that every part shows; the last hundred ids of a reduced vocabulary."""
    for name, parameter in model.named_parameters():
        noise = torch.randn_like(torch.empty(parameter.shape))
        wide = parameter.shape[-1] if parameter.dim() > 1 else 1
        parameter.data = 1.0 + 0.2 * noise if "norm" in name else 1.5 * noise / wide**0.5
    if getattr(model, "t2d", None) is not None:
        first = VOCAB - model.draft_vocab_size
        model.t2d[:] = torch.arange(VOCAB) >= first
        model.d2t[:] = first
    return model.eval()


def saved(theirs: Any) -> LoadedHead:
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        return read_head(open_checkpoint(Path(folder)), TARGET)


def ours_of(make: Callable[[Any], Any], head: LoadedHead, **lent: torch.Tensor) -> Any:
    model = make(head.spec).eval()
    own = {n: lent[n] if n in lent else head.tensors[n] for n in model.state_dict()}
    model.load_state_dict(own, assign=True)
    return model


def off(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The largest difference, of the largest value."""
    return float((found - wanted).abs().max() / wanted.abs().max())


def eagle3(**flags: Any) -> float:
    """Logits of the first draft and of those behind it, from every row."""
    from speculators import Eagle3DraftModel, Eagle3SpeculatorConfig
    from transformers import LlamaConfig

    config = Eagle3SpeculatorConfig(
        transformer_layer_config=layers(LlamaConfig),
        eagle_aux_hidden_state_layer_ids=TAPS,
        speculators_config=said("eagle3"),
        **{"draft_vocab_size": VOCAB, **flags},
    )
    theirs = randomised(Eagle3DraftModel(config))
    head = saved(theirs)
    assert head.taps == tuple(TAPS)
    ours = ours_of(EagleModel, head)
    tokens, features = torch.randint(VOCAB, (ROWS + 1,)), torch.randn(ROWS, 3 * HIDDEN)
    wanted: list[torch.Tensor] = []
    theirs.lm_head.register_forward_hook(lambda module, args, out: wanted.append(out[0]))
    theirs(
        hidden_states=features[None],
        input_ids=tokens[None, 1:],
        document_ids=torch.zeros(1, ROWS, dtype=torch.long),
        position_ids=torch.arange(ROWS)[None],
        ttt_steps=STEPS,
    )
    embedding, output = theirs.embed_tokens.weight, theirs.lm_head.weight
    kv, worst = SessionKV(), 0.0

    def forward(at: int, states: torch.Tensor) -> torch.Tensor:
        """Entries at, at + 1 …, each with the token after it."""
        where = torch.arange(at, at + len(states))
        attend = Causal([Span(kv, at, 0, len(states))])
        z: torch.Tensor = ours(embedding[tokens[where + 1]], states, where, attend)
        return z

    committed = forward(0, ours.fuse(features))
    worst = off(ours.output(committed) @ output.T, wanted[0])
    for row in reversed(range(ROWS - STEPS)):  # a row's drafts lie behind it, over later rows
        z = committed[row : row + 1]
        for step in range(1, STEPS):
            z = forward(row + step, ours.recycled(z))
            worst = max(worst, off(ours.output(z)[0] @ output.T, wanted[step][row]))
    return worst


def block(kind: str, context: int, windows: bool = False, **more: Any) -> float:
    """Normed states of a block after so many rows; DSpark's logits and confidences too."""
    import speculators
    from transformers import Qwen3Config

    names = {"dflash": "DFlash", "dspark": "DSpark"}
    types = ["sliding_attention", "full_attention"] if windows else ["full_attention"] * 2
    config = getattr(speculators, f"{names[kind]}SpeculatorConfig")(
        transformer_layer_config=layers(
            Qwen3Config, layer_types=types, sliding_window=WINDOW, use_sliding_window=windows
        ),
        draft_vocab_size=100,
        block_size=BLOCK,
        aux_hidden_state_layer_ids=TAPS,
        mask_token_id=7,
        speculators_config=said(kind),
        **more,
    )
    theirs = randomised(getattr(speculators, f"{names[kind]}DraftModel")(config))
    head = saved(theirs)
    assert head.taps == tuple(TAPS)
    ours = ours_of(BlockHead, head)
    if windows:
        causal, _ = head.spec.block.masks[0]
        theirs._create_attention_mask = lambda *, sliding_window, **said: served(
            context, said["total_seq_len"], sliding_window, causal
        )
    length = context + 2 * BLOCK
    tokens, features = torch.randint(VOCAB, (length,)), torch.randn(length, 3 * HIDDEN)
    anchor = torch.zeros(1, length)
    anchor[0, context] = 1.0
    hidden, logits, *_ = theirs._backbone_forward(
        features[None],
        tokens[None],
        anchor,
        torch.randn(1, length, HIDDEN),
        torch.zeros(1, length, dtype=torch.long),
        max_anchors=1,
    )
    kv, rows = SessionKV(), ours.context(features[:context])
    for layer, (k, v) in enumerate(ours.context_kv(rows, torch.arange(context))):
        kv.write(layer, 0, k.transpose(0, 1), v.transpose(0, 1))
    slots = torch.full((BLOCK,), 7)
    slots[0] = tokens[context]
    attend = Block([Span(kv, context, 0, BLOCK)], head.spec.block.masks)
    where = torch.arange(context, context + BLOCK)
    found = ours(theirs.embed_tokens.weight[slots], where, attend, torch.arange(BLOCK))
    worst = off(found, hidden[0])
    if kind == "dspark":
        before = tokens[context : context + BLOCK]
        worst = max(worst, _serial(theirs, ours, hidden, logits, before))
    return worst


def served(anchor: int, rows: int, window: int | None, causal: bool) -> torch.Tensor:
    """What a block sees of `rows` context rows and of itself, by absolute positions: 0 or -inf,
    [1, 1, block, rows + block]."""
    query = torch.arange(anchor, anchor + BLOCK)[:, None]
    near = window or 1 << 30
    base = torch.arange(rows)[None]
    before = (base < anchor) & (query - base < near)
    own = (query - query.T).abs() < near
    seen = torch.cat((before, own.tril() if causal and window else own), 1)
    return torch.zeros(seen.shape).masked_fill(~seen, float("-inf"))[None, None]


def _serial(
    theirs: Any, ours: BlockHead, hidden: torch.Tensor, logits: torch.Tensor, before: torch.Tensor
) -> float:
    """What the Markov head adds, slot by slot, and how sure the confidence head is; hidden
    [1, block, hidden], logits [1, block, draft vocabulary], before: the token before each draft."""
    markov, confidence = ours.markov_head, ours.confidence_head
    assert markov is not None
    assert confidence is not None
    embedded = theirs.markov_head.prev_embeddings(before[None])
    bias = theirs.markov_head.block_bias(
        prev_token_ids=before[None], hidden_states=hidden, prev_emb=embedded
    )
    sure = theirs.confidence_head(torch.cat((hidden, embedded), -1))
    state, found, certain = markov.start(hidden[:, 0]), [], []
    for slot in range(BLOCK):
        more, e, state = markov(hidden[:, slot], before[slot : slot + 1], state)
        found.append(logits[:, slot] + more)
        certain.append(confidence(hidden[:, slot], e))
    return max(
        off(torch.stack(found, 1), logits + bias), off(torch.stack(certain, 1), sure.view(1, BLOCK))
    )


def mtp() -> float:
    """Logits of all steps."""
    from speculators import MTPDraftModel, MTPSpeculatorConfig
    from transformers import Qwen3Config

    config = MTPSpeculatorConfig(
        transformer_layer_config=layers(Qwen3Config, TARGET.layers), speculators_config=said("mtp")
    )
    theirs = randomised(MTPDraftModel(config))
    ours = ours_of(MtpModel, saved(theirs), **{"final_norm.weight": torch.ones(HIDDEN)})
    tokens, hidden = torch.randint(VOCAB, (ROWS,)), torch.randn(ROWS, HIDDEN)
    wanted, _, _ = theirs(input_ids=tokens[None], hidden_states=hidden[None])
    count, worst = ROWS - STEPS - 1, 0.0
    z = hidden[:count]
    for step, logits in enumerate(wanted):
        attend = Causal([Span(SessionKV(), 0, 0, count)])
        embedded = theirs.embed_tokens.weight[tokens[step + 1 : step + 1 + count]]
        z = ours(0, embedded, z, torch.arange(count), attend)
        worst = max(worst, off(z @ theirs.lm_head.weight.T, logits[0]))
    return worst


def cases() -> Iterator[tuple[str, Callable[[], float]]]:
    yield "eagle3", eagle3
    yield "eagle3, reduced vocabulary", lambda: eagle3(draft_vocab_size=100)
    for flag in ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output"):
        yield f"eagle3, {flag}", lambda flag=flag: eagle3(**{flag: True})  # type: ignore[misc]
    for context in (1, 4, 30):
        yield f"dflash, context {context}", lambda c=context: block("dflash", c)  # type: ignore[misc]
        for free in (False, True):
            yield (
                f"dflash, windows{', not causal' if free else ''}, context {context}",
                lambda c=context, free=free: block(  # type: ignore[misc]
                    "dflash", c, True, sliding_window_non_causal=free
                ),
            )
    for kind in ("vanilla", "gated", "rnn"):
        yield (
            f"dspark, {kind}",
            lambda kind=kind: block("dspark", 9, markov_rank=8, markov_head_type=kind),  # type: ignore[misc]
        )
    yield "mtp, 3 steps", mtp


def main() -> int:
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    worst = 0.0
    for name, compare in cases():
        torch.manual_seed(0)
        with torch.inference_mode():
            found = compare()
        print(f"{name:40} off by {found:.1e}{'' if found <= MOST else '   <-- too far'}")
        worst = max(worst, found)
    return 0 if worst <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
