// The map of blocks: /slots, asked again and again, as a table and as squares.

import { ask, keepKey } from "./server.js";

const PAUSE = 500; // ms between an answer and the next question
const MOST_SQUARES = 8192;
const HUES = 8; // of style.css
const at = (id) => document.getElementById(id);

const numbers = new Map(); // request and choices → the number of the sequence, for as long as it is there
let next = 1;
let timer = 0;
let paused = false;

async function look() {
  clearTimeout(timer);
  try {
    draw(await (await ask("slots")).json());
    at("status").textContent = "";
  } catch (error) {
    at("status").textContent = error.message;
    if (error.status === 401) return at("key").focus();
  }
  if (!paused && !document.hidden) timer = setTimeout(look, PAUSE);
}

function draw(slots) {
  const sequences = numbered(slots.sequences);
  const { blocks, others } = slots;
  const mine = new Map(); // block → the sequences that hold it
  for (const each of sequences) {
    for (const block of each.blocks) mine.set(block, [...(mine.get(block) ?? []), each]);
  }
  const running = count(sequences, "running") + others.running;
  const waiting = count(sequences, "waiting") + others.waiting;
  at("summary").textContent =
    `${running} running, ${waiting} waiting; ${slots.totals.sampled} tokens in ${slots.totals.steps} steps so far. ` +
    `Policy: ${slots.policy}.`;
  at("length").textContent = blocks.length;
  at("others").textContent =
    others.running + others.waiting
      ? `Of other keys: ${others.running} running, ${others.waiting} waiting; they hold ${others.blocks} blocks.`
      : "";
  shares({ held: blocks.held, cached: blocks.cached, free: blocks.free });
  at("sequences").replaceChildren(...(sequences.length ? sequences.map(row) : [nobody()]));
  squares(blocks, mine);
}

/** The sequences, each with its number: those that were there before keep theirs. */
function numbered(sequences) {
  const names = sequences.map((each) => `${each.id} ${each.choices}`);
  for (const name of [...numbers.keys()]) if (!names.includes(name)) numbers.delete(name);
  if (!numbers.size) next = 1;
  return sequences.map((each, index) => {
    if (!numbers.has(names[index])) numbers.set(names[index], next++);
    const number = numbers.get(names[index]);
    return { ...each, number, hue: `hue-${number % HUES}` };
  });
}

function count(sequences, state) {
  return sequences.filter((each) => each.state === state).length;
}

/** The bar and its legend: how many blocks are what. */
function shares(parts) {
  const names = Object.keys(parts);
  at("share").replaceChildren(
    ...names.map((name) => {
      const part = element("span", "", name);
      part.style.flexGrow = parts[name];
      return part;
    }),
  );
  at("legend").replaceChildren(
    ...names.map((name) => {
      const item = element("li", "");
      item.append(element("span", "", `square ${name}`), ` ${parts[name]} ${name}`);
      return item;
    }),
  );
}

function row(sequence) {
  const made = document.createElement("tr");
  const choice = sequence.choices.length === 1 && sequence.choices[0] === 0 ? "" : ` [${sequence.choices}]`;
  const most = sequence.max_new_tokens;
  const number = element("td", "");
  number.append(element("span", sequence.number, `square ${sequence.hue}`));
  made.append(
    number,
    element("td", sequence.id.slice(0, 17) + choice, "name"),
    element("td", sequence.state),
    element("td", sequence.prompt_tokens, "number"),
    element("td", `${sequence.generated_tokens} of ${most}`, "number"),
    element("td", sequence.computed_tokens, "number"),
    element("td", sequence.seconds.toFixed(1), "number"),
    element("td", ranges(sequence.blocks), "blocks"),
    element("td", sequence.reason ?? ""),
  );
  made.title = sequence.id;
  return made;
}

function nobody() {
  const made = document.createElement("tr");
  const cell = element("td", "None of yours at the moment.", "hint");
  cell.colSpan = 9;
  made.append(cell);
  return made;
}

/** "3–7, 9": blocks in the order of the sequence's positions. */
function ranges(blocks) {
  const found = [];
  for (const block of blocks) {
    const last = found.at(-1);
    if (last && last[1] + 1 === block) last[1] = block;
    else found.push([block, block]);
  }
  return found.map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`)).join(", ");
}

function squares(blocks, mine) {
  const grid = at("grid");
  const shown = Math.min(blocks.total, MOST_SQUARES);
  while (grid.childElementCount > shown) grid.lastChild.remove();
  while (grid.childElementCount < shown) grid.append(element("span", "", "square"));
  const cached = new Set(blocks.cached_blocks ?? []);
  for (let block = 0; block < shown; block++) {
    const [text, kind, what] = square(mine.get(block), cached.has(block), blocks.cached_blocks !== null);
    const place = grid.children[block];
    if (place.className === kind && place.textContent === text) continue;
    place.className = kind;
    place.textContent = text;
    place.title = `block ${block}: ${what}`;
  }
  const hidden = blocks.total - shown;
  const unknown = blocks.cached_blocks === null ? "Where those of other keys are is not told: empty squares are theirs, cached or free. " : "";
  at("rest").textContent = unknown + (hidden ? `The first ${shown} of ${blocks.total} are shown.` : "");
}

/** What a square says: its text, its classes, its words. */
function square(holders, cached, known) {
  if (!holders) {
    if (cached) return ["", "square cached", "cached, nobody holds it"];
    return ["", "square free", known ? "free" : "of another key, cached or free"];
  }
  const names = holders.map((each) => each.number).join(", ");
  if (holders.length > 1) return [`×${holders.length}`, "square shared", `shared by sequences ${names}`];
  return [`${holders[0].number}`, `square ${holders[0].hue}`, `sequence ${names}`];
}

function element(tag, text, kind = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = kind;
  return made;
}

at("pause").addEventListener("click", () => {
  paused = !paused;
  at("pause").setAttribute("aria-pressed", String(paused));
  at("pause").textContent = paused ? "Go on" : "Pause";
  if (!paused) look();
});
document.addEventListener("visibilitychange", () => !paused && !document.hidden && look());
keepKey(at("key"), look);
look();
