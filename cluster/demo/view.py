"""What the demo shows while it runs: the answer as it streams, accepted drafts in colour."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from cluster.demo.dataset import Prompt
from cluster.demo.legs import LegResult
from pilotfish import Delta

ACCEPTED = "bold green"
OWN = "default"


class StreamView:
    """Prints deltas of one answer; tokens that were drafted and accepted come in colour."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, delta: Delta) -> None:
        self._console.print(coloured(delta), end="", soft_wrap=True)


def coloured(delta: Delta) -> Text:
    """The delta's text: its first `accepted` tokens were drafted. Without token texts that add
    up to it (half a character, a stop string), it stays plain: the text is never altered."""
    pieces = [score.text for score in delta.logprobs]
    if "".join(pieces) != delta.text:
        return Text(delta.text, style=OWN)
    text = Text()
    for i, piece in enumerate(pieces):
        text.append(piece, style=ACCEPTED if i < delta.accepted else OWN)
    return text


def heading(console: Console, number: int, total: int, prompt: Prompt) -> None:
    console.rule(f"[bold]{number}/{total}[/bold] {prompt.category}", align="left")
    first = prompt.text.strip().splitlines()[0]
    console.print(Text(first if len(first) < 90 else first[:87] + "...", style="dim"))


def footer(console: Console, standard: LegResult, remote: LegResult, identical: bool) -> None:
    length = remote.decode_tokens / remote.decode_rounds if remote.decode_rounds else 1.0
    console.print(
        f"\n[dim]standard {standard.tokens_per_s:.1f} tok/s, remote {remote.tokens_per_s:.1f} "
        f"tok/s, acceptance length {length:.2f}, "
        f"{'identical text' if identical else 'texts differ'}[/dim]\n"
    )
