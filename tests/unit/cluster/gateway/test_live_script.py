"""The live page's script, run by node over a document that is just enough of one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from importlib.resources import files
from typing import Any

import pytest

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")

DOCUMENT = """
const element = () => ({
  rows: [], textContent: "", title: "",
  replaceChildren() { this.rows = []; },
  insertRow() {
    const row = { cells: [], insertCell() { const c = {}; this.cells.push(c); return c; } };
    this.rows.push(row);
    return row;
  },
});
const found = {};
globalThis.document = { getElementById: (id) => (found[id] ??= element()) };
globalThis.fetch = async (url) => {
  if (url !== "live/state") throw new Error(`asked for ${url}`);
  if (ANSWER === null) throw new Error("down");
  return { ok: true, json: async () => ANSWER };
};
globalThis.setTimeout = (_, ms) => console.log(JSON.stringify(
  { ms, summary: found.summary.textContent, rows: found.cohorts.rows.map((row) => row.cells) }));
"""
STATE: dict[str, Any] = {
    "model": "tiny",
    "stale": False,
    "verifiers": 2,
    "running": 3,
    "waiting": 1,
    "reasons": {"gain": "the highest expected tokens per second"},
    "cohorts": [],
}
DRAFTING: dict[str, Any] = {
    "cohort": "<b>code</b>", "mechanism": "suffix", "placement": "remote", "depth": 5,
    "reason": "gain", "share": 0.75, "ratio": 0.9, "ratio_low": 0.8, "ratio_high": 0.99,
    "drafts": 10, "drafted": 40, "accepted": 20, "acceptance": 0.5, "acceptance_length": 3.0,
    "fallbacks": 7, "changes": 1,
}  # fmt: skip
UNKNOWN: dict[str, Any] = dict.fromkeys(DRAFTING) | {
    "cohort": "chat", "drafts": 0, "drafted": 0, "accepted": 0, "fallbacks": 0, "changes": 0
}  # fmt: skip
STANDARD: dict[str, Any] = UNKNOWN | {"reason": "slower", "share": 1.0, "depth": 0}


def shown(answer: dict[str, Any] | None) -> dict[str, Any]:
    """What the page shows when the server gives this answer."""
    page = files("cluster.gateway").joinpath("live.html").read_text("utf-8")
    (script,) = re.findall(r"<script>(.*)</script>", page, re.DOTALL)
    program = f"const ANSWER = {json.dumps(answer)};\n{DOCUMENT}\n{script}"
    assert NODE is not None
    done = subprocess.run(
        [NODE, "-"], input=program, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_cohort_is_a_row_and_its_text_is_text() -> None:
    page = shown(STATE | {"cohorts": [DRAFTING, UNKNOWN, STANDARD]})
    drafting, unknown, standard = page["rows"]
    assert [cell["textContent"] for cell in drafting] == [
        "<b>code</b>", "suffix", "remote", 5, "gain 75%", "50%", "3.00", "0.90 (0.80–0.99)", 7, 1
    ]  # fmt: skip
    assert drafting[4]["title"] == STATE["reasons"]["gain"]
    assert drafting[7]["className"] == "slower"
    assert [cell["textContent"] for cell in unknown] == ["chat", *["–"] * 7, 0, 0]
    assert [cell["textContent"] for cell in standard][1:5] == [
        "standard decode", "–", 0, "slower 100%"
    ]  # fmt: skip
    assert page["summary"] == "tiny: 2 verifiers, 3 running, 1 waiting"


def test_a_server_that_does_not_answer_is_asked_again() -> None:
    page = shown(None)
    assert page["ms"] == 2000
    assert page["summary"] == "no answer from the server (down)"
    stale = shown(STATE | {"stale": True})
    assert stale["summary"] == "tiny: the verifiers do not answer"
