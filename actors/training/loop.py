"""The training loop of every mechanism: step, average, validate, checkpoint; stops at any moment
and goes on from there."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from actors.training import checkpoint
from actors.training.acceptance import lengths, survival
from actors.training.averaged import Averaged
from actors.training.checkpoint import RunState
from actors.training.examples import Example, batches
from actors.training.muon import BlockMuon
from actors.training.trainee import StepLoss, Trainee

CURVE = "curve.jsonl"
VECTORS = 5.0
"""What the learning rate of norms and biases is beside that of matrices."""


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """budget_s: wall seconds of training in all, over every run of the folder; the learning rate
    falls to zero over its last `cooldown` share. anchors: answer positions of one step, at least.
    average: decay of the weights' average. muon: of matrices, instead of AdamW."""

    budget_s: float
    learning_rate: float = 2e-3
    warmup_steps: int = 40
    cooldown: float = 0.3
    weight_decay: float = 0.01
    clip: float = 1.0
    anchors: int = 128
    average: float = 0.99
    validate_s: float = 180.0
    seed: int = 0
    device: str = "cpu"
    muon: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """What is told of a step. rate: answer positions a second; left_s: of the budget."""

    state: RunState
    step: StepLoss
    rate: float
    left_s: float


@dataclass(frozen=True, slots=True)
class Hooks:
    """on_step: after every step. on_validation: after each, with its line of the curve; best says
    that it is the best so far, and the module then has the averaged weights. stop: asked before
    every step."""

    on_step: Callable[[Report], None] = lambda report: None
    on_validation: Callable[[dict[str, Any], bool], None] = lambda line, best: None
    stop: Callable[[], bool] = lambda: False


class Loop:
    """One mechanism's training in one folder."""

    def __init__(
        self,
        trainee: Trainee,
        train: Sequence[Example],
        valid: Sequence[Example],
        folder: Path,
        options: LoopOptions,
        hooks: Hooks | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._trainee, self._train, self._valid = trainee, train, valid
        self._folder, self._options = folder, options
        self._hooks = hooks or Hooks()
        self._averaged = Averaged(trainee.module, options.average)
        self._optimizer = _optimizer(trainee.module, options)
        found = checkpoint.load(folder, trainee.module, self._averaged, self._optimizer)
        self.resumed = found is not None
        self.state = found or RunState()

    def run(self) -> RunState:
        """Until the budget is spent or `stop` says so; the checkpoint is written either way, on
        an exception too."""
        options, state = self._options, self.state
        validated = state.wall_s
        try:
            while state.wall_s < options.budget_s and not self._hooks.stop():
                for batch in self._pass():
                    self._step(batch)
                    if state.wall_s - validated >= options.validate_s:
                        self.validate()
                        self._save()
                        validated = state.wall_s
                    if state.wall_s >= options.budget_s or self._hooks.stop():
                        break
                else:
                    state.epoch, state.batch = state.epoch + 1, 0
        finally:
            self._save()
        if state.wall_s > validated:
            self.validate()
            self._save()
        return state

    def _pass(self) -> list[list[Example]]:
        """What is left of this epoch."""
        rng = random.Random(f"{self._options.seed}/{self.state.epoch}")
        return list(batches(self._train, self._options.anchors, rng))[self.state.batch :]

    def _step(self, batch: list[Example]) -> None:
        options, state, module = self._options, self.state, self._trainee.module
        began, cpu = time.perf_counter(), time.process_time()
        for group in self._optimizer.param_groups:
            group["lr"] = options.learning_rate * self._rate() * group["factor"]
        rng = random.Random(f"{options.seed}/{state.epoch}/{state.batch}")
        step = self._trainee.loss([e.to(options.device) for e in batch], rng)
        self._optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(step.loss)
        torch.nn.utils.clip_grad_norm_(module.parameters(), options.clip)
        self._optimizer.step()
        self._averaged.update()
        took = time.perf_counter() - began
        state.step, state.batch = state.step + 1, state.batch + 1
        state.positions += step.positions
        state.wall_s += took
        state.cpu_s += time.process_time() - cpu
        left = max(0.0, options.budget_s - state.wall_s)
        self._hooks.on_step(Report(state, step, step.positions / took, left))

    def _rate(self) -> float:
        """The learning rate's share: warm-up, then constant, then down to zero."""
        options, state = self._options, self.state
        up = min(1.0, (state.step + 1) / max(1, options.warmup_steps))
        left = 1.0 - state.wall_s / options.budget_s
        return up * min(1.0, max(0.0, left) / options.cooldown) if options.cooldown else up

    @torch.no_grad()
    def validate(self) -> dict[str, Any]:
        """A line of the curve: acceptance length by D and category."""
        state, trainee = self.state, self._trainee
        with self._averaged.swapped_in():
            right = trainee.right([e.to(self._options.device) for e in self._valid])
            answers = [(e.category, r) for e, r in zip(self._valid, right, strict=True)]
            by_depth = lengths(answers, trainee.depth)
            line: dict[str, Any] = {
                "step": state.step,
                "positions": state.positions,
                "cpu_s": round(state.cpu_s, 1),
                "wall_s": round(state.wall_s, 1),
                "acceptance_length": by_depth,
                "survival": survival(answers, trainee.depth),
            }
            found = by_depth[str(trainee.depth)]
            best = found > state.best
            state.best = max(state.best, found)
            with (self._folder / CURVE).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            self._hooks.on_validation(line, best)
        return line

    def _save(self) -> None:
        checkpoint.save(
            self._folder, self._trainee.module, self._averaged, self._optimizer, self.state
        )


def _optimizer(module: torch.nn.Module, options: LoopOptions) -> torch.optim.Optimizer:
    """Matrices decay, norms and biases do not. The norm before the head has to grow from START
    to where drafts are as sure as they are right, which at the matrices' rate takes a run."""
    matrices = {"params": [p for p in module.parameters() if p.dim() > 1], "factor": 1.0}
    vectors = {"params": [p for p in module.parameters() if p.dim() <= 1], "factor": VECTORS}
    matrices["weight_decay"], vectors["weight_decay"] = options.weight_decay, 0.0
    if options.muon:
        return BlockMuon(matrices, vectors, options.learning_rate)
    return torch.optim.AdamW(
        [matrices, vectors], lr=options.learning_rate, betas=(0.9, 0.95), fused=True
    )
