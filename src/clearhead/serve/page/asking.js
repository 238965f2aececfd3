// What the page asks of the server, and what it makes of the answers.

/** An answer that is a no, with the server's own words. */
export class Refused extends Error {
  constructor(status, message, retryAfter) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

/** An answer that is still coming in, or a refusal. */
async function opened(path, body, signal) {
  const request = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(path, { ...request, signal, cache: "no-store" });
  if (response.ok) return response;
  const tree = await response.json().catch(() => ({}));
  const message = tree.error?.message || tree.error || response.statusText;
  throw new Refused(response.status, String(message), Number(response.headers.get("Retry-After")) || 0);
}

/** The models that are served, and the bounds of what may be asked. */
export async function askModels() {
  return (await opened("models")).json();
}

/** A text translated by one model. */
export async function askTranslation(model, text, signal) {
  const source = model.sources.length === 1 ? model.sources[0] : model.sources.length ? "auto" : "und";
  const body = { q: text, source, target: model.target || "und", model: model.name };
  return (await (await opened("translate", body, signal)).json()).translatedText;
}

/** What every head looked at, some of them switched off. */
export async function askAttention(model, text, { sentence = 0, ablate = [], target = null }, signal) {
  const body = { text, model: model.name, sentence, ablate, ...(target === null ? {} : { target }) };
  return (await opened("attention", body, signal)).json();
}

/** The labels of a text, likeliest first. */
export async function askLabels(model, text, signal) {
  return (await (await opened("classify", { text, model: model.name }, signal)).json()).labels;
}

/** The continuation of a text, piece by piece. */
export async function* askContinuation(model, prompt, { tokens, temperature }, signal) {
  const body = { model: model.name, prompt, max_tokens: tokens, temperature, stream: true };
  const response = await opened("v1/completions", body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let kept = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (kept + value).split("\n\n");
    kept = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const tree = JSON.parse(data);
      if (tree.error) throw new Refused(500, tree.error.message, 0);
      yield tree.choices.map((choice) => choice.text).join("");
    }
  }
}
