// The reading beside a view: in words and bars, what the token, cell or head on show says.

import { measureText } from "./gallery.js";
import { bars, make, tokenText } from "./parts.js";
import { strongest, strongestCells } from "./weights.js";

const MOST_ROWS = 8;

export class Reading {
  constructor(page) {
    this.page = page;
    this.head = make("div", { class: "reading-head" });
    this.body = make("div", { class: "reading-body" });
    this.element = make("aside", { class: "reading" }, this.head, this.body);
  }

  nothing() {
    this.element.hidden = true;
  }

  gallery() {
    this.element.hidden = true;
  }

  /** What the chosen head is like; nothing for several. */
  showHead() {
    const { page } = this;
    this.element.hidden = false;
    const { block } = page;
    const chosen = page.chosen();
    const parts = [make("h2", {}, page.title()), make("p", { class: "muted" }, page.say(`about.${block.kind}`))];
    const facts = chosen.length === 1 ? page.headFacts(block.kind, ...chosen[0]) : null;
    if (facts?.name) parts.push(make("p", { class: "head-name", title: page.say("head.name") }, make("code", {}, facts.name)));
    const habit = facts && page.habit(facts.label);
    if (habit) parts.push(make("p", { class: "habit" }, habit));
    if (facts?.measures) {
      const rows = Object.entries(facts.measures).flatMap(([name, value]) => [make("dt", {}, page.say(`measure.${name}`)), make("dd", {}, measureText(page, name, value))]);
      parts.push(make("details", { class: "facts" }, make("summary", {}, page.say("measures")), make("dl", {}, ...rows)));
    }
    const open = this.head.querySelector("details")?.open;
    this.head.replaceChildren(...parts);
    if (open && this.head.querySelector("details")) this.head.querySelector("details").open = true;
  }

  /** One token and what it looks at, or who looks at it. */
  token(matrix, focus) {
    this.showHead();
    if (!focus) {
      this.strongest(matrix, "hint.sentence");
      return;
    }
    const { weights, keys, queries } = matrix;
    const { side, place } = focus;
    const row = side === "queries";
    const values = row ? weights.subarray(place * keys.length, (place + 1) * keys.length) : Float32Array.from(queries, (query, at) => weights[at * keys.length + place]);
    this.list(row ? "looks.at" : "seen.by", matrix[side][place], row ? keys : queries, values);
  }

  /** One cell of the map, and the row it stands in. */
  cell(matrix, cell) {
    this.showHead();
    if (!cell) {
      this.strongest(matrix, "hint.map");
      return;
    }
    const { weights, keys, queries } = matrix;
    const row = weights.subarray(cell.q * keys.length, (cell.q + 1) * keys.length);
    const value = this.page.percent(row[cell.k]);
    this.list("looks.at", queries[cell.q], keys, row, cell.k);
    const sentence = this.page.say("looks.value", { query: queries[cell.q].text, key: keys[cell.k].text, value });
    this.body.prepend(make("p", { class: "value", dir: "auto" }, sentence));
  }

  /** What to do, and until then the strongest looks of all. */
  strongest({ weights, keys, queries }, hint) {
    const rows = strongestCells(weights, MOST_ROWS).map((cell) => {
      const query = queries[Math.floor(cell / keys.length)];
      const pair = make("span", {}, tokenText(query), make("span", { class: "muted" }, " → "), tokenText(keys[cell % keys.length]));
      return { token: pair, share: weights[cell], value: this.page.percent(weights[cell]) };
    });
    const words = (key, name, kind) => make(name, { class: kind }, this.page.say(key));
    this.body.replaceChildren(words(hint, "p", "hint"), words("strongest.looks", "h3", "strongest"), bars(rows));
  }

  list(key, token, others, values, marked = -1) {
    const rows = strongest(values, MOST_ROWS).map((place) => ({
      token: others[place], share: values[place], value: this.page.percent(values[place]), mark: place === marked,
    })); // prettier-ignore
    this.body.replaceChildren(make("h3", { dir: "auto" }, this.page.say(key, { token: token.text })), bars(rows));
  }
}
