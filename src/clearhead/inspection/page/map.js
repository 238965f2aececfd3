// The map view: the heat map of the chosen heads, with labels that stay while it scrolls, a crosshair and values.

import { inkOn, shade } from "./colour.js";
import { make, Window } from "./parts.js";
import { fitted, heatPicture, textWidth } from "./pens.js";
import { roundTop } from "./weights.js";

const LARGEST_CELL = 44;
const SMALLEST_CELL = 2;
const ROOM_FOR_A_NUMBER = 30;
const LARGEST_LETTERS = 13;
const AXIS = 20;

export class MapView {
  constructor(page) {
    this.page = page;
    this.window = new Window({ role: "application", class: "window map" }, (pen, seen) => this.draw(pen, seen));
    this.tip = make("div", { class: "tip", "aria-hidden": "true", hidden: true });
    this.low = make("span", {}, "0");
    this.high = make("span", {}, "1");
    this.scaleName = make("span", { class: "muted" });
    this.unit = make("span", { class: "muted" });
    const legend = make("div", { class: "legend" }, this.scaleName, this.low, make("span", { class: "ramp" }), this.high, this.unit);
    this.frame = make("div", { class: "map-frame" }, this.window.element, this.tip);
    this.element = make("div", { class: "map-view" }, this.frame, legend);
    this.cell = null;
    this.listen();
  }

  listen() {
    const { element } = this.window;
    element.addEventListener("pointermove", (event) => this.point(event));
    element.addEventListener("pointerleave", () => this.leave());
    element.addEventListener("click", (event) => {
      const cell = this.cellAt(event);
      if (cell) this.page.set({ token: `q${cell.q},k${cell.k}` });
    });
    element.addEventListener("keydown", (event) => this.walk(event));
  }

  sync() {
    const { page } = this;
    this.matrix = page.matrix();
    this.measure(Math.floor(this.element.clientWidth) || 640);
    this.heat = null;
    this.largest = roundTop(this.matrix.weights);
    this.high.textContent = String(this.largest);
    const { element } = this.window;
    element.setAttribute("aria-label", page.say("map.label", { title: page.title() }));
    element.setAttribute("aria-roledescription", page.say("view.map"));
    element.setAttribute("aria-description", page.say("map.keys"));
    this.scaleName.textContent = page.say("weight");
    this.unit.textContent = this.cellSize >= ROOM_FOR_A_NUMBER ? `· ${page.say("map.percent")}` : "";
    this.window.resize(this.size.width, this.size.height, Math.max(320, Math.round(globalThis.innerHeight * 0.8)));
    this.cell = this.pinned();
    this.tip.hidden = true;
    this.show();
  }

  /** The map as a picture of one pixel for each cell. */
  heatOf() {
    const { weights, queries, keys } = this.matrix;
    this.heat ??= heatPicture(weights, queries.length, keys.length, this.page.colours.ramp, this.largest);
    return this.heat;
  }

  /** Sizes that make the whole map fit at zoom 1; letters shrink with the cells, so the second round knows better. */
  measure(width) {
    const { keys, queries } = this.matrix;
    for (let round = 0, size = LARGEST_LETTERS; round < 2; round += 1) {
      const longest = (tokens) => Math.max(10, ...tokens.map((token) => textWidth(token.text, size)));
      const left = Math.ceil(Math.min(longest(queries) + 16, width * 0.3, 180)) + AXIS;
      const roomy = (width - left - (size < LARGEST_LETTERS ? 8 : 40)) / keys.length;
      const cell = Math.max(SMALLEST_CELL, Math.min(LARGEST_CELL, roomy)) * this.page.state.zoom;
      const turn = cell >= 26 ? -45 : -90;
      const label = Math.min(longest(keys), 130);
      const top = Math.ceil(turn === -45 ? label * 0.71 + 22 : label + 14) + AXIS;
      const right = turn === -45 ? Math.ceil(label * 0.71) : 6;
      const whole = { width: left + cell * keys.length + right, height: top + cell * queries.length + 2 };
      Object.assign(this, { cellSize: cell, left, top, turn, label, letters: size, size: whole });
      size = Math.max(9, Math.min(LARGEST_LETTERS, cell * 0.8));
    }
  }

