// Small pieces of page that the views share: elements, choices, tokens, bars, a window onto a large drawing.

import { CanvasPen, sharpen } from "./pens.js";

let lastId = 0;

/** A name that no other element of the document has. */
export function freshId() {
  lastId += 1;
  return `clearhead-${lastId}`;
}

/** An element with attributes and children; strings among the children become text, never markup. */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** What a token says, as an element with a direction of its own. */
export function tokenText(token) {
  return make("bdi", { class: token.special ? "special" : undefined }, token.text);
}

/** A choice of one among a few, as buttons side by side that the arrow keys walk through. */
export function segmented(label, options, key, choose) {
  const group = make("div", { class: "segments", role: "radiogroup", "aria-label": label });
  const buttons = options.map(({ value, text, title }) => {
    const attributes = { type: "button", role: "radio", title, "data-key": `${key}-${value}` };
    return make("button", { ...attributes, onclick: () => choose(value) }, text);
  });
  group.append(...buttons);
  group.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const at = buttons.indexOf(event.target);
    if (!step || at < 0) return;
    event.preventDefault();
    const next = (at + step + buttons.length) % buttons.length;
    buttons[next].focus();
    choose(options[next].value);
  });
  const sync = (chosen) => {
    const any = options.some(({ value }) => value === chosen);
    buttons.forEach((button, place) => {
      const on = options[place].value === chosen;
      button.setAttribute("aria-checked", String(on));
      button.tabIndex = on || (!any && place === 0) ? 0 : -1;
    });
  };
  return { element: group, sync };
}

/** A box to tick. */
export function ticked(label, key, choose) {
  const input = make("input", { type: "checkbox", "data-key": key, onchange: () => choose(input.checked) });
  return { element: make("label", { class: "tick" }, input, make("span", {}, label)), sync: (on) => (input.checked = on) };
}

/** A labelled part of the controls. */
export function field(label, ...children) {
  return make("div", { class: "field" }, make("div", { class: "field-name", "aria-hidden": "true" }, label), ...children);
}

/** Rows of a name, a bar and a value. */
export function bars(rows) {
  return make(
    "ol",
    { class: "bars" },
    ...rows.map(({ token, share, value, mark, title }) => {
      const fill = make("span", { class: "bar-fill" });
      fill.style.width = `${Math.max(0.5, 100 * Math.min(1, share))}%`;
      const line = make("span", { class: "bar", "aria-hidden": "true" }, fill);
      const name = make("span", { class: "bar-name" }, token.nodeType ? token : tokenText(token));
      const number = make("span", { class: "bar-value" }, value);
      return make("li", { class: mark ? "marked" : undefined, title }, name, number, line);
    }),
  );
}

/** Call at most once for each frame of the screen. */
export function eachFrame(draw) {
  let asked = 0;
  return () => {
    if (asked) return;
    asked = requestAnimationFrame(() => {
      asked = 0;
      draw();
    });
  };
}

/** A window onto a drawing that may be far larger than any canvas: only what is seen is drawn, again when scrolled. */
export class Window {
  constructor(attributes, draw) {
    this.canvas = make("canvas", { class: "window-canvas", "aria-hidden": "true" });
    this.space = make("div", { class: "window-space" }, this.canvas);
    this.element = make("div", { class: "window", tabindex: "0", ...attributes }, this.space);
    this.draw = draw;
    this.width = this.height = 0;
    this.redraw = eachFrame(() => this.drawNow());
    this.element.addEventListener("scroll", this.redraw, { passive: true });
  }

  /** Say how large the whole drawing is, and how high the window may be. */
  resize(width, height, mostHeight) {
    this.width = Math.ceil(width);
    this.height = Math.ceil(height);
    this.space.style.width = `${this.width}px`;
    this.space.style.height = `${this.height}px`;
    this.element.style.maxHeight = `${mostHeight}px`;
    this.redraw();
  }

  drawNow() {
    const width = Math.min(this.element.clientWidth, this.width);
    const height = Math.min(this.element.clientHeight, this.height);
    if (!width || !height) return;
    const pen = sharpen(this.canvas, width, height);
    const { scrollLeft, scrollTop } = this.element;
    this.draw(pen, { left: scrollLeft, top: scrollTop, width, height });
  }

  /** Where a pointer is, in the whole drawing and in the window. */
  place(event) {
    const box = this.element.getBoundingClientRect();
    const x = event.clientX - box.left - this.element.clientLeft;
    const y = event.clientY - box.top - this.element.clientTop;
    return { x, y, left: this.element.scrollLeft, top: this.element.scrollTop };
  }
}

/** A drawing of a given size on a canvas of its own, as for a PNG. */
export function onCanvas(width, height, scale, draw) {
  const canvas = document.createElement("canvas");
  const pen = sharpen(canvas, width, height, scale);
  if (pen instanceof CanvasPen) draw(pen);
  return canvas;
}
