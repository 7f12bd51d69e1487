"""A browser without a window, driven by the DevTools protocol: what a page shows, what its console
complains of, and what it asks the network for."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.integration.processes import end_group, eventually

NAMES = ("chromium", "chromium-browser", "google-chrome")
TIMEOUT_S = 20.0
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-extensions", "--disable-background-networking",
    "--disable-component-update", "--remote-debugging-port=0",
)  # fmt: skip


def find() -> str | None:
    """The first of `NAMES` on PATH."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One tab. complaints: all that its console says; asked: every address it asked for."""

    def __init__(self, socket: ClientConnection) -> None:
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self._socket = socket
        self._calls = 0
        self._session: dict[str, str] = {}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def open(self, url: str) -> None:
        """Returns before it is loaded."""
        self.call("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """Of a JavaScript expression, as plain data."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def text(self, selector: str) -> list[str]:
        """Of every element that fits, as it is rendered."""
        found: list[str] = self.value(
            f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.innerText)"
        )
        return found

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to one command; what the page says meanwhile is noted."""
        self._calls += 1
        command = {"id": self._calls, "method": method, "params": params, **self._session}
        self._socket.send(json.dumps(command))
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            said = json.loads(self._socket.recv(timeout=deadline - time.monotonic()))
            if said.get("id") == self._calls:
                assert "error" not in said, said["error"]
                result: dict[str, Any] = said["result"]
                return result
            self._note(said.get("method", ""), said.get("params", {}))

    def _note(self, event: str, params: dict[str, Any]) -> None:
        if event == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif event == "Log.entryAdded":
            self.complaints.append(json.dumps(params["entry"]))
        elif event == "Runtime.consoleAPICalled":
            self.complaints.append(json.dumps(params["args"]))


@contextmanager
def started(program: str, profile: Path) -> Iterator[Page]:
    """A page of a browser of its own, which ends with the block. profile: an empty folder."""
    process = subprocess.Popen(
        [program, *_FLAGS, f"--user-data-dir={profile}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        port, path = eventually(lambda: _door(profile), TIMEOUT_S)
        with connect(f"ws://127.0.0.1:{port}{path}", max_size=None, proxy=None) as socket:
            yield Page(socket)
    finally:
        end_group(process, signal.SIGTERM, 5.0)


def _door(profile: Path) -> tuple[str, str] | None:
    """(port, path), once the browser has written both."""
    try:
        written = (profile / "DevToolsActivePort").read_text().split()
    except FileNotFoundError:
        return None
    return (written[0], written[1]) if len(written) == 2 else None
