"""One HTML file that holds everything: tables, pictures, and how to run it again."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape

from cluster.bench.record import Record
from cluster.bench.table import notes, tables

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: .5rem 0 2rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #8884; }
th:nth-child(2), td:nth-child(2), th:nth-child(3), td:nth-child(3) { text-align: left; }
img { max-width: 100%; background: white; border-radius: 4px; }
.scroll { overflow-x: auto; }
code { background: #8882; padding: .1rem .3rem; border-radius: 3px; }
.refused { color: #c00; font-weight: 600; }
"""

_CAPTIONS = {
    "pareto": "Throughput against interactivity; no point beats those on the dashed front in both",
    "ratios": "Ratios to standard decode of the same run, with 95% intervals",
    "inter_token_latency": "Inter-token latency as a client sees it",
    "acceptance_by_position": "Acceptance by position in the block",
    "acceptance_by_category": "Acceptance length by category",
    "time_split": "Where a step's time goes; a remote drafter's, only while it is waited for",
}


def page(record: Record, pictures: Mapping[str, bytes]) -> str:
    """A page that needs no other file and no network."""
    title = f"Pilotfish bench, {record.date}"
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        f"<p><code>{escape(record.command)}</code></p>",
        *(_note(line) for line in notes(record)),
    ]
    for name, png in pictures.items():
        parts.append(_picture(_CAPTIONS.get(name, name), png))
    for heading, heads, rows in tables(record):
        parts.append(_table(heading, heads, rows))
    versions = ", ".join(f"{name} {number}" for name, number in record.versions.items())
    parts += [f"<p>{escape(versions)}</p>", "</body></html>"]
    return "\n".join(parts) + "\n"


def _note(line: str) -> str:
    loud = line.startswith(("REFUSED", "REPEATED"))
    return f"<p{' class=refused' if loud else ''}>{escape(line)}</p>"


def _picture(caption: str, png: bytes) -> str:
    data = base64.b64encode(png).decode()
    text = escape(caption)
    return f'<h2>{text}</h2>\n<img alt="{text}" src="data:image/png;base64,{data}">'


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
    body = "\n".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return (
        f'<h2>{escape(title)}</h2>\n<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )
