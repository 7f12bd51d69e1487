"""What a pull reports while it works, and the terminal's view of it."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)


class PullProgress(Protocol):
    def stage(self, text: str) -> None:
        """A new step begins."""
        ...

    def transfer(self, done: int, total: int) -> None:
        """Bytes on disk of the current download."""
        ...


class Silent:
    """For workers and tests."""

    def stage(self, text: str) -> None:
        pass

    def transfer(self, done: int, total: int) -> None:
        pass


class TerminalProgress:
    """A bar while bytes arrive, a spinner with the elapsed time for every other step.

    On something that is not a terminal each step is one line.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._display: Progress | None = None

    def __enter__(self) -> TerminalProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def stage(self, text: str) -> None:
        self._end()
        if not self._console.is_terminal:
            self._console.print(text, highlight=False)
            return
        self._begin(text, SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())

    def transfer(self, done: int, total: int) -> None:
        if not self._console.is_terminal:
            return
        display = self._display
        if display is None or display.tasks[0].total is None:
            text = display.tasks[0].description if display is not None else "Downloading"
            self._end()
            columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn())
            display = self._begin(text, TextColumn("{task.description}"), *columns, total=total)
        display.update(display.tasks[0].id, completed=done, total=total)

    def _begin(self, text: str, *columns: object, total: int | None = None) -> Progress:
        display = Progress(*columns, console=self._console)  # type: ignore[arg-type]
        display.add_task(text, total=total)
        display.start()
        self._display = display
        return display

    def _end(self) -> None:
        if self._display is None:
            return
        for task in self._display.tasks:
            if task.total is None:
                self._display.update(task.id, total=1, completed=1)
        self._display.stop()
        self._display = None
