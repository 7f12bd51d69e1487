"""`pilotfish train`: answers, training and export, with a bar, signals and errors of one line."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Self

import torch

from actors.drafters.errors import DrafterLoadError
from actors.engine.errors import EngineError
from actors.training import run as training
from actors.training.errors import TrainingError
from actors.training.export import export, layout_of
from actors.training.prompts import Encode
from actors.training.run import Data, RunOptions
from actors.training.trainee import Trainee
from cluster.cli.models import make_ready_by_name
from cluster.gateway.loading import load_tokenizer
from cluster.models.paths import cache_root
from cluster.models.resolve import resolve
from cluster.training import provenance
from cluster.training.options import run_options
from cluster.training.view import TrainingView

EXPORT = "export"


def run(given: Mapping[str, Any], command: str) -> int:
    """The exit code: 0 when done, 1 for what cannot be had, 130 when stopped."""
    name: str = given["target"]
    make_ready_by_name(name)
    target = resolve(name)
    with TrainingView() as view, _Stop() as stop:
        try:
            if not isinstance(target, Path):
                raise TrainingError(f"--target: {name} is no folder here; download it first")
            try:
                layout = layout_of(given["mechanism"], given["layout"])
            except TrainingError as error:
                raise TrainingError(f"--layout: {error}", "layout") from error
            if given["threads"]:
                torch.set_num_threads(given["threads"])
            options = run_options(given, str(target), str(cache_root() / "compiled"))
            if given["fresh"]:
                shutil.rmtree(options.output / options.mechanism, ignore_errors=True)
            encode = encoder(str(target))
            if given["record"]:
                with stop.at_once():
                    training.record(options, encode, view)
            torch.set_default_device(given["device"])  # the engine has placed its own
            data = training.load(options, encode)
            view.stage(
                f"{len(data.train)} answers, {sum(e.anchors for e in data.train)} positions; "
                f"{len(data.draft_ids)} tokens are {data.coverage:.1%} of the validation's"
            )
            writer = Writer(options, data, name, layout, command)
            training.fit(options, data, view, writer.write, lambda: stop.asked)
        except (TrainingError, DrafterLoadError, EngineError) as error:
            view.console.print(f"pilotfish: error: {error}", markup=False)
            return 1
        except KeyboardInterrupt:
            stop.asked = True
        finally:
            torch.set_default_device("cpu")
        if stop.asked:
            view.stage("stopped; the same command goes on from here")
            return 130
        view.stage(f"The drafter is in {writer.folder}")
        return 0


def encoder(target: str) -> Encode:
    """A user's message through the target's own chat template."""
    tokenizer = load_tokenizer(target)

    def encode(text: str) -> list[int]:
        messages = [{"role": "user", "content": text}]
        found: list[int] = tokenizer.apply_chat_template(messages, add_generation_prompt=True)[
            "input_ids"
        ]
        return found

    return encode


class Writer:
    """Writes the best drafter so far, with its provenance, over the last one."""

    def __init__(
        self, options: RunOptions, data: Data, target: str, layout: str, command: str
    ) -> None:
        self.folder = options.output / options.mechanism / EXPORT
        self._options, self._data = options, data
        self._target, self._layout, self._command = target, layout, command

    def write(self, trainee: Trainee, line: dict[str, Any]) -> None:
        parts, ids = self._data.parts, self._data.draft_ids
        export(
            trainee,
            self.folder,
            target_name=self._target,
            target_config=parts.config,
            head=parts.head[ids],
            draft_ids=ids,
            layout=self._layout,
        )
        facts = provenance.provenance(self._options, self._data, line, self._command, self._target)
        provenance.write(self.folder, facts)


class _Stop:
    """Ctrl-C and SIGTERM ask for an end; the second one insists."""

    def __init__(self) -> None:
        self.asked = False
        self._now = False
        self._before: list[tuple[int, Any]] = []

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Inside, a signal is a KeyboardInterrupt: what was recorded is kept anyway."""
        self._now = True
        try:
            yield
        finally:
            self._now = False

    def _signal(self, number: int, frame: FrameType | None) -> None:
        if self._now or self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before.append((number, signal.signal(number, self._signal)))
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)
