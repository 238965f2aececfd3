// The sentence view: tokens that look and tokens that are looked at, and lines between them as strong as the weights.

import { inkOn, shade } from "./colour.js";
import { curve, layOut } from "./layout.js";
import { eachFrame, make, tokenText } from "./parts.js";
import { fitted, moved, sharpen, textWidth } from "./pens.js";
import { strongest, threshold } from "./weights.js";

const MOST_LINES = 1500;
const MOST_TAB_STOPS = 60;
const BEYOND = 400;

export class SentenceView {
  constructor(page) {
    this.page = page;
    this.canvas = make("canvas", { class: "lines", "aria-hidden": "true" });
    this.lists = { keys: make("ul", { class: "tokens" }), queries: make("ul", { class: "tokens" }) };
    this.captions = { keys: make("div", { class: "caption" }), queries: make("div", { class: "caption" }) };
    this.board = make("div", { class: "sentence" }, this.canvas, this.captions.keys, this.lists.keys, this.lists.queries, this.captions.queries);
    this.note = make("p", { class: "note" });
    this.element = make("div", { class: "sentence-view" }, this.board, this.note);
    this.focus = null;
    this.redraw = eachFrame(() => this.drawNow());
    this.board.addEventListener("pointerleave", () => this.look(null));
    this.listeners = [
      [document, "scroll", () => this.isBehind() && this.redraw(), { capture: true, passive: true }],
      [globalThis, "resize", () => this.redraw(), {}],
      [globalThis, "beforeprint", () => this.drawNow(Infinity), {}],
    ];
    for (const [target, name, listen, options] of this.listeners) target.addEventListener(name, listen, options);
  }

  destroy() {
    for (const [target, name, listen, options] of this.listeners) target.removeEventListener(name, listen, options);
  }

  /** Take over what the reader chose. */
  sync() {
    this.matrix = this.page.matrix();
    this.least = threshold(this.matrix.weights, MOST_LINES);
    this.note.textContent = this.least > 0 ? this.page.say("strongest", { count: this.page.grouped(MOST_LINES) }) : "";
    this.note.hidden = this.least === 0;
    this.place();
    this.markPinned();
    this.focus = this.pinned();
    this.show();
  }

  /** Put every token in its place, unless it stands there already: other heads move no token. */
  place() {
    const width = Math.floor(this.element.clientWidth) || 640;
    const now = `${this.page.block.kind} ${this.page.state.words} ${width}`;
    if (this.placed === now) return;
    this.placed = now;
    const wide = (side) => textWidth(this.page.caption(side).join(" "), 12, 600);
    this.layout = layOut(this.matrix, width, { keys: wide("keys"), queries: wide("queries") });
    this.board.style.height = `${this.layout.height}px`;
    this.board.classList.toggle("across", this.layout.across);
    for (const side of ["keys", "queries"]) this.placeSide(side);
  }

  markPinned() {
    for (const button of this.board.querySelectorAll('[aria-pressed="true"]')) button.setAttribute("aria-pressed", "false");
    const pin = this.pinned();
    if (pin) this.lists[pin.side].children[pin.place].firstChild.setAttribute("aria-pressed", "true");
  }

  pinned() {
    const [, letter, place] = this.page.state.token.match(/^([qk])(\d+)/) || [];
    const side = letter === "q" ? "queries" : "keys";
    return letter && Number(place) < this.matrix[side].length ? { side, place: Number(place) } : null;
  }

  placeSide(side) {
    const { page, layout } = this;
    const tokens = this.matrix[side];
    const [name, does] = this.page.caption(side);
    const [x, y, align] = layout.captions[side];
    Object.assign(this.captions[side].style, { top: `${y - 10}px`, left: `${x}px` });
    this.captions[side].className = `caption ${align}`;
    this.captions[side].replaceChildren(make("strong", {}, name), ` ${does}`);
    this.lists[side].setAttribute("aria-label", `${name} ${does}`);
    const old = this.lists[side].children;
    if (old.length !== tokens.length) this.lists[side].replaceChildren(...tokens.map((token, place) => this.tokenItem(side, place)));
    tokens.forEach((token, place) => this.placeToken(side, token, place));
  }

