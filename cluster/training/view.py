"""What a run shows while it works: a bar with rates and the time that is left."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from actors.training.answering import AnswerProgress
from actors.training.loop import Report

LINE_S = 30.0
"""On something that is not a terminal a line comes so often."""


class TrainingView:
    """Implements `actors.training.run.View`. Use as a context."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self._progress: Progress | None = None
        self._began = time.monotonic()
        self._said = 0.0

    def __enter__(self) -> TrainingView:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def stage(self, text: str) -> None:
        self._end()
        self._began = time.monotonic()
        self.console.print(text, markup=False)

    def answering(self, progress: AnswerProgress, total: int) -> None:
        rate = progress.tokens / max(1e-9, time.monotonic() - self._began)
        failed = f", {progress.failed} failed" if progress.failed else ""
        self._show(
            f"{progress.prompts}/{total} prompts, {rate:.0f} tok/s{failed}", progress.prompts, total
        )

    def step(self, report: Report) -> None:
        state = report.state
        figures = ", ".join(f"{name} {value:.3f}" for name, value in report.step.figures.items())
        text = f"step {state.step}, {report.rate:.0f} positions/s, {figures}"
        total = state.wall_s + report.left_s
        self._show(text, state.wall_s, total)

    def validated(self, line: dict[str, Any]) -> None:
        depths = {k: v for k, v in line["acceptance_length"].items() if k.isdecimal()}
        shown = ", ".join(f"D={k} {v:.3f}" for k, v in depths.items())
        self.console.print(
            f"{line['positions']:>9} positions, {line['cpu_s']:>6.0f} CPU s: acceptance length "
            f"{shown}",
            markup=False,
        )

    def _show(self, text: str, done: float, total: float) -> None:
        if not self.console.is_terminal:
            now = time.monotonic()
            if now - self._said >= LINE_S:
                self._said = now
                self.console.print(f"{100 * done / max(total, 1e-9):3.0f}%  {text}", markup=False)
            return
        if self._progress is None:
            self._progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TaskProgressColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=self.console,
            )
            self._progress.add_task(text)
            self._progress.start()
        task = self._progress.tasks[0].id
        self._progress.update(task, description=text, completed=done, total=total)

    def _end(self) -> None:
        if self._progress is not None:
            self._progress.stop()
        self._progress = None
