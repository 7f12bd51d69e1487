"""`pilotfish chat`: a conversation in the terminal with a running server."""

from __future__ import annotations

from collections.abc import Callable

import httpx
from rich.console import Console

from cluster.cli.chat_client import TIMEOUT, ChatClient, ChatError, Message, Summary

HELP = "/clear forgets the conversation, /exit ends it, Ctrl-C stops an answer"


def run(
    url: str,
    model: str | None,
    system: str | None,
    *,
    temperature: float | None = None,
    max_tokens: int | None = None,
    api_key: str | None = None,
) -> int:
    """Talk until /exit, Ctrl-D, or Ctrl-C at the prompt. The exit code: 1 when the server
    cannot be used at all."""
    console = Console(highlight=False, soft_wrap=True)
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    sampling = {"temperature": temperature, "max_tokens": max_tokens}
    try:
        with httpx.Client(base_url=url.rstrip("/"), headers=headers, timeout=TIMEOUT) as http:
            client = ChatClient(http)
            name = model or client.default_model()
            console.print(f"[bold]{name}[/bold] at {url}. {HELP}.")
            chat = Conversation(client, name, system, console, sampling)
            chat.talk(lambda: console.input("\n[bold cyan]>[/bold cyan] "))
    except (ChatError, httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        stderr = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)
        stderr.print(f"pilotfish: error: {error}")
        return 1
    return 0


class Conversation:
    """The messages so far. An answer that failed leaves no trace; one that was stopped stays,
    as far as it came."""

    def __init__(
        self,
        client: ChatClient,
        model: str,
        system: str | None,
        console: Console,
        sampling: dict[str, float | int | None] | None = None,
    ) -> None:
        self._client = client
        self._model = model
        self._system = system
        self._console = console
        self._sampling = sampling or {}
        self.messages: list[Message] = []
        self.clear()

    def clear(self) -> None:
        self.messages = [{"role": "system", "content": self._system}] if self._system else []

    def talk(self, read: Callable[[], str]) -> None:
        """Read and answer until the reader ends."""
        while True:
            try:
                text = read().strip()
            except (EOFError, KeyboardInterrupt):
                return
            if text in ("/exit", "/quit"):
                return
            if text == "/clear":
                self.clear()
                self._console.print("cleared", style="dim")
            elif text.startswith("/"):
                self._console.print(HELP, style="dim")
            elif text:
                self.answer(text)

    def answer(self, text: str) -> None:
        """One exchange; errors are shown and the conversation goes on."""
        self.messages.append({"role": "user", "content": text})
        said: list[str] = []

        def show(piece: str) -> None:
            said.append(piece)
            self._console.print(piece, end="", markup=False)

        try:
            summary = self._client.ask(self._model, self.messages, show, **self._sampling)
        except KeyboardInterrupt:
            self._console.print("\nstopped", style="dim")
        except ChatError as error:
            self.messages.pop()
            self._console.print(f"\n{error}", style="red", markup=False)
            return
        else:
            self._console.print("\n" + figures(summary), style="dim")
        if said:
            self.messages.append({"role": "assistant", "content": "".join(said)})
        else:
            self.messages.pop()


def figures(summary: Summary) -> str:
    """The line under an answer."""
    parts = [f"{summary.tokens} tokens", f"first after {summary.first_s:.2f} s"]
    if summary.tokens_per_s:
        parts.append(f"{summary.tokens_per_s:.1f} tokens/s")
    if summary.acceptance_length is not None:
        parts.append(f"acceptance length {summary.acceptance_length:.2f}")
    if summary.finish == "length":
        parts.append("cut at the token limit")
    return ", ".join(parts)
