"use strict";
// Asks for the state every other second and shows it. What the server says is text, never markup.

const EVERY_MS = 2000;
const PATIENCE_MS = 5000;
const FRESH_S = 3; // engines that were heard so long ago are heard now
const DECIDING_S = 10; // a cohort's decisions are of now
const NOTHING = "–";

const $ = (id) => document.getElementById(id);
const number = (value, digits = 0) =>
  value === null ? NOTHING : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const percent = (share) => {
  if (share === null) return NOTHING;
  return share > 0 && share < 0.005 ? "<1%" : `${number(100 * share)}%`;
};
const lines = (first, rest) => ({ text: [first, ...rest].join("\n"), kind: "lines" });
const many = (count, what) => `${number(count)} ${what}${count === 1 ? "" : "s"}`;

function ago(seconds) {
  if (seconds < 120) return `${number(seconds)} s`;
  if (seconds < 7200) return `${number(seconds / 60)} min`;
  return `${number(seconds / 3600)} h`;
}

// ---- cohorts

const first = (of) => of.decisions[0] ?? null;
const chosen = (of) => of.decisions.length > 0 && first(of).share !== null; // not merely configured
const idle = (of) => chosen(of) && (of.decided_s === null || of.decided_s > DECIDING_S);

function mechanism(decision) {
  if (decision === null) return NOTHING;
  return decision.mechanism ?? (decision.depth ? NOTHING : "standard decode");
}

function other(decision) {
  const where = decision.mechanism === null
    ? mechanism(decision)
    : `${decision.mechanism} ${decision.placement ?? ""} D ${decision.depth}`;
  return `${decision.reason} ${percent(decision.share)}: ${where}`;
}

function reasons(of) {
  if (!of.decisions.length) return { text: NOTHING };
  const [{ reason, share }, ...rest] = of.decisions;
  const first = share === null ? reason : `${reason} ${percent(share)}`;
  return { text: [first, ...rest.map(other)].join("\n"), kind: "lines reasons" };
}

function decided(of) {
  if (!chosen(of)) return NOTHING;
  if (!idle(of)) return "now";
  return of.decided_s === null ? "earlier" : `${ago(of.decided_s)} ago`;
}

function ratio(of) {
  if (of.ratio === null) return { text: NOTHING };
  const kind = of.ratio_high < 1 ? "bad" : of.ratio_low > 1 ? "good" : "";
  const interval = `${number(of.ratio_low, 2)} to ${number(of.ratio_high, 2)}`;
  return { text: `${number(of.ratio, 2)}×\n${interval}`, kind: `lines ${kind}` };
}

function fallbacks(of) {
  const counts = Object.entries(of.fallbacks);
  const all = counts.reduce((sum, [, rounds]) => sum + rounds, 0);
  return lines(number(all), counts.map(([reason, rounds]) => `${reason} ${number(rounds)}`));
}

const COHORTS = [
  ["cohort", "name", (of) => of.cohort],
  ["mechanism", "text", (of) => mechanism(first(of))],
  ["placement", "text", (of) => first(of)?.placement ?? NOTHING],
  ["D (tokens)", "", (of) => number(first(of)?.depth ?? null)],
  ["reason", "text", reasons],
  ["decided", "age", decided],
  ["ratio to standard decode, 95%", "", ratio],
  ["acceptance", "", (of) => lines(percent(of.acceptance), of.drafted ? [`${number(of.accepted)} of ${number(of.drafted)}`] : [])],
  ["tokens a round", "", (of) => number(of.acceptance_length, 2)],
  ["fallbacks (rounds)", "", fallbacks],
  ["changes", "", (of) => number(of.changes)],
];

// ---- rounds

function rounds(state) {
  const counts = Object.entries(state.rounds);
  const all = counts.reduce((sum, [, count]) => sum + count, 0);
  return counts.map(([reason, count]) => ({ reason, count, share: count / all }));
}

const ROUNDS = [
  ["reason", "name", (of) => of.reason],
  ["rounds", "", (of) => number(of.count)],
  ["share", "", (of) => percent(of.share)],
];

// ---- drafters

function standing(of) {
  if (of.up === of.links) return { text: "up", kind: "good" };
  const partly = of.up ? [`up at ${of.up} of ${many(of.links, "verifier")}`] : [];
  return { text: [...partly, ...of.troubles].join("\n"), kind: "lines bad" };
}

