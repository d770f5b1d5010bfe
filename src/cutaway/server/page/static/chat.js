// The chat page: a conversation through /v1/chat/completions. What a field may be, the server alone decides.

import { Answer } from "./answer.js";
import { ServerError, ask, events, keepKey } from "./server.js";

const ALTERNATIVES = 5; // tokens that are shown beside the chosen one
const LONGEST_ANSWER = 1024; // tokens, where the user says nothing
const RETRY = 1000; // ms, while the model is being loaded
const at = (id) => document.getElementById(id);

let turns = []; // {question, answer} that were answered, at least in part
let running = null; // the AbortController of the answer that grows

/** A number where it is one; else as it stands, so that the server says what is wrong with it. */
function number(text) {
  const spelt = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text);
  return spelt && Number.isFinite(Number(text)) ? Number(text) : text;
}

/** The request's body as JSON. A seed has up to 64 bits, which a number here has not: it is put there as text. */
function requestBody(question) {
  const messages = turns.flatMap((turn) => [
    { role: "user", content: turn.question },
    { role: "assistant", content: turn.answer },
  ]);
  messages.push({ role: "user", content: question });
  if (at("system").value) messages.unshift({ role: "system", content: at("system").value });
  const body = { model: at("model").value, messages, stream: true, stream_options: { include_usage: true } };
  body.return_token_ids = body.return_parameters = true;
  for (const name of ["temperature", "top_p", "top_k", "max_tokens", "seed"]) {
    const text = at(name).value.trim();
    if (text) body[name] = number(text);
  }
  if (at("probabilities").checked) Object.assign(body, { logprobs: true, top_logprobs: ALTERNATIVES });
  const seed = at("seed").value.trim();
  if (!/^-?(0|[1-9]\d*)$/.test(seed)) return JSON.stringify(body);
  delete body.seed;
  return `${JSON.stringify(body).slice(0, -1)},"seed":${seed}}`;
}

async function stream(body, signal, answer) {
  const headers = { "Content-Type": "application/json" };
  const response = await ask("v1/chat/completions", { method: "POST", headers, body, signal });
  for await (const data of events(response)) {
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ServerError(chunk.error.message, 0);
    const follow = isAtEnd();
    answer.add(chunk, data);
    if (follow) toEnd();
  }
}

async function send() {
  const question = at("question").value;
  if (running || !question.trim()) return;
  running = new AbortController();
  at("question").value = "";
  at("empty").hidden = true;
  said("user", "You").append(question);
  const answer = new Answer(said("assistant", at("model").value));
  show();
  toEnd();
  const mine = turns; // another chat may have begun when this ends
  try {
    await stream(requestBody(question), running.signal, answer);
    answer.end();
    mine.push({ question, answer: answer.text });
  } catch (error) {
    if (error.name === "AbortError") answer.end("stopped");
    else answer.fail(error instanceof ServerError ? error.message : String(error));
    if (answer.text) mine.push({ question, answer: answer.text });
    else if (mine === turns && !at("question").value) at("question").value = question;
    if (error.status === 401) askForKey();
  } finally {
    running = null;
    show();
    if (isAtEnd()) toEnd();
  }
}

/** A new part of the conversation: who says it, and an empty element for what. */
function said(role, name) {
  const part = document.createElement("article");
  part.className = role;
  const head = document.createElement("h2");
  head.textContent = name;
  const body = document.createElement("div");
  body.className = "said";
  part.append(head, body);
  at("conversation").append(part);
  return body;
}

function isAtEnd() {
  const box = at("conversation");
  return box.scrollHeight - box.scrollTop - box.clientHeight < 40;
}

function toEnd() {
  at("conversation").scrollTop = at("conversation").scrollHeight;
}

function show() {
  at("send").hidden = running !== null;
  at("stop").hidden = running === null;
}

function begin() {
  running?.abort();
  turns = [];
  for (const part of at("conversation").querySelectorAll("article")) part.remove();
  at("empty").hidden = false;
  at("question").focus();
}

function openSettings(open) {
  document.body.classList.toggle("without-settings", !open);
  at("open-settings").setAttribute("aria-expanded", String(open));
}

function askForKey() {
  openSettings(true);
  at("key").focus();
}

/** The fields before anything is typed: what the model's authors advise is in effect; where they advise nothing, what
 * suits a small model stands there. Small models seldom find an end: where there is room for more, answers are cut. */
function showDefaults(model) {
  const advised = model.default_sampling_params;
  if (model.max_model_len > 2 * LONGEST_ANSWER) at("max_tokens").value ||= String(LONGEST_ANSWER);
  for (const [name, none] of Object.entries({ temperature: "1", top_p: "1", top_k: "all" })) {
    at(name).placeholder = advised[name] ?? none;
  }
  if (Object.keys(advised).length) return;
  at("temperature").value ||= "0.7";
  at("top_p").value ||= "0.9";
}

/** The model's names; again and again while it is being loaded. */
async function findModels() {
  try {
    const models = (await (await ask("v1/models")).json()).data;
    at("model").replaceChildren(...models.map((model) => new Option(model.id, model.id)));
    at("model").disabled = models.length < 2;
    showDefaults(models[0]);
    at("status").textContent = "";
  } catch (error) {
    at("status").textContent = error.message;
    if (error.status === 401) askForKey();
    else setTimeout(findModels, RETRY);
  }
}

at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
at("question").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
document.addEventListener("keydown", (event) => event.key === "Escape" && running?.abort());
at("stop").addEventListener("click", () => {
  running?.abort();
  at("question").focus();
});
at("new").addEventListener("click", begin);
at("parameters").addEventListener("submit", (event) => event.preventDefault());
at("open-settings").addEventListener("click", () => {
  openSettings(document.body.classList.contains("without-settings"));
});
openSettings(matchMedia("(min-width: 60rem)").matches);
keepKey(at("key"), findModels);
findModels();
