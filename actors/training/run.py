"""One drafter from prompts to checkpoint: answers, vocabulary, training, export. Each part finds
what an earlier run has done in the output folder and goes on from there.

    OUTPUT/answers, OUTPUT/validation   what the target wrote (`store`), for all mechanisms
    OUTPUT/vocabulary-N.json            the draft vocabulary of size N
    OUTPUT/MECHANISM/                   checkpoint, curve, and `export/`, the drafter
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from actors.drafters.learned.target_parts import TargetParts, target_parts
from actors.training.answering import AnswerOptions, AnswerProgress, answer, answering_engine
from actors.training.block_trainee import BlockTrainee
from actors.training.chain_trainee import ChainTrainee
from actors.training.checkpoint import RunState
from actors.training.errors import TrainingError
from actors.training.examples import Example, load_examples, prompt_texts
from actors.training.external_trainee import ExternalTrainee
from actors.training.loop import Hooks, Loop, LoopOptions, Report
from actors.training.mechanisms import Shape, build, default_taps
from actors.training.prompts import Encode, read_prompts, tokenised
from actors.training.quoting import with_quotations
from actors.training.recorder import Recorder
from actors.training.scale import feature_scale
from actors.training.store import AnswerStore, StoreHeader
from actors.training.trainee import Trainee
from actors.training.vocabulary import (
    PROMPT_WEIGHT,
    coverage,
    draft_vocabulary,
    frequencies,
    prompt_frequencies,
)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """target: the target's folder. valid: prompts for validation; their answers are greedy.
    draft_vocab: rows of the reduced head, 0 for the target's own. max_bytes: of the recorded
    answers. prompt_share: of the prompts whose own text is trained on too. quote_share: of the long
    prompts that come again with quotations from them. init_from: a trained drafter's folder, whose
    tensors of like name and shape this one begins with."""

    mechanism: str
    target: str
    prompts: Path
    valid: Path
    output: Path
    num_prompts: int = 2500
    num_valid: int = 100
    sampled_share: float = 0.25
    max_bytes: int = 8 * 10**9
    draft_vocab: int = 8192
    prompt_share: float = 0.0
    quote_share: float = 0.0
    seed: int = 0
    init_from: Path | None = None
    answers: AnswerOptions = field(default_factory=AnswerOptions)
    shape: Shape = field(default_factory=Shape)
    loop: LoopOptions = field(default_factory=lambda: LoopOptions(budget_s=3600.0))


class View(Protocol):
    """Who watches."""

    def stage(self, text: str) -> None: ...

    def answering(self, progress: AnswerProgress, total: int) -> None: ...

    def step(self, report: Report) -> None: ...

    def validated(self, line: dict[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class Data:
    """coverage: share of the validation answers' tokens that can be drafted."""

    parts: TargetParts
    draft_ids: torch.Tensor
    coverage: float
    train: list[Example]
    valid: list[Example]


def record(options: RunOptions, encode: Encode, view: View) -> None:
    """Have the target answer what it has not answered yet. Raises TrainingError."""
    parts = target_parts(options.target, torch.float32)
    header = StoreHeader(
        parts.digest,
        default_taps(parts.layers),
        parts.hidden,
        options.answers.max_tokens,
        options.answers.max_prompt,
    )
    parts_of = (
        ("validation", options.valid, options.num_valid, 0.0, 0.0),
        (
            "answers",
            options.prompts,
            options.num_prompts,
            options.sampled_share,
            options.quote_share,
        ),
    )
    engine = recorder = None
    for name, source, count, share, quoted in parts_of:
        store = AnswerStore(options.output / name, header, options.max_bytes)
        prompts = read_prompts(source, share, options.seed)
        ready = list(tokenised(prompts, encode, options.answers.max_prompt, count))
        if not ready:
            most = options.answers.max_prompt
            raise TrainingError(
                f"no prompt of {source} has at most {most} tokens (--max-prompt-tokens)", "prompts"
            )
        asked = with_quotations(ready, quoted, options.answers.max_tokens - 1, options.seed)
        missing = [item for item in asked if item[0].name not in store.done]
        if not missing or store.full:
            continue
        if engine is None or recorder is None:
            view.stage("Loading the target")
            recorder = Recorder(header.taps)
            engine = answering_engine(options.target, recorder, options.answers)
        view.stage(f"The target answers {len(missing)} prompts ({name})")
        answer(
            engine,
            recorder,
            missing,
            store,
            options.answers.max_tokens,
            lambda progress, total=len(missing): view.answering(progress, total),  # type: ignore[misc]
        )


