"use strict";
// Draws the report from the JSON beside it. Texts go in as text alone, so that no token can become markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { tokens, pieces, sequence, prompt, layers, heads } = data;
  const byId = (id) => document.getElementById(id);
  const whole = new Intl.NumberFormat("en");
  let current = 0;

  // ---- making elements -------------------------------------------------------------------------------------------
  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const draw = (tag, attributes = {}, ...children) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const write = (x, y, text, attributes = {}) => {
    const element = draw("text", { x, y, ...attributes });
    element.textContent = text;
    return element;
  };
  const told = (text) => {
    const title = draw("title");
    title.textContent = text;
    return title;
  };
  const percent = (p) => (p >= 0.9995 ? "100 %" : p >= 0.1 ? `${(100 * p).toFixed(1)} %` : p >= 0.0001 ? `${(100 * p).toFixed(2)} %` : p > 0 ? "< 0.01 %" : "0");
  const shown = (id) => pieces[id] ?? `#${id}`;
  const visible = (id) => (/^ +$/.test(shown(id)) ? shown(id).replaceAll(" ", "␣") : shown(id));
  const piece = (id) => make("span", { className: "piece", textContent: visible(id) });
  const row = (cells, tag = "td") =>
    make("tr", {}, ...cells.map((cell) => {
      const [content, className] = Array.isArray(cell) ? cell : [cell, ""];
      return make(tag, { className }, content);
    }));

  // ---- the heads' attention: for each token, layer and head the strongest positions, packed ------------------------
  const unpack = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const packed = data.heads_packed;
  const bytes = unpack(packed.positions);
  const places = packed.wide ? new Uint32Array(bytes.buffer) : new Uint16Array(bytes.buffer);
  const weights = unpack(packed.probabilities);
  const NONE = packed.wide ? 0xffffffff : 0xffff;
  const ofHead = (token, layer, head) => {
    const first = ((token * layers + layer) * heads + head) * packed.kept;
    const found = [];
    for (let i = first; i < first + packed.kept; i += 1) {
      if (places[i] !== NONE) found.push([places[i], weights[i] / 255]);
    }
    return found;
  };
  const looksOf = (token, layer, head) => {
    if (layer < 0 && head < 0) return tokens[token].looks;
    const total = new Map();
    const inLayers = layer < 0 ? [...Array(layers).keys()] : [layer];
    const inHeads = head < 0 ? [...Array(heads).keys()] : [head];
    const share = 1 / (inLayers.length * inHeads.length);
    for (const l of inLayers) for (const h of inHeads) {
      for (const [place, p] of ofHead(token, l, h)) total.set(place, (total.get(place) ?? 0) + p * share);
    }
    return [...total].sort((a, b) => b[1] - a[1]).slice(0, 24);
  };

  // ---- the strip -------------------------------------------------------------------------------------------------
  const spans = [];
  const grade = (p) => (p >= 0.8 ? "c0" : p >= 0.4 ? "c1" : p >= 0.1 ? "c2" : "c3");
  const put = (strip, place, element) => {
    element.dataset.place = place;
    spans[place] = element;
    strip.append(element);
    if (/\\n$|\n$/.test(element.textContent)) strip.append(make("br"));
  };
  const special = new Set(data.special);
  for (let place = 0; place < prompt; place += 1) {
    const name = special.has(place) ? "tok special" : "tok";
    put(byId("prompt"), place, make("span", { className: name, textContent: shown(sequence[place]) }));
  }
  byId("prompt-box").open = prompt <= 60;
  byId("prompt-title").textContent = `The prompt: ${whole.format(prompt)} tokens`;
  tokens.forEach((token, number) => {
    const winner = token.candidates.find((each) => each.id === token.id);
    const button = make("button", {
      type: "button", className: `tok ${grade(winner.p[0])}`, textContent: shown(token.id), tabIndex: -1,
      title: `position ${token.position}: ${percent(winner.p[0])}`,
    });
    button.setAttribute("role", "option");
    button.addEventListener("click", () => select(number));
    put(byId("strip"), token.position, button);
  });
  byId("strip").addEventListener("keydown", (event) => {
    const to = { ArrowLeft: current - 1, ArrowRight: current + 1, Home: 0, End: tokens.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    select(Math.min(tokens.length - 1, Math.max(0, to)));
    spans[tokens[current].position].focus();
  });

  // ---- one token ---------------------------------------------------------------------------------------------------
  const STEPS = { model: "the model", logit_bias: "logit bias", masks: "masks", penalties: "penalties", temperature: "temp.", top_k: "top-k", top_p: "top-p", min_p: "min-p" };

  const drawFunnel = (token) => {
    const rows = [{ name: "model", kept: data.vocabulary, mass: 1, touched: 1 }, ...token.steps];
    const width = 400, height = 26, middle = 190, beside = 278, before = 96;
    const svg = draw("svg", { viewBox: `0 0 ${width} ${(rows.length + 1) * height + 4}`, role: "img", class: "funnel" });
    svg.setAttribute("aria-label", rows.map((each) => `${STEPS[each.name]}: ${each.kept} candidates`).join("; "));
    const half = (kept) => 4 + 76 * Math.log(Math.max(1, kept)) / Math.log(data.vocabulary);
    rows.forEach((each, number) => {
      const y = number * height + 3;
      const above = half(rows[Math.max(0, number - 1)].kept), own = half(each.kept);
      svg.append(draw("path", {
        d: `M${middle - above} ${y} L${middle + above} ${y} L${middle + own} ${y + height} L${middle - own} ${y + height} Z`,
        fill: "var(--accent)", opacity: each.touched ? 0.9 - 0.05 * number : 0.28,
      }, told(`${STEPS[each.name]}: ${whole.format(each.kept)} candidates left`)));
      svg.append(write(before, y + 17, STEPS[each.name], { "text-anchor": "end", class: each.touched ? "strong" : "" }));
      const cut = number > 0 && each.kept < rows[number - 1].kept;
      const said = number === 0 ? `${whole.format(each.kept)} tokens` : cut ? `${whole.format(each.kept)} left, had ${percent(each.mass)}` : each.touched === data.vocabulary ? "all rescaled" : each.touched ? `${whole.format(each.touched)} changed` : "no change";
      svg.append(write(beside, y + 17, said, { class: each.touched ? "strong" : "" }));
    });
    const y = rows.length * height + 3;
    svg.append(draw("circle", { cx: middle, cy: y + 12, r: 6, fill: "var(--warm)" }));
    svg.append(write(before, y + 16, token.greedy ? "the largest" : "draw", { "text-anchor": "end", class: "strong" }));
    svg.append(write(beside, y + 16, shown(token.id), { class: "strong" }));
    byId("funnel").replaceChildren(svg);
  };

  const fillCandidates = (token) => {
    const changed = token.steps.map((step, i) => [step, i + 1]).filter(([step]) => step.touched);
    const head = [["token", "left"], "rank", "model", ...changed.map(([step]) => STEPS[step.name])];
    if (!token.greedy) head.push("noise", "sum");
    const body = token.candidates.map((each) => {
      const cells = [[piece(each.id), "left"], whole.format(each.rank), percent(each.p[0])];
      for (const [, i] of changed) cells.push(each.p[i] > 0 ? percent(each.p[i]) : ["dropped", "gone"]);
      if (!token.greedy) cells.push(each.noise === null ? "" : each.noise.toFixed(2), each.sum === null ? "" : each.sum.toFixed(2));
      const line = row(cells);
      if (each.id === token.id) line.className = "won";
      return line;
    });
    byId("candidates").replaceChildren(make("thead", {}, row(head, "th")), make("tbody", {}, ...body));
  };

  const drawLens = (token) => {
    const width = 400, height = 120, left = 42, top = 8, bottom = 98;
    const x = (i) => left + (width - left - 8) * (i / Math.max(1, token.lens.length - 1));
    const y = (p) => bottom - (bottom - top) * p;
    const line = (values) => values.map((p, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(p).toFixed(1)}`).join("");
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
    svg.setAttribute("aria-label", "Probability of the chosen token, and of the likeliest one, after each layer");
    for (const p of [0, 0.5, 1]) {
      svg.append(draw("line", { x1: left, x2: width - 8, y1: y(p), y2: y(p), stroke: "var(--line)" }));
      svg.append(write(left - 5, y(p) + 4, `${100 * p} %`, { "text-anchor": "end" }));
    }
    svg.append(draw("path", { d: line(token.lens.map((each) => each[2][1])), fill: "none", stroke: "var(--other)", "stroke-width": 1.5, "stroke-dasharray": "3 3" }));
    svg.append(draw("path", { d: line(token.lens.map((each) => each[1])), fill: "none", stroke: "var(--accent)", "stroke-width": 2 }));
    svg.append(write(left, height - 6, "embedding"));
    svg.append(write(width - 8, height - 6, `layer ${layers - 1}`, { "text-anchor": "end" }));
    svg.append(write((left + width) / 2, height - 6, "— chosen   ⋯ likeliest", { "text-anchor": "middle" }));
    byId("lens-chart").replaceChildren(svg);
    const rows = token.lens.map(([rank, p, best], place) => {
      const cells = [[place ? String(place - 1) : "emb.", "left"], whole.format(rank), percent(p)];
      const line = row(cells);
      for (let i = 0; i < best.length; i += 2) {
        const cell = make("td", { className: best[i] === token.id ? "cell is" : "cell", textContent: visible(best[i]), title: `${shown(best[i])}: ${percent(best[i + 1])}` });
        cell.style.background = `color-mix(in srgb, var(--accent) ${Math.round(70 * best[i + 1])}%, transparent)`;
        line.append(cell);
      }
      return line;
    }).reverse();
    const table = byId("lens");
    table.className = "lens";
    table.replaceChildren(
      make("thead", {}, row([["layer", "left"], "rank", "chosen", ["likeliest", "left"], ["2nd", "left"], ["3rd", "left"]], "th")),
      make("tbody", {}, ...rows));
  };

  const chosenHead = () => [Number(byId("layer").value), Number(byId("head").value)];
  const drawLooks = (number) => {
    const token = tokens[number], [layer, head] = chosenHead();
    const looks = looksOf(number, layer, head);
    const most = Math.max(...looks.map((each) => each[1]), 1e-9);
    byId("looks").replaceChildren(...looks.slice(0, 10).map(([place, p]) => {
      const bar = make("i");
      bar.style.width = `${100 * p / most}%`;
      const back = token.position - 1 - place;
      const name = make("span", { className: "piece", textContent: visible(sequence[place]), title: `position ${place}` });
      return make("div", { className: "bar" }, make("span", {}, name, make("small", { textContent: back ? ` ${back} back` : " itself" })), bar, make("span", { textContent: percent(p) }));
    }));
    for (const span of spans) if (span) span.style.borderBottomColor = "";
    for (const [place, p] of looks) {
      spans[place].style.borderBottomColor = `color-mix(in srgb, var(--warm) ${Math.round(100 * Math.min(1, Math.sqrt(p / most)))}%, transparent)`;
    }
  };
  const drawHeads = (number) => {
    const [layer, head] = chosenHead();
    const cell = Math.max(5, Math.min(14, 330 / heads)), high = Math.max(4, Math.min(9, 240 / layers));
    const svg = draw("svg", { width: 56 + heads * cell, height: layers * high + 18, role: "img" });
    svg.setAttribute("aria-label", "For each layer and head, how much of the attention goes to its strongest position but the first");
    for (let l = 0; l < layers; l += 1) for (let h = 0; h < heads; h += 1) {
      const beyond = ofHead(number, l, h).filter(([place]) => place > 0);
      const [place, p] = beyond[0] ?? [0, 0];
      const rect = draw("rect", {
        x: 50 + h * cell, y: (layers - 1 - l) * high + 14, width: cell - 1, height: high - 1, class: "grid-cell",
        fill: `color-mix(in srgb, var(--warm) ${Math.round(100 * p)}%, var(--r4))`,
        stroke: l === layer && h === head ? "var(--text)" : "none",
      }, told(`layer ${l}, head ${h}: ${percent(p)} to ${shown(sequence[place])}`));
      rect.addEventListener("click", () => {
        byId("layer").value = String(l);
        byId("head").value = String(h);
        drawLooks(current);
        drawHeads(current);
      });
      svg.append(rect);
    }
    svg.append(write(50, 9, "heads →"), write(46, layers * high + 12, "layer 0", { "text-anchor": "end" }), write(46, 23, String(layers - 1), { "text-anchor": "end" }));
    byId("heads").replaceChildren(svg);
  };

  const settled = (token) => {
    let from = token.lens.length;
    while (from > 0 && token.lens[from - 1][0] === 1) from -= 1;
    return from;
  };

  function select(number) {
    spans[tokens[current].position].setAttribute("aria-selected", "false");
    spans[tokens[current].position].tabIndex = -1;
    current = number;
    const token = tokens[number], button = spans[token.position];
    button.setAttribute("aria-selected", "true");
    button.tabIndex = 0;
    byId("h-token").replaceChildren("Token ", piece(token.id), ` at position ${token.position}`);
    const winner = token.candidates.find((each) => each.id === token.id), from = settled(token);
    const said = [`The model itself gave it ${percent(winner.p[0])}, rank ${whole.format(winner.rank)}. `];
    said.push(from < token.lens.length ? `It leads from ${from ? `layer ${from - 1}` : "the embedding"} on. ` : "It leads after no layer: the sampler took another than the likeliest. ");
    if (token.runner_up !== null) said.push("Without it, it would have been ", piece(token.runner_up), ".");
    byId("said").replaceChildren(...said);
    drawFunnel(token);
    fillCandidates(token);
    drawLens(token);
    drawLooks(number);
    drawHeads(number);
    markColumn(number);
    history.replaceState(null, "", `#${token.position}`);
  }

  // ---- all tokens by layers ------------------------------------------------------------------------------------------
  const rankClass = (rank) => (rank === 1 ? "r0" : rank <= 10 ? "r1" : rank <= 100 ? "r2" : rank <= 1000 ? "r3" : "r4");
  const room = Math.max(600, byId("map").clientWidth);
  const wide = Math.max(5, Math.min(40, (room - 60) / tokens.length)), low = Math.max(4, Math.min(9, 280 / (layers + 1)));
  const marker = draw("rect", { y: 0, width: wide, height: (layers + 1) * low, fill: "none", stroke: "var(--text)", "stroke-width": 1.5 });
  const markColumn = (number) => marker.setAttribute("x", 46 + number * wide - 0.5);
  (() => {
    const svg = draw("svg", { width: 50 + tokens.length * wide, height: (layers + 1) * low + 20, role: "img" });
    svg.setAttribute("aria-label", "Rank of each chosen token after each layer");
    tokens.forEach((token, number) => {
      const column = draw("g", { class: "grid-cell" });
      token.lens.forEach(([rank], place) => column.append(draw("rect", {
        x: 46 + number * wide, y: (layers - place) * low, width: wide - 1, height: low - 1, class: rankClass(rank),
      })));
      column.append(told(`${shown(token.id)}, position ${token.position}`));
      column.addEventListener("click", () => select(number));
      svg.append(column);
    });
    svg.append(marker, write(40, 9, String(layers - 1), { "text-anchor": "end" }), write(40, (layers + 1) * low - 1, "emb.", { "text-anchor": "end" }));
    svg.append(write(46, (layers + 1) * low + 15, "first token"), write(46 + tokens.length * wide, (layers + 1) * low + 15, "last", { "text-anchor": "end" }));
    byId("map").append(svg);
  })();

  // ---- steps and pages over time -------------------------------------------------------------------------------------
  (() => {
    const steps = data.steps;
    byId("time-section").hidden = steps.length === 0;
    if (!steps.length) return;
    const width = room - 4, left = 62, right = width - 12;
    const begin = steps[0].started, end = Math.max(...steps.map((each) => each.started + each.seconds));
    const x = (t) => left + (right - left) * (t - begin) / Math.max(1e-9, end - begin);
    const longest = Math.max(...steps.map((each) => each.seconds));
    const svg = draw("svg", { width, height: 262, role: "img" });
    svg.setAttribute("aria-label", "The engine's steps over time, and who held which pages of the KV cache");
    const high = (seconds) => 96 * Math.sqrt(seconds / longest);
    svg.append(write(left, 12, "steps: how long each took (square root), and of whose tokens"), write(left - 6, 30, `${(1000 * longest).toFixed(1)} ms`, { "text-anchor": "end" }), write(left - 6, 120, "0", { "text-anchor": "end" }));
    svg.append(draw("line", { x1: left, x2: right, y1: 120, y2: 120, stroke: "var(--line)" }));
    for (const each of steps) {
      const a = x(each.started), b = Math.max(a + 1, x(each.started + each.seconds) - 0.5);
      let y = 120;
      const total = each.own_prompt + each.own_answer + each.others + each.pads;
      for (const [count, colour] of [[each.own_prompt, "var(--warm)"], [each.own_answer, "var(--own)"], [each.others, "var(--other)"], [each.pads, "var(--free)"]]) {
        const h = high(each.seconds) * count / total;
        if (count) svg.append(draw("rect", { x: a, y: y - h, width: b - a, height: h, fill: colour }, told(`step ${each.number}${each.is_open ? ", open" : ""}: ${(1000 * each.seconds).toFixed(2)} ms; ${each.own_prompt} of the prompt, ${each.own_answer} of the answer, ${each.others} of others${each.waiting ? `; ${each.waiting} wait` : ""}`)));
        y -= h;
      }
    }
    const floor = 236, tall = 84, pages = Math.max(1, steps[0].blocks_total);
    const top = Math.max(...steps.map((each) => each.blocks_held + each.blocks_cached), 1);
    const up = (count) => floor - tall * count / top;
    svg.append(write(left, 144, `pages of the KV cache: ${whole.format(pages)} of ${data.block_length} positions; held by this answer, by others, cached`), write(left - 6, floor - tall + 8, whole.format(top), { "text-anchor": "end" }), write(left - 6, floor, "0", { "text-anchor": "end" }));
    steps.forEach((each, i) => {
      const a = x(each.started), b = i + 1 < steps.length ? x(steps[i + 1].started) : right;
      let base = 0;
      for (const [count, colour] of [[each.own_blocks, "var(--own)"], [each.blocks_held - each.own_blocks, "var(--other)"], [each.blocks_cached, "var(--cached)"]]) {
        if (count > 0) svg.append(draw("rect", { x: a, y: up(base + count), width: Math.max(0.5, b - a), height: up(base) - up(base + count), fill: colour }, told(`step ${each.number}: ${each.own_blocks} own, ${each.blocks_held} held, ${each.blocks_cached} cached, of ${pages}`)));
        base += Math.max(0, count);
      }
    });
    svg.append(draw("line", { x1: left, x2: right, y1: floor, y2: floor, stroke: "var(--line)" }));
    svg.append(write(left, 254, "0 s"), write(right, 254, `${(end - begin).toFixed(2)} s`, { "text-anchor": "end" }));
    for (const each of data.decisions) {
      const step = steps.find((one) => one.number >= each.step);
      if (step) svg.append(draw("path", { d: `M${x(step.started)} 130 l-5 -8 l10 0 Z`, fill: "var(--text)" }, told(`${each.name} ${each.action}: ${each.reason}`)));
    }
    byId("timeline").append(svg);
    const body = data.decisions.map((each) => row([String(each.step), [each.own ? "this answer" : each.name, "left"], [each.action, "left"], [each.reason, "wrap"]]));
    byId("decisions").replaceChildren(make("thead", {}, row(["step", ["who", "left"], ["was", "left"], ["why", "left"]], "th")), make("tbody", {}, ...body));
  })();

  // ---- the ledger ------------------------------------------------------------------------------------------------------
  byId("ledger-section").hidden = data.ledger === null;
  if (data.ledger !== null) {
    const { operations, seconds, steps, tokens: count } = data.ledger;
    const longest = Math.max(...operations.map((each) => each.seconds));
    const body = operations.map((each) => {
      const bar = make("i", { className: "time" });
      bar.style.width = `${(100 * each.seconds / longest).toFixed(1)}%`;
      const limits = Object.entries(each.bounds).sort((a, b) => b[1] - a[1]).map(([name]) => name).join(", ");
      return row([
        [each.name, "left"], whole.format(each.calls), (1000 * each.seconds).toFixed(2), percent(each.seconds / seconds), [bar, "bars"],
        [limits, "left"], each.of_limit === null ? "" : `${(100 * each.of_limit).toFixed(0)} %`,
      ]);
    });
    byId("ledgers").append(
      make("p", { className: "hint", textContent: `This answer's share of ${whole.format(steps)} steps, ${whole.format(count)} rows: ${(1000 * seconds).toFixed(1)} ms. Its share of an operation is that of its rows; in attention, of the pairs of a query and a position.` }),
      make("div", { className: "scroll tall" }, make("table", {},
        make("thead", {}, row([["operation", "left"], "calls", "ms", "of all", "", ["limit", "left"], "of it reached"], "th")), make("tbody", {}, ...body))));
  }

  // ---- the head, and the beginning -----------------------------------------------------------------------------------
  const facts = [make("b", { textContent: data.model }), ...data.facts.map((each) => document.createTextNode(` · ${each}`))];
  byId("facts").replaceChildren(...facts);
  byId("notes").textContent = data.notes.join(" ");
  byId("theme").addEventListener("click", () => {
    const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = dark ? "light" : "dark";
  });
  const option = (value, text) => make("option", { value: String(value), textContent: text });
  byId("layer").replaceChildren(option(-1, "all"), ...Array.from({ length: layers }, (_, i) => option(i, String(i))));
  byId("head").replaceChildren(option(-1, "all"), ...Array.from({ length: heads }, (_, i) => option(i, String(i))));
  for (const id of ["layer", "head"]) byId(id).addEventListener("change", () => { drawLooks(current); drawHeads(current); });
  const asked = tokens.findIndex((each) => `#${each.position}` === location.hash);
  select(Math.max(0, asked));
})();