  tokenItem(side, place) {
    const button = make("button", { type: "button", class: "token", "data-key": `token-${side}-${place}` });
    button.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && this.look({ side, place }));
    button.addEventListener("focus", () => this.look({ side, place }, true));
    button.addEventListener("blur", () => this.look(null));
    button.addEventListener("click", () => this.pin(side, place));
    button.addEventListener("keydown", (event) => this.walk(event, side, place));
    return make("li", {}, button);
  }

  placeToken(side, token, place) {
    const box = this.layout[side][place];
    const button = this.lists[side].children[place].firstChild;
    const unseen = this.page.isUnseen(this.page.block.names[side], token);
    button.className = ["token", token.special && "special", token.goesOn && "goes-on", unseen && "unseen"].filter(Boolean).join(" ");
    button.replaceChildren(tokenText(token));
    button.title = [token.raw, token.special && this.page.say("special"), unseen && this.page.say("unseen.token")].filter(Boolean).join(" · ");
    button.setAttribute("aria-pressed", "false");
    const many = this.matrix.keys.length + this.matrix.queries.length > MOST_TAB_STOPS;
    button.tabIndex = many && place > 0 ? -1 : 0;
    Object.assign(button.style, {
      left: `${box.x}px`, top: `${box.y}px`, width: `${box.width}px`, height: `${box.height}px`, fontSize: `${this.layout.size}px`,
    }); // prettier-ignore
  }

  /** Arrow keys walk along a side and over to the other. */
  walk(event, side, place) {
    const along = this.layout.across ? { ArrowRight: 1, ArrowLeft: -1 } : { ArrowDown: 1, ArrowUp: -1 };
    const over = this.layout.across ? ["ArrowUp", "ArrowDown"] : ["ArrowLeft", "ArrowRight"];
    const other = side === "keys" ? "queries" : "keys";
    let next = null;
    if (event.key in along) next = [side, place + along[event.key]];
    else if (event.key === "Home") next = [side, 0];
    else if (event.key === "End") next = [side, this.matrix[side].length - 1];
    else if (over.includes(event.key)) next = [other, Math.min(place, this.matrix[other].length - 1)];
    else if (event.key === "Escape") this.page.set({ token: "" });
    const item = next && this.lists[next[0]].children[next[1]];
    if (!item) return;
    event.preventDefault();
    item.firstChild.focus();
  }

  pin(side, place) {
    const name = `${side[0]}${place}`;
    this.page.set({ token: this.page.state.token === name ? "" : name });
  }

  look(focus, aloud = false) {
    this.focus = focus || this.pinned();
    this.show();
    if (aloud && focus) this.page.announce(this.spoken());
  }

  show() {
    this.page.reading.token(this.matrix, this.focus);
    this.tint();
    this.redraw();
  }

  /** The weight between a token and each one of the other side. */
  weightsOf({ side, place }) {
    const { weights, keys, queries } = this.matrix;
    if (side === "queries") return weights.subarray(place * keys.length, (place + 1) * keys.length);
    return Float32Array.from(queries, (query, row) => weights[row * keys.length + place]);
  }

  spoken() {
    const { side, place } = this.focus;
    const values = this.weightsOf(this.focus);
    const other = this.matrix[side === "keys" ? "queries" : "keys"];
    const start = this.page.say(side === "queries" ? "looks.at" : "seen.by", { token: this.matrix[side][place].text });
    return `${start} ${strongest(values, 3).map((at) => `${other[at].text} ${this.page.percent(values[at])}`).join(", ")}`;
  }

  /** What colour each token has while one is looked at. */
  tints(side) {
    const { focus } = this;
    if (!focus || focus.side === side) return null;
    return this.weightsOf(focus);
  }

  tint() {
    const { colours } = this.page;
    if (!this.focus && !this.tinted) return;
    this.tinted = Boolean(this.focus);
    for (const side of ["keys", "queries"]) {
      const values = this.tints(side);
      Array.from(this.lists[side].children, (item, place) => {
        const { style, classList } = item.firstChild;
        style.backgroundColor = values ? shade(colours.ramp, values[place]) : "";
        style.color = values ? inkOn(colours.ramp, values[place]) : "";
        classList.toggle("looking", Boolean(this.focus && this.focus.side === side && this.focus.place === place));
      });
    }
  }

  /** The part of the board that is on the screen, and so much more above and below. */
  inSight(beyond) {
    const { top } = this.board.getBoundingClientRect();
    const within = (y) => Math.min(this.layout.height, Math.max(0, y));
    return [within(Math.floor(-top - beyond)), within(Math.ceil(globalThis.innerHeight - top + beyond))];
  }

  /** Whether something is on the screen that is not drawn. */
  isBehind() {
    if (!this.layout || !this.drawn) return false;
    const [top, bottom] = this.inSight(0);
    return top < this.drawn[0] || bottom > this.drawn[1];
  }

  /** Draw what is in sight: of a long text a canvas of all lines would be too large to be sharp, or fast. */
  drawNow(beyond = BEYOND) {
    if (!this.layout) return;
    const [top, bottom] = this.inSight(beyond);
    this.drawn = [top, bottom];
    this.canvas.style.top = `${top}px`;
    const pen = sharpen(this.canvas, this.layout.width, Math.max(1, bottom - top));
    this.drawLines(moved(pen, 0, -top), top, bottom);
  }

  drawLines(pen, top = 0, bottom = Infinity) {
    const { layout, focus, page } = this;
    const { weights, keys, queries } = this.matrix;
    const near = [];
    const misses = (q, k) => {
      const [y1, y2] = [layout.keys[k].y, layout.queries[q].y];
      return Math.max(y1, y2) + layout.keys[k].height < top || Math.min(y1, y2) > bottom;
    };
    for (let q = 0; q < queries.length; q += 1) {
      for (let k = 0; k < keys.length; k += 1) {
        const weight = weights[q * keys.length + k];
        if (weight <= 0.002 || misses(q, k)) continue;
        const chosen = focus && (focus.side === "queries" ? focus.place === q : focus.place === k);
        if (chosen) near.push([q, k, weight]);
        else if (!chosen && weight >= Math.max(this.least, 0.004)) this.drawLine(pen, q, k, weight, focus ? 0.1 : 1);
      }
    }
    for (const [q, k, weight] of near) {
      pen.line(curve(layout, layout.keys[k], layout.queries[q]), {
        stroke: page.colours.accent, thickness: 1 + 5 * weight, opacity: 0.18 + 0.82 * weight,
      }); // prettier-ignore
    }
  }

  drawLine(pen, q, k, weight, fade) {
    pen.line(curve(this.layout, this.layout.keys[k], this.layout.queries[q]), {
      stroke: this.page.colours.accent, thickness: 0.75 + 3.75 * weight, opacity: fade * Math.min(0.85, 0.01 + 0.95 * weight),
    }); // prettier-ignore
  }

  /** The view as a drawing, for files. */
  picture() {
    const { layout, page } = this;
    return {
      width: layout.width,
      height: layout.height,
      draw: (pen) => {
        this.drawLines(pen);
        for (const side of ["keys", "queries"]) {
          const [x, y, align] = layout.captions[side];
          pen.text(this.page.caption(side).join(" "), x, y, { size: 12, fill: page.colours.muted, align });
          this.drawTokens(pen, side);
        }
      },
    };
  }

  drawTokens(pen, side) {
    const { layout, page, focus } = this;
    const values = this.tints(side);
    this.matrix[side].forEach((token, place) => {
      const { x, y, width, height } = layout[side][place];
      const looking = focus && focus.side === side && focus.place === place;
      const fill = values ? shade(page.colours.ramp, values[place]) : looking ? page.colours["accent-soft"] : null;
      if (fill) pen.rect(x, y, width, height, { fill, radius: 7, stroke: looking ? page.colours.accent : undefined });
      const ink = values ? inkOn(page.colours.ramp, values[place]) : token.special ? page.colours.muted : page.colours.ink;
      const align = layout.across ? "center" : side === "keys" ? "right" : "left";
      const at = { center: x + width / 2, right: x + width - 10, left: x + 10 }[align];
      pen.text(fitted(token.text, width - 10, layout.size), at, y + height / 2, { size: layout.size, fill: ink, align });
    });
  }
}