def load(options: RunOptions, encode: Encode) -> Data:
    """Raises TrainingError where nothing is recorded."""
    parts = target_parts(options.target, torch.float32, options.loop.device)
    train = load_examples(options.output / "answers")
    valid = load_examples(options.output / "validation", greedy_only=True)
    check_data(train, valid)
    if not options.draft_vocab:
        ids = torch.arange(parts.vocab)
    else:
        ids = _vocabulary(options, frequencies(train, parts.vocab), encode)
    more = prompt_texts(train, options.prompt_share)
    held_out = frequencies(valid, parts.vocab)
    return Data(parts, ids, coverage(held_out, ids), train + more, valid)


def _vocabulary(options: RunOptions, counts: torch.Tensor, encode: Encode) -> torch.Tensor:
    """Chosen once: a checkpoint's rows must stay what they are while answers are added."""
    path = options.output / f"vocabulary-{options.draft_vocab}.json"
    if not path.exists():
        prompts = (encode(prompt.text) for prompt in read_prompts(options.prompts))
        weighed = counts + PROMPT_WEIGHT * prompt_frequencies(prompts, len(counts))
        ids = draft_vocabulary(weighed, options.draft_vocab).tolist()
        path.write_text(json.dumps(ids), "utf-8")
    return torch.tensor(json.loads(path.read_text("utf-8")))


def fit(
    options: RunOptions,
    data: Data,
    view: View,
    on_best: Callable[[Trainee, dict[str, Any]], None],
    stop: Callable[[], bool],
) -> Trainee:
    """Train until the budget is spent or `stop`; on_best: with the averaged weights in place."""
    torch.manual_seed(options.seed)
    scale = feature_scale(options.output, data.train)
    trainee = build(options.mechanism, data.parts, data.draft_ids, options.shape, scale)
    if isinstance(trainee, (BlockTrainee, ChainTrainee, ExternalTrainee)):
        trainee.look_back(data.train)
    if options.init_from is not None:
        view.stage(
            f"{begin_with(trainee, options.init_from, scale)} tensors from {options.init_from}"
        )

    def validated(line: dict[str, Any], best: bool) -> None:
        view.validated(line)
        if best:
            on_best(trainee, line)

    folder = options.output / options.mechanism
    loop = Loop(
        trainee, data.train, data.valid, folder, options.loop, Hooks(view.step, validated, stop)
    )
    if loop.resumed:
        view.stage(f"Going on after step {loop.state.step}")
    if isinstance(trainee, ExternalTrainee):
        _measured_with(len(data.draft_ids), loop.state, data.parts.vocab)
    loop.run()
    return trainee


def _measured_with(drafted: int, state: RunState, vocab: int) -> None:
    """No tensor of a draft model has its head's shape, so a run may go on with another draft
    vocabulary; what was best with the one before is then no measure, and must not keep the drafter
    from being written. Runs that said nothing drafted all of `vocab`."""
    if (state.drafted or vocab) != drafted:
        state.best = 0.0
    state.drafted = drafted


@torch.no_grad()
def begin_with(trainee: Trainee, folder: Path, scale: torch.Tensor) -> int:
    """How many tensors were taken from the export in `folder`. scale: of the features. Raises
    TrainingError when none fits."""
    try:
        stored = load_file(folder / "model.safetensors")
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"cannot begin with {folder}: {error}", "init_from") from error
    taken = 0
    for name, parameter in trainee.module.named_parameters():
        found = stored.get(name)
        if found is not None and found.shape == parameter.shape:
            units = scale[: found.shape[1]] if name == "fc.weight" else 1.0
            parameter.copy_(found.float() * units)
            taken += 1
    if not taken:
        raise TrainingError(f"no tensor of {folder} fits a {trainee.mechanism}", "init_from")
    return taken


def check_data(train: Sequence[Example], valid: Sequence[Example]) -> None:
    """Raises TrainingError where a validation answer was trained on."""
    seen = {tuple(e.tokens[: e.prompt_len].tolist()) for e in train}
    if any(tuple(e.tokens[: e.prompt_len].tolist()) in seen for e in valid):
        raise TrainingError("a validation prompt is among the training prompts", "valid")
