"""The live page as one document: markup, style and script are files of their own, and one answer.

Nothing is loaded, from here or elsewhere. The policy names the digests of the page's own style and
script, so that no other one would run or apply, however it came into the document.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Page:
    """policy: the Content-Security-Policy that goes with it."""

    html: str
    policy: str


def load_page() -> Page:
    """Of the files beside this one."""
    folder = files("cluster.gateway")
    markup, style, script = (
        folder.joinpath(f"live.{kind}").read_text("utf-8") for kind in ("html", "css", "js")
    )
    html = markup.replace("/* live.css */", style).replace("/* live.js */", script)
    policy = "; ".join(
        (
            "default-src 'none'",
            f"style-src {_source(style)}",
            f"script-src {_source(script)}",
            "connect-src 'self'",
            "img-src data:",  # the empty icon, in place of /favicon.ico
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )
    return Page(html, policy)


def _source(text: str) -> str:
    """Stands between its tags exactly so, not a blank more."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
