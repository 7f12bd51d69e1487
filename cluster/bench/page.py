"""One HTML file that holds everything: tables, pictures, and how to run it again."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape

from cluster.bench.record import Record
from cluster.bench.table import notes, tables

_STYLE = """
:root {
  color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif;
  --paper: #fff; --ink: #1d1f21; --dim: #5c6166; --line: #d9dce0; --bad: #b3261e;
}
@media (prefers-color-scheme: dark) {
  :root { --paper: #16181a; --ink: #e6e7e8; --dim: #a3a8ad; --line: #3a3e42; --bad: #ff8a80; }
}
body {
  max-width: 70rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere;
  background: var(--paper); color: var(--ink);
}
h1 { font-size: 1.4rem; }
h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
p { margin: .4rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td {
  padding: .2rem .7rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line);
}
th { border-bottom-color: var(--dim); }
th:nth-child(2), td:nth-child(2), th:nth-child(3), td:nth-child(3) { text-align: left; }
img { display: block; width: 67.5rem; max-width: 100%; min-width: 40rem; background: white; }
.scroll { overflow-x: auto; }
dl { display: grid; grid-template-columns: max-content auto; gap: .1rem 1.2rem; margin: 0; }
dt { font-weight: 600; }
dd { margin: 0; }
code { background: #8882; padding: .1rem .3rem; border-radius: 3px; }
.refused { color: var(--bad); font-weight: 600; }
"""

# A page that came by mail runs nothing and loads nothing, whatever the names in it are.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

_CAPTIONS = {
    "pareto": "Throughput against interactivity; no point beats those on the dashed front in both",
    "ratios": "Ratios to standard decode of the same run, with 95% intervals",
    "inter_token_latency": "Inter-token latency as a client sees it",
    "acceptance_by_position": "Acceptance by position in the block",
    "acceptance_by_category": "Acceptance length by category",
    "time_split": "Where a step's time goes; a remote drafter's, only while it is waited for",
}


_WORDS = {
    "T": "temperature",
    "load": "clients that each wait for their answer, or arrivals a second",
    "leg": "mechanism, most drafted tokens (D) and placement; standard decode drafts nothing",
    "ratio": "to standard decode on the same prompts in the same run, all tokens over all seconds; "
    "the medians beside it need not have the same ratio",
    "AL": "acceptance length: tokens a forward pass writes for a request, 1 without drafts",
    "same": "answers that are equal to standard decode's, of those compared",
    "TTFT": "time to first token",
    "ITL": "inter-token latency, between one token and the next",
    "TPOT": "time per output token, a request's mean after its first token",
    "step": "one round of the engine: draft and wire while they are waited for, verify (what the "
    "target computes), sample, and the rest",
}


def page(record: Record, pictures: Mapping[str, bytes]) -> str:
    """A page that needs no other file and no network."""
    title = f"Pilotfish bench, {record.date}"
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        f'<meta http-equiv="content-security-policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<link rel="icon" href="data:,">',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        f"<p><code>{escape(record.command)}</code></p>",
        *(_note(line) for line in notes(record)),
    ]
    for name, png in pictures.items():
        parts.append(_picture(_CAPTIONS.get(name, name), png))
    for heading, heads, rows in tables(record):
        parts.append(_table(heading, heads, rows))
    parts.append(_words())
    versions = ", ".join(f"{name} {number}" for name, number in record.versions.items())
    parts += [f"<p>{escape(versions)}</p>", "</body></html>"]
    return "\n".join(parts) + "\n"


def _note(line: str) -> str:
    loud = line.startswith(("REFUSED", "REPEATED"))
    return f"<p{' class=refused' if loud else ''}>{escape(line)}</p>"


def _words() -> str:
    rows = "\n".join(
        f"<dt>{escape(word)}</dt><dd>{escape(is_)}</dd>" for word, is_ in _WORDS.items()
    )
    return f"<h2>Words</h2>\n<dl>\n{rows}\n</dl>"


def _picture(caption: str, png: bytes) -> str:
    data = base64.b64encode(png).decode()
    text = escape(caption)
    image = f'<img alt="{text}" src="data:image/png;base64,{data}">'
    return f'<h2>{text}</h2>\n<div class="scroll">{image}</div>'


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in heads)
    body = "\n".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return (
        f'<h2>{escape(title)}</h2>\n<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )
