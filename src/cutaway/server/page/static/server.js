// The server as these pages ask it: with the key, and with errors in the server's own words.

const KEY = "cutaway-api-key";

/** What went wrong, to be shown. status: of HTTP, 0 where there was no answer. */
export class ServerError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** Let a field hold the API key, which is kept for this tab alone. changed: is called when it is another. */
export function keepKey(field, changed) {
  field.value = sessionStorage.getItem(KEY) ?? "";
  field.addEventListener("change", () => {
    const key = field.value.trim();
    if (key) sessionStorage.setItem(KEY, key);
    else sessionStorage.removeItem(KEY);
    changed();
  });
}

/** The response to a request; throws a ServerError for every status but those of success. */
export async function ask(path, options = {}) {
  const headers = { ...options.headers };
  const key = sessionStorage.getItem(KEY);
  if (key && !/^[\x21-\x7e]+$/.test(key)) {
    throw new ServerError("The API key has characters that no key can have.", 0);
  }
  if (key) headers.Authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The server can't be reached. Is it running?", 0);
  }
  if (!response.ok) throw new ServerError(await words(response), response.status);
  return response;
}

async function words(response) {
  const body = await response.text();
  try {
    return JSON.parse(body).error.message;
  } catch {
    return `The server has answered with status ${response.status}.`;
  }
}

/** The data of each server-sent event, without the last, "[DONE]"; throws where the stream ends before it. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await next(reader);
    if (done) throw new ServerError("The connection has ended before the answer.", 0);
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      if (!part.startsWith("data: ")) continue; // a comment
      const data = part.slice("data: ".length);
      if (data === "[DONE]") return;
      yield data;
    }
  }
}

async function next(reader) {
  try {
    return await reader.read();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The connection to the server is lost.", 0);
  }
}