const DRAFTERS = [
  ["drafter", "name", (of) => of.drafter],
  ["mechanism", "text", (of) => of.mechanism],
  ["state", "text", standing],
  ["blocks used", "", (of) => number(of.used)],
  ["late", "", (of) => number(of.late)],
  ["stale", "", (of) => number(of.stale)],
  ["drafting (ms a block)", "", (of) => number(of.draft_ms, 1)],
  ["wire (ms a block)", "", (of) => number(of.wire_ms, 1)],
];

// ---- showing

// Cells are kept and only what differs is written, so that a selection or a scroll survives.
function put(cell, text, kind, label) {
  if (cell.textContent !== text) cell.textContent = text;
  if (cell.className !== kind) cell.className = kind;
  if (label !== undefined) cell.dataset.label = label;
}

function fill(body, rows) {
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach(({ cells, kind = "" }, at) => {
    const row = body.rows[at] ?? body.insertRow();
    if (row.className !== kind) row.className = kind;
    cells.forEach(([text, side, label], k) => put(row.cells[k] ?? row.insertCell(), text, side, label));
  });
}

function table(name, columns, shown, kind = () => "") {
  if (!$(`${name}-head`).rows.length) {
    const row = $(`${name}-head`).insertRow();
    for (const [head, side] of columns) {
      const cell = document.createElement("th");
      cell.scope = "col";
      put(cell, head, side);
      row.appendChild(cell);
    }
  }
  fill($(name), shown.map((of) => ({
    kind: kind(of),
    cells: columns.map(([head, side, show]) => {
      const made = show(of);
      return typeof made === "string"
        ? [made, side, head]
        : [made.text, `${side} ${made.kind ?? ""}`.trim(), head];
    }),
  })));
  $(`no-${name}`).hidden = shown.length > 0;
}

function words(state) {
  const used = new Set([
    ...Object.keys(state.rounds),
    ...state.cohorts.flatMap((of) => of.decisions.map((decision) => decision.reason)),
    ...state.cohorts.flatMap((of) => Object.keys(of.fallbacks)),
  ]);
  const known = [...used].filter((word) => word in state.words).sort();
  fill($("words"), known.map((word) => ({ cells: [[word, ""], [state.words[word], ""]] })));
  $("of-words").hidden = known.length === 0;
}

function says(text, kind) {
  if ($("state").textContent !== text) $("state").textContent = text;
  $("state").className = kind;
  $("figures").className = kind === "lost" ? "lost" : "";
}

const heard = (state) => state.age_s !== null && state.age_s <= FRESH_S;

function standingOfAll(state) {
  if (!heard(state)) return ["the verifiers do not answer", "lost"];
  if (!state.verifiers) return ["no verifier is there", "lost"];
  if (!state.policy) return ["live; the policy does not answer, and verifiers go on by what it last said", "warn"];
  if (state.speculates && !state.drafters.some((of) => of.up)) {
    return ["live; no drafter is up, so all is standard decode", "warn"];
  }
  return ["live", "live"];
}

function summary(state) {
  const engines = state.verifiers === null ? [] : [
    many(state.verifiers, "verifier"),
    `${number(state.running)} running`,
    `${number(state.waiting)} waiting`,
    `${percent(state.kv_usage)} of the KV cache in use`,
  ];
  if (state.age_s === null) return "";
  const asOf = new Date(Date.now() - 1000 * state.age_s).toLocaleTimeString();
  return [...engines, `as of ${asOf}`].join(" · ");
}

function show(state) {
  $("model").textContent = state.model;
  document.title = `${state.model}: Pilotfish, live`;
  table("cohorts", COHORTS, state.cohorts, (of) => (idle(of) ? "idle" : ""));
  table("rounds", ROUNDS, rounds(state));
  table("drafters", DRAFTERS, state.drafters);
  words(state);
  says(...standingOfAll(state));
  $("summary").textContent = summary(state);
}

async function look() {
  try {
    const answer = await fetch("live/state", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    show(await answer.json());
  } catch (error) {
    says(`no answer from the server (${error.message})`, "lost");
  }
  setTimeout(look, EVERY_MS);
}

look();