  pinned() {
    const [, q, k] = this.page.state.token.match(/^q(\d+),k(\d+)$/) || [];
    return q !== undefined && Number(q) < this.matrix.queries.length && Number(k) < this.matrix.keys.length
      ? { q: Number(q), k: Number(k) }
      : null;
  }

  cellAt(event) {
    const { x, y, left, top } = this.window.place(event);
    if (x < this.left || y < this.top) return null;
    const k = Math.floor((x + left - this.left) / this.cellSize);
    const q = Math.floor((y + top - this.top) / this.cellSize);
    return q >= 0 && k >= 0 && q < this.matrix.queries.length && k < this.matrix.keys.length ? { q, k } : null;
  }

  point(event) {
    this.cell = this.cellAt(event) || this.pinned();
    this.show();
    const over = this.cellAt(event);
    this.tip.hidden = !over;
    if (!over) return;
    this.tip.textContent = this.sentence(over);
    const box = this.frame.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    const room = box.width - this.tip.offsetWidth - 4;
    this.tip.style.left = `${Math.max(4, Math.min(room, x + 14))}px`;
    this.tip.style.top = `${y + (y > 80 ? -16 - this.tip.offsetHeight : 22)}px`;
  }

  leave() {
    this.tip.hidden = true;
    this.cell = this.pinned();
    this.show();
  }

  walk(event) {
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const from = this.cell || { q: 0, k: 0 };
    const last = { q: this.matrix.queries.length - 1, k: this.matrix.keys.length - 1 };
    let to = null;
    if (event.key in steps) {
      const [down, right] = this.cell ? steps[event.key] : [0, 0];
      to = { q: Math.min(last.q, Math.max(0, from.q + down)), k: Math.min(last.k, Math.max(0, from.k + right)) };
    } else if (event.key === "Home") to = { q: from.q, k: 0 };
    else if (event.key === "End") to = { q: from.q, k: last.k };
    else if (event.key === "Escape") this.page.set({ token: "" });
    if (!to) return;
    event.preventDefault();
    this.page.set({ token: `q${to.q},k${to.k}` });
    this.bringIntoSight(to);
    this.page.announce(this.sentence(to));
  }

  bringIntoSight({ q, k }) {
    const { element } = this.window;
    const x = k * this.cellSize;
    const y = q * this.cellSize;
    const wide = element.clientWidth - this.left - this.cellSize;
    const high = element.clientHeight - this.top - this.cellSize;
    element.scrollLeft = Math.min(x, Math.max(element.scrollLeft, x - wide));
    element.scrollTop = Math.min(y, Math.max(element.scrollTop, y - high));
  }

  sentence({ q, k }) {
    const { weights, keys, queries } = this.matrix;
    const value = this.page.percent(weights[q * keys.length + k]);
    return this.page.say("looks.value", { query: queries[q].text, key: keys[k].text, value });
  }

  show() {
    this.page.reading.cell(this.matrix, this.cell);
    this.window.redraw();
  }

  draw(pen, seen) {
    const { left, top } = this;
    pen.within(left, top, seen.width - left, seen.height - top, () => this.drawCells(pen, seen));
    this.drawLabels(pen, seen);
    this.drawAxes(pen, seen);
  }

  /** What the columns are and what the rows are, in the middle of what is seen of them. */
  drawAxes(pen, seen) {
    const { cellSize: cell, left, top, page } = this;
    const { keys, queries } = this.matrix;
    const style = { size: 12, fill: page.colours.muted, align: "center" };
    const middle = (from, whole, count, hidden) => from + (Math.min(whole, from + cell * count - hidden) - from) / 2;
    const [columns, rows] = ["keys", "queries"].map((side) => page.caption(side).join(" "));
    const wide = 2 * (middle(left, seen.width, keys.length, seen.left) - left) + 60;
    const high = 2 * (middle(top, seen.height, queries.length, seen.top) - top);
    pen.text(fitted(columns, wide, 12), middle(left, seen.width, keys.length, seen.left), 9, style);
    pen.text(fitted(rows, high, 12), 9, middle(top, seen.height, queries.length, seen.top), { ...style, turn: -90 });
  }

