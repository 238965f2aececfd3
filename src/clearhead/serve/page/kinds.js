// What each kind of model is asked for, and how its answer looks: one class for each, and the table.

import { askContinuation, askLabels, askTranslation } from "./asking.js";
import { bars, make } from "./parts.js";

/** The text that a translator writes, anew whenever the source changes. */
class Translating {
  constructor(live) {
    this.live = live;
    this.asksByItself = true;
    this.element = make("bdi", { class: "made", "data-key": "made" });
    this.controls = null;
  }

  async ask(text, signal) {
    this.show(await askTranslation(this.live.model, text, signal));
  }

  show(made) {
    this.made = made;
    this.element.textContent = made;
    this.element.lang = this.live.model.target || "";
  }

  clear() {
    this.show("");
  }

  /** What is looked into: the text itself. */
  looked(text) {
    return { text };
  }
}

const MOST_LOOKED = 200;

/** The text that a language model goes on with, as it comes. */
class Writing {
  constructor(live) {
    this.live = live;
    this.asksByItself = false;
    this.beginning = make("span", { class: "beginning" });
    this.rest = make("span", {});
    this.element = make("bdi", { class: "made", "data-key": "made" }, this.beginning, this.rest);
    this.tokens = make("input", { type: "number", min: "1", max: "1024", value: String(live.wishes.tokens), "data-key": "tokens", onchange: () => this.wish() });
    this.temperature = make("input", { type: "number", min: "0", max: "2", step: "0.1", value: String(live.wishes.temperature), "data-key": "temperature", onchange: () => this.wish() });
    const named = (key, input) => make("label", { class: "wish" }, make("span", { class: "field-name" }, live.say(key)), input);
    this.controls = make("div", { class: "wishes" }, named("length", this.tokens), named("temperature", this.temperature));
  }

  wish() {
    const tokens = Math.min(1024, Math.max(1, Math.round(Number(this.tokens.value)) || 64));
    const temperature = Math.min(2, Math.max(0, Number(this.temperature.value) || 0));
    this.live.wishes = { tokens, temperature };
  }

  async ask(text, signal) {
    this.wish();
    this.show({ text, rest: "" });
    for await (const piece of askContinuation(this.live.model, text, this.live.wishes, signal)) {
      this.show({ text, rest: this.made.rest + piece });
    }
  }

  show(made) {
    this.made = made;
    this.beginning.textContent = made.text;
    this.rest.textContent = made.rest;
  }

  clear() {
    this.show({ text: "", rest: "" });
  }

  /** What is looked into: the end of all that is written by now. */
  looked() {
    return { text: [...(this.made.text + this.made.rest)].slice(-MOST_LOOKED).join("") };
  }
}

/** The labels that a classifier gives, with their probabilities. */
class Classifying {
  constructor(live) {
    this.live = live;
    this.asksByItself = true;
    this.element = make("div", { class: "made labels", "data-key": "made" });
    this.controls = null;
  }

  async ask(text, signal) {
    this.show(await askLabels(this.live.model, text, signal));
  }

  show(made) {
    this.made = made;
    const rows = made.map(({ label, probability }, place) => ({
      token: { text: label, special: false }, share: probability, value: this.live.percent(probability), mark: place === 0,
    })); // prettier-ignore
    this.element.replaceChildren(bars(rows));
  }

  clear() {
    this.show([]);
  }

  looked(text) {
    return { text };
  }
}

/** The text with its gaps filled, which is known once the model has been looked into. */
class Filling extends Translating {
  async ask() {}

  seen(answer) {
    this.show(answer.text);
  }
}

export const KINDS = { translator: Translating, gpt: Writing, classifier: Classifying, bert: Filling };

/** What shows the answers of a model. */
export function paneFor(live) {
  return new KINDS[live.model.kind](live);
}
