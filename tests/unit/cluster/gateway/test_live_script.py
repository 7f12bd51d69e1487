"""The live page's script, run by node over a document that is just enough of one."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.resources import files
from typing import Any

import pytest

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")

DOCUMENT = """
const element = () => ({
  rows: [], cells: [], textContent: "", className: "", hidden: false, dataset: {},
  insertRow() { this.rows.push(element()); return this.rows.at(-1); },
  deleteRow() { this.rows.pop(); },
  insertCell() { this.cells.push(element()); return this.cells.at(-1); },
  appendChild(cell) { this.cells.push(cell); },
});
const found = {};
globalThis.document = {
  getElementById: (id) => (found[id] ??= element()), createElement: () => element(),
};
globalThis.fetch = async (url) => {
  if (url !== "live/state") throw new Error(`asked for ${url}`);
  const answer = ANSWERS.shift();
  if (answer === null) throw new Error("down");
  return { ok: true, json: async () => answer };
};
const rowsOf = (id) => document.getElementById(id).rows.map((row) => ({
  kind: row.className, cells: row.cells.map((c) => [c.textContent, c.className, c.dataset.label]),
}));
const shown = (ms) => ({
  ms, state: found.state.textContent, kind: found.state.className,
  figures: found.figures.className, summary: found.summary?.textContent ?? "",
  cohorts: rowsOf("cohorts"), rounds: rowsOf("rounds"), drafters: rowsOf("drafters"),
  words: rowsOf("words"),
});
globalThis.setTimeout = (again, ms) => {
  if (ANSWERS.length) setImmediate(again); else console.log(JSON.stringify(shown(ms)));
};
"""
GAIN: dict[str, Any] = {
    "mechanism": "suffix", "placement": "remote", "depth": 5, "reason": "gain", "share": 0.75
}  # fmt: skip
STANDARD: dict[str, Any] = {
    "mechanism": None, "placement": None, "depth": 0, "reason": "slower", "share": 0.25
}  # fmt: skip
DRAFTING: dict[str, Any] = {
    "cohort": "<b>code</b>", "decisions": [GAIN, STANDARD], "decided_s": 2.0,
    "ratio": 0.9, "ratio_low": 0.8, "ratio_high": 0.99,
    "drafts": 10, "drafted": 4000, "accepted": 2000, "acceptance": 0.5, "acceptance_length": 3.0,
    "fallbacks": {"late": 5, "fault": 2}, "changes": 1,
}  # fmt: skip
UNKNOWN: dict[str, Any] = {
    "cohort": "chat", "decisions": [], "decided_s": None,
    "ratio": None, "ratio_low": None, "ratio_high": None,
    "drafts": 0, "drafted": 0, "accepted": 0, "acceptance": None, "acceptance_length": None,
    "fallbacks": {}, "changes": 0,
}  # fmt: skip
UP: dict[str, Any] = {
    "drafter": "d0", "mechanism": "suffix", "up": 2, "links": 2, "troubles": [],
    "used": 9, "late": 2, "stale": 1, "draft_ms": 2.04, "wire_ms": None,
}  # fmt: skip
STATE: dict[str, Any] = {
    "model": "tiny", "age_s": 0.0, "policy": True, "speculates": True,
    "verifiers": 2, "running": 3, "waiting": 1, "kv_usage": 0.256,
    "words": {"gain": "it pays", "slower": "it does not", "late": "not in time", "off": "never"},
    "cohorts": [], "rounds": {}, "drafters": [UP],
}  # fmt: skip


def shown(*answers: dict[str, Any] | None) -> dict[str, Any]:
    """What the page shows after these answers of the server, one a look."""
    script = files("cluster.gateway").joinpath("live.js").read_text("utf-8")
    program = f"const ANSWERS = {json.dumps(answers)};\n{DOCUMENT}\n{script}"
    assert NODE is not None
    done = subprocess.run(
        [NODE, "-"], input=program, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def texts(row: dict[str, Any]) -> list[str]:
    return [text for text, _, _ in row["cells"]]


def test_a_cohort_is_a_row_with_all_its_reasons_and_its_text_is_text() -> None:
    page = shown(STATE | {"cohorts": [DRAFTING, UNKNOWN]})
    drafting, unknown = page["cohorts"]
    assert texts(drafting) == [
        "<b>code</b>", "suffix", "remote", "5", "gain 75%\nslower 25%: standard decode", "now",
        "0.90×\n0.80 to 0.99", "50%\n2,000 of 4,000", "3.00", "7\nlate 5\nfault 2", "1",
    ]  # fmt: skip
    assert drafting["cells"][6][1].split() == ["lines", "bad"]
    assert texts(unknown) == ["chat", *["–"] * 8, "0", "0"]
    assert [label for _, _, label in drafting["cells"]][:2] == ["cohort", "mechanism"]


def test_the_words_that_are_used_are_explained_and_no_others() -> None:
    page = shown(STATE | {"cohorts": [DRAFTING]})
    assert [texts(row) for row in page["words"]] == [
        ["gain", "it pays"], ["late", "not in time"], ["slower", "it does not"]
    ]  # fmt: skip


def test_rounds_are_shown_by_reason_and_those_too_are_explained() -> None:
    page = shown(STATE | {"rounds": {"drafted": 1500, "gain": 400, "late": 100}})
    assert [texts(row) for row in page["rounds"]] == [
        ["drafted", "1,500", "75%"], ["gain", "400", "20%"], ["late", "100", "5%"]
    ]  # fmt: skip
    assert [texts(row)[0] for row in page["words"]] == ["gain", "late"]


def test_what_was_decided_long_ago_does_not_look_like_now() -> None:
    old, before = DRAFTING | {"decided_s": 600.0}, DRAFTING | {"decided_s": None}
    rows = shown(STATE | {"cohorts": [DRAFTING, old, before, UNKNOWN]})["cohorts"]
    assert [row["kind"] for row in rows] == ["", "idle", "idle", ""]
    assert [texts(row)[5] for row in rows] == ["now", "10 min ago", "earlier", "–"]


def test_a_configured_depth_has_no_share_and_no_age() -> None:
    fixed = DRAFTING | {"decisions": [GAIN | {"reason": "configured", "share": None}]}
    (row,) = shown(STATE | {"cohorts": [fixed | {"decided_s": None}]})["cohorts"]
    assert row["kind"] == ""
    assert texts(row)[1:6] == ["suffix", "remote", "5", "configured", "–"]


def test_a_drafter_that_is_not_up_says_why() -> None:
    one = UP | {"up": 1, "troubles": ["refused: <i>vocabulary</i>"], "wire_ms": 0.31}
    none = UP | {"up": 0, "troubles": ["isolated"]}
    page = shown(STATE | {"drafters": [UP, one, none]})
    assert [texts(row)[2] for row in page["drafters"]] == [
        "up", "up at 1 of 2 verifiers\nrefused: <i>vocabulary</i>", "isolated"
    ]  # fmt: skip
    assert texts(page["drafters"][1])[3:] == ["9", "2", "1", "2.0", "0.3"]
    assert page["state"] == "live"
    alone = shown(STATE | {"drafters": [none]})
    assert (alone["state"], alone["kind"]) == (
        "live; no drafter is up, so all is standard decode", "warn"
    )  # fmt: skip
    assert shown(STATE | {"drafters": [], "speculates": False})["state"] == "live"


def test_rows_that_are_gone_leave_the_page() -> None:
    page = shown(STATE | {"cohorts": [DRAFTING, UNKNOWN]}, STATE | {"cohorts": [UNKNOWN]})
    assert [texts(row)[0] for row in page["cohorts"]] == ["chat"]


def test_a_server_that_does_not_answer_is_asked_again_and_its_figures_fade() -> None:
    page = shown(STATE | {"cohorts": [DRAFTING]}, None)
    assert page["ms"] == 2000
    assert page["state"] == "no answer from the server (down)"
    assert (page["kind"], page["figures"]) == ("lost", "lost")
    assert len(page["cohorts"]) == 1
    engines = "2 verifiers · 3 running · 1 waiting · 26% of the KV cache in use"
    assert page["summary"].startswith(f"{engines} · as of ")
    back = shown(None, STATE)
    assert (back["state"], back["figures"]) == ("live", "")


def test_figures_of_verifiers_that_do_not_answer_are_never_live() -> None:
    page = shown(STATE | {"age_s": 600.0})
    assert (page["state"], page["figures"]) == ("the verifiers do not answer", "lost")
    now = shown(STATE)
    assert " · as of " in page["summary"]
    assert page["summary"] != now["summary"]  # ten minutes apart
    never = dict.fromkeys(("age_s", "verifiers", "running", "waiting", "kv_usage"))
    assert shown(STATE | never)["summary"] == ""
    assert shown(STATE | {"verifiers": 0})["state"] == "no verifier is there"
    assert "the policy does not answer" in shown(STATE | {"policy": False})["state"]