  drawCells(pen, seen) {
    const { cellSize: cell, left, top, page } = this;
    const { weights, keys, queries } = this.matrix;
    const x0 = left - seen.left;
    const y0 = top - seen.top;
    const columns = [Math.floor(seen.left / cell), Math.min(keys.length, Math.ceil((seen.left + seen.width - left) / cell))];
    const rows = [Math.floor(seen.top / cell), Math.min(queries.length, Math.ceil((seen.top + seen.height - top) / cell))];
    if (cell < 12) pen.image(this.heatOf(), x0, y0, cell * keys.length, cell * queries.length);
    else {
      for (let q = rows[0]; q < rows[1]; q += 1) {
        for (let k = columns[0]; k < columns[1]; k += 1) {
          const weight = weights[q * keys.length + k];
          const fill = shade(page.colours.ramp, weight / this.largest);
          pen.rect(x0 + k * cell + 0.5, y0 + q * cell + 0.5, cell - 1, cell - 1, { fill, radius: Math.min(4, cell / 8) });
          if (cell >= ROOM_FOR_A_NUMBER && weight >= 0.005) {
            const ink = inkOn(page.colours.ramp, weight / this.largest);
            const text = String(Math.round(100 * weight));
            pen.text(text, x0 + (k + 0.5) * cell, y0 + (q + 0.5) * cell, { size: 11, fill: ink, align: "center", opacity: 0.85 });
          }
        }
      }
    }
    if (this.cell) this.drawCrosshair(pen, x0, y0);
  }

  drawCrosshair(pen, x0, y0) {
    const { cellSize: cell, page } = this;
    const { q, k } = this.cell;
    const wide = cell * this.matrix.keys.length;
    const high = cell * this.matrix.queries.length;
    const style = { stroke: page.colours.warm, thickness: 1, opacity: 0.9 };
    for (const y of [q * cell, (q + 1) * cell]) pen.line([[x0, y0 + y], [x0 + wide, y0 + y]], style); // prettier-ignore
    for (const x of [k * cell, (k + 1) * cell]) pen.line([[x0 + x, y0], [x0 + x, y0 + high]], style); // prettier-ignore
    pen.rect(x0 + k * cell, y0 + q * cell, cell, cell, { stroke: page.colours.warm, thickness: 2, radius: Math.min(4, cell / 8) });
  }

  drawLabels(pen, seen) {
    const { cellSize: cell, left, top, page } = this;
    const { letters: size } = this;
    const every = Math.max(1, Math.ceil((size + 1) / cell));
    const row = (q, style) => {
      const text = fitted(this.matrix.queries[q].text, left - AXIS - 14, size);
      pen.text(text, left - 8, top - seen.top + (q + 0.5) * cell, { size, align: "right", ...style });
    };
    const column = (k, style) => {
      const x = left - seen.left + (k + 0.5) * cell;
      const text = fitted(this.matrix.keys[k].text, this.label, size);
      pen.text(text, x + (this.turn === -45 ? -2 : 0), top - 8, { size, align: "left", turn: this.turn, ...style });
    };
    const { queries, keys } = this.matrix;
    const plain = (token) => ({ fill: token.special ? page.colours.faint : page.colours.muted });
    const near = (place, chosen) => chosen !== undefined && Math.abs(place - chosen) * cell < 14;
    pen.within(0, top, left, seen.height - top, () => {
      queries.forEach((token, q) => q % every === 0 && !near(q, this.cell?.q) && row(q, plain(token)));
      if (this.cell) row(this.cell.q, { fill: page.colours.ink, weight: 600, size: Math.max(12, size) });
    });
    pen.within(left - 4, 0, seen.width - left + 4, top, () => {
      keys.forEach((token, k) => k % every === 0 && !near(k, this.cell?.k) && column(k, plain(token)));
      if (this.cell) column(this.cell.k, { fill: page.colours.ink, weight: 600, size: Math.max(12, size) });
    });
  }

  picture() {
    const { width, height } = this.size;
    return { width, height, draw: (pen) => this.draw(pen, { left: 0, top: 0, width, height }) };
  }
}
