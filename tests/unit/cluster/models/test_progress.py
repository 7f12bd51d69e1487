from __future__ import annotations

import io

from rich.console import Console

from cluster.models.progress import TerminalProgress


def test_without_a_terminal_each_step_is_one_plain_line() -> None:
    out = io.StringIO()
    with TerminalProgress(Console(file=out)) as progress:
        progress.stage("Downloading")
        for done in range(0, 101, 10):
            progress.transfer(done, 100)
        progress.stage("Converting")
    assert out.getvalue() == "Downloading\nConverting\n"


def test_on_a_terminal_the_download_is_a_bar_that_ends_full() -> None:
    out = io.StringIO()
    with TerminalProgress(Console(file=out, force_terminal=True, width=120)) as progress:
        progress.stage("Downloading")
        progress.transfer(50_000_000, 100_000_000)
        progress.transfer(100_000_000, 100_000_000)
        progress.stage("Converting")
    text = out.getvalue()
    assert "100.0/100.0 MB" in text
    assert text.rstrip().endswith("\x1b[?25h")  # the cursor is given back
