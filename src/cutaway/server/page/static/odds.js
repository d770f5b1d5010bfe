// Token probabilities: which an answer's tokens had, and what was likely in their places.
//
// Only textContent is set, never HTML: what a model writes stays text.

const box = document.getElementById("odds");
const entries = new WeakMap(); // span of an answer → entries of its tokens, as the server gave them

/** A piece of an answer as a span that shows its odds. shown: its text, or a name for a token that has none. */
export function tokenSpan(shown, tokens) {
  const span = document.createElement("span");
  span.textContent = shown;
  span.className = `token ${likelihood(Math.min(...tokens.map((token) => token.logprob)))}`;
  span.tabIndex = -1;
  entries.set(span, tokens);
  return span;
}

/** Let an element show the odds of the spans in it, for pointers and for keys. */
export function showOdds(body) {
  const over = (event) => entries.has(event.target) && open(event.target);
  body.addEventListener("pointerover", over);
  body.addEventListener("pointerleave", close);
  body.addEventListener("focusin", (event) => {
    over(event);
    if (entries.has(event.target)) rove(body, event.target);
  });
  body.addEventListener("focusout", close);
  body.addEventListener("keydown", (event) => {
    const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") close();
    if (way === undefined || !entries.has(event.target)) return;
    event.preventDefault();
    const spans = [...body.querySelectorAll(".token")];
    spans[spans.indexOf(event.target) + way]?.focus();
  });
}

/** Of all tokens of an answer the Tab key reaches one. */
export function rove(body, span) {
  for (const other of body.querySelectorAll(".token[tabindex='0']")) other.tabIndex = -1;
  span.tabIndex = 0;
}

function likelihood(logprob) {
  const probability = Math.exp(logprob);
  if (probability >= 0.8) return "sure";
  if (probability >= 0.4) return "likely";
  return probability >= 0.1 ? "open" : "rare";
}

/** "12.34 %" */
function percent(logprob) {
  return `${(100 * Math.exp(logprob)).toFixed(2)} %`;
}

/** A token as one can read it: quoted, with line ends as \n; bytes that are no text alone in hexadecimal. */
function spelt(token) {
  if (token.token.includes("\ufffd")) {
    return `bytes ${token.bytes.map((byte) => byte.toString(16).padStart(2, "0")).join(" ")}`;
  }
  return JSON.stringify(token.token);
}

function open(span) {
  box.replaceChildren(...entries.get(span).map(table));
  box.hidden = false;
  span.setAttribute("aria-describedby", box.id);
  const place = span.getClientRects()[0] ?? span.getBoundingClientRect();
  const left = Math.min(place.left, innerWidth - box.offsetWidth - 8);
  const below = place.bottom + 6;
  const fits = below + box.offsetHeight < innerHeight;
  box.style.left = `${Math.max(left, 8)}px`;
  box.style.top = `${fits ? below : Math.max(place.top - box.offsetHeight - 6, 8)}px`;
}

function close() {
  box.hidden = true;
}

function table(token) {
  const rows = token.top_logprobs.map((each) => [each, spelt(each) === spelt(token) && each.logprob === token.logprob]);
  if (!rows.some(([, chosen]) => chosen)) rows.push([token, true]);
  const made = document.createElement("table");
  for (const [each, chosen] of rows) made.append(row(each, chosen));
  return made;
}

function row(token, chosen) {
  const made = document.createElement("tr");
  const name = cell(spelt(token), "name");
  const bar = document.createElement("span");
  bar.className = "bar-of-odds";
  bar.style.width = `${100 * Math.exp(token.logprob)}%`;
  const holder = cell("", "holder");
  holder.append(bar);
  made.append(name, holder, cell(percent(token.logprob), "number"), cell(token.logprob.toFixed(4), "number faint"));
  made.append(cell(chosen ? "chosen" : "", "mark"));
  if (chosen) made.className = "chosen";
  return made;
}

function cell(text, kind) {
  const made = document.createElement("td");
  made.textContent = text;
  made.className = kind;
  return made;
}
