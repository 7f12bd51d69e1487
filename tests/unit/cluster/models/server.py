"""A small file server with Range support and switchable faults, on the loopback."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Served:
    """What the server sends, how it misbehaves, and what it was asked for.

    cut_after: bytes after which a connection is dropped, one entry per answer.
    statuses: answers to give first instead of the file.
    """

    content: bytes
    ranges: bool = True
    cut_after: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    asked: list[str | None] = field(default_factory=list)
    sent: int = 0
    url: str = ""


def _handler(served: Served) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            served.asked.append(wanted)
            if served.statuses:
                self.send_error(served.statuses.pop(0))
                return
            start = 0
            if wanted and served.ranges:
                start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])
                if start >= len(served.content):
                    self.send_error(416)
                    return
                self.send_response(206)
                last = len(served.content) - 1
                self.send_header("Content-Range", f"bytes {start}-{last}/{last + 1}")
            else:
                self.send_response(200)
            body = served.content[start:]
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            cut = served.cut_after.pop(0) if served.cut_after else len(body)
            self.wfile.write(body[:cut])
            served.sent += len(body[:cut])
            if cut < len(body):
                self.close_connection = True

        def log_message(self, *arguments: object) -> None:
            pass

    return Handler


@contextmanager
def serving(content: bytes, **faults: object) -> Iterator[Served]:
    served = Served(content, **faults)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(served))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_port}/files/tiny-1.0-py3-none-any.whl"
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
