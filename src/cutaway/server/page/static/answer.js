// One answer while it grows: its text, its figures, and how it ended.

import { rove, showOdds, tokenSpan } from "./odds.js";

export class Answer {
  /** root: the element that becomes the answer. */
  constructor(root) {
    this.text = "";
    this._body = document.createElement("div");
    this._body.className = "text";
    this._figures = document.createElement("p");
    this._figures.className = "figures";
    root.append(this._body, this._figures);
    this._root = root;
    this._asked = performance.now();
    this._first = this._last = undefined; // when tokens came
    this._tokens = 0;
    this._facts = [];
    showOdds(this._body);
    root.setAttribute("aria-busy", "true");
  }

  /** A chunk of the stream, parsed, and as it came: numbers above 2^53 are exact only there. */
  add(chunk, data) {
    for (const choice of chunk.choices) {
      this._addTokens(choice);
      if (choice.finish_reason === "length") this._facts.push("cut: no more tokens were allowed");
    }
    if (chunk.usage) this._addUsage(chunk.usage, data);
    this._write();
  }

  /** Nothing more comes. note: why, where it is not the model's own end. */
  end(note) {
    if (note) this._facts.push(note);
    this._write();
    this._root.removeAttribute("aria-busy");
  }

  /** Nothing more comes, for an error. */
  fail(message) {
    const alert = document.createElement("p");
    alert.className = "error";
    alert.setAttribute("role", "alert");
    alert.textContent = message;
    this._root.insertBefore(alert, this._figures);
    this.end();
  }

  _addTokens(choice) {
    const text = choice.delta.content ?? "";
    const tokens = choice.logprobs?.content ?? [];
    const count = choice.token_ids?.length ?? tokens.length;
    if (count) {
      this._last = performance.now();
      this._first ??= this._last;
      this._tokens += count;
    }
    this.text += text;
    if (tokens.length) {
      const span = tokenSpan(text || "end", tokens);
      span.classList.toggle("unwritten", !text);
      this._body.append(span);
      if (this._body.childElementCount === 1) rove(this._body, span);
    } else if (text) {
      this._body.append(text);
    }
  }

  _addUsage(usage, data) {
    const cached = usage.prompt_tokens_details.cached_tokens;
    this._facts.push(`prompt of ${usage.prompt_tokens} tokens${cached ? `, ${cached} of them cached` : ""}`);
    const seed = /"seeds":\[(-?\d+)/.exec(data); // in a text the quotation mark would have a backslash
    if (seed) this._facts.push(`seed ${seed[1]}`);
  }

  _write() {
    const found = this._tokens ? [`${this._tokens} ${this._tokens === 1 ? "token" : "tokens"}`] : [];
    if (this._tokens > 1 && this._last > this._first) {
      found.push(`${((1000 * (this._tokens - 1)) / (this._last - this._first)).toFixed(1)} tokens/s`);
    }
    if (this._first !== undefined) {
      found.push(`first after ${((this._first - this._asked) / 1000).toFixed(2)} s`);
    }
    this._figures.textContent = [...found, ...this._facts].join(" · ");
  }
}
