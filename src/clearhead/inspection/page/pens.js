// One drawing, two papers: the same calls draw on a canvas (screen, PNG) or write an SVG. Text is always text.

import { rampStep } from "./colour.js";

export const FONT = [
  "-apple-system", "BlinkMacSystemFont", '"Segoe UI"', "Roboto", '"Noto Sans"', '"PingFang SC"',
  '"Microsoft YaHei"', '"Noto Sans CJK SC"', '"Source Han Sans SC"', "system-ui", "sans-serif",
].join(", "); // prettier-ignore

const SVG = "http://www.w3.org/2000/svg";
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/;
const ruler = typeof document === "undefined" ? null : document.createElement("canvas").getContext("2d");
const widths = new Map();

/** Whether a text is written from right to left, as far as its letters tell. */
export function isRightToLeft(text) {
  return RIGHT_TO_LEFT.test(text);
}

/** How wide a text is. */
export function textWidth(text, size, weight = 400) {
  const name = `${size} ${weight} ${text}`;
  if (!widths.has(name)) {
    if (widths.size > 20000) widths.clear();
    ruler.font = `${weight} ${size}px ${FONT}`;
    widths.set(name, ruler.measureText(text).width);
  }
  return widths.get(name);
}

/** A text that fits into a width, cut with an ellipsis where it must be. */
export function fitted(text, width, size, weight = 400) {
  if (textWidth(text, size, weight) <= width) return text;
  const signs = Array.from(text);
  let low = 0;
  let high = signs.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (textWidth(`${signs.slice(0, middle).join("")}…`, size, weight) <= width) low = middle;
    else high = middle - 1;
  }
  return `${signs.slice(0, low).join("")}…`;
}

/** Draws on a canvas. */
export class CanvasPen {
  constructor(context) {
    this.context = context;
  }

  rect(x, y, width, height, { fill, stroke, thickness = 1, radius = 0, opacity = 1 } = {}) {
    const { context } = this;
    context.globalAlpha = opacity;
    context.beginPath();
    if (radius && context.roundRect) context.roundRect(x, y, width, height, Math.min(radius, width / 2, height / 2));
    else context.rect(x, y, width, height);
    if (fill) {
      context.fillStyle = fill;
      context.fill();
    }
    if (stroke) {
      context.strokeStyle = stroke;
      context.lineWidth = thickness;
      context.stroke();
    }
    context.globalAlpha = 1;
  }

  /** A line through two points, or a Bézier curve through four. */
  line(points, { stroke, thickness = 1, opacity = 1, dash = [] } = {}) {
    const { context } = this;
    const [start, ...rest] = points;
    context.globalAlpha = opacity;
    context.strokeStyle = stroke;
    context.lineWidth = thickness;
    context.setLineDash(dash);
    context.beginPath();
    context.moveTo(...start);
    if (rest.length === 3) context.bezierCurveTo(...rest.flat());
    else context.lineTo(...rest[0]);
    context.stroke();
    context.setLineDash([]);
    context.globalAlpha = 1;
  }

  text(text, x, y, { size = 13, weight = 400, fill, align = "left", turn = 0, opacity = 1 } = {}) {
    const { context } = this;
    context.save();
    context.globalAlpha = opacity;
    context.font = `${weight} ${size}px ${FONT}`;
    context.fillStyle = fill;
    context.textAlign = align;
    context.textBaseline = "middle";
    context.direction = isRightToLeft(text) ? "rtl" : "ltr";
    context.translate(x, y);
    if (turn) context.rotate((turn * Math.PI) / 180);
    context.fillText(text, 0, 0.5);
    context.restore();
  }

  image(canvas, x, y, width, height) {
    this.context.imageSmoothingEnabled = width < canvas.width;
    this.context.drawImage(canvas, x, y, width, height);
  }

  /** Draw only inside a rectangle. */
  within(x, y, width, height, draw) {
    this.context.save();
    this.context.beginPath();
    this.context.rect(x, y, width, height);
    this.context.clip();
    draw();
    this.context.restore();
  }
}

function clean(text) {
  // What XML cannot hold, halves of surrogate pairs included, would make the whole file unreadable.
  return text
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd")
    .replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "\ufffd");
}

/** Writes an SVG. */
export class SvgPen {
  constructor(width, height, title) {
    this.root = this.node("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": FONT, role: "img" });
    this.node("title", {}, this.root).textContent = clean(title);
    this.into = this.root;
    this.clips = 0;
  }

  node(name, attributes, parent = null) {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value !== undefined && value !== null) {
        node.setAttribute(key, typeof value === "number" ? String(Math.round(value * 100) / 100) : value);
      }
    }
    if (parent) parent.append(node);
    return node;
  }

  rect(x, y, width, height, { fill = "none", stroke, thickness, radius, opacity } = {}) {
    const rx = radius ? Math.min(radius, width / 2, height / 2) : undefined;
    this.node("rect", { x, y, width, height, rx, fill, stroke, "stroke-width": thickness, opacity }, this.into);
  }

  line(points, { stroke, thickness = 1, opacity, dash = [] } = {}) {
    const at = points.map((point) => point.map((part) => Math.round(part * 100) / 100).join(" "));
    const d = at.length === 4 ? `M${at[0]}C${at.slice(1).join(" ")}` : `M${at[0]}L${at[1]}`;
    const dashes = dash.length ? dash.join(" ") : undefined;
    const attributes = { d, fill: "none", stroke, "stroke-width": thickness, opacity, "stroke-dasharray": dashes };
    this.node("path", attributes, this.into);
  }

  text(text, x, y, { size = 13, weight, fill, align = "left", turn = 0, opacity } = {}) {
    const rightToLeft = isRightToLeft(text);
    // In right-to-left text an SVG anchor's start is its right end.
    const anchors = rightToLeft ? { left: "end", right: "start" } : { left: "start", right: "end" };
    const node = this.node("text", {
      x, y, fill, opacity, "font-size": size, "font-weight": weight, "text-anchor": anchors[align] || "middle",
      "dominant-baseline": "central", direction: rightToLeft ? "rtl" : undefined,
      transform: turn ? `rotate(${turn} ${Math.round(x * 100) / 100} ${Math.round(y * 100) / 100})` : undefined,
    }, this.into); // prettier-ignore
    node.setAttributeNS("http://www.w3.org/XML/1998/namespace", "xml:space", "preserve");
    node.textContent = clean(text);
  }

  image(canvas, x, y, width, height) {
    const attributes = { x, y, width, height, preserveAspectRatio: "none", href: canvas.toDataURL("image/png") };
    const node = this.node("image", attributes, this.into);
    // An attribute, for the policy of the page forbids styles in elements.
    node.setAttribute("image-rendering", "pixelated");
  }

  within(x, y, width, height, draw) {
    this.clips += 1;
    const id = `clip-${this.clips}`;
    const clip = this.node("clipPath", { id }, this.into);
    this.node("rect", { x, y, width, height }, clip);
    const outside = this.into;
    this.into = this.node("g", { "clip-path": `url(#${id})` }, outside);
    draw();
    this.into = outside;
  }

  toString() {
    return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(this.root)}\n`;
  }
}

/** The same pen, with its paper moved. */
export function moved(pen, right, down) {
  const at = ([x, y]) => [x + right, y + down];
  return {
    rect: (x, y, ...rest) => pen.rect(x + right, y + down, ...rest),
    line: (points, style) => pen.line(points.map(at), style),
    text: (text, x, y, style) => pen.text(text, x + right, y + down, style),
    image: (canvas, x, y, ...rest) => pen.image(canvas, x + right, y + down, ...rest),
    within: (x, y, width, height, draw) => pen.within(x + right, y + down, width, height, draw),
  };
}

/** A canvas as sharp as the screen, but no larger than browsers allow; its pen draws in CSS pixels. */
export function sharpen(canvas, width, height, wanted = globalThis.devicePixelRatio || 1) {
  const scale = Math.min(wanted, 8192 / Math.max(width, height, 1), Math.sqrt(3.2e7 / Math.max(1, width * height)));
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return new CanvasPen(context);
}

/** A matrix as a picture of one pixel for each cell; of a large matrix each pixel is the largest of its cells. */
export function heatPicture(values, rows, columns, table, largest, most = Infinity) {
  const step = Math.max(1, Math.ceil(Math.max(rows, columns) / most));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.ceil(columns / step));
  canvas.height = Math.max(1, Math.ceil(rows / step));
  const context = canvas.getContext("2d");
  const picture = context.createImageData(canvas.width, canvas.height);
  for (let y = 0; y < canvas.height; y += 1) {
    for (let x = 0; x < canvas.width; x += 1) {
      let weight = 0;
      for (let r = y * step; r < Math.min(rows, (y + 1) * step); r += 1) {
        for (let c = x * step; c < Math.min(columns, (x + 1) * step); c += 1) weight = Math.max(weight, values[r * columns + c]);
      }
      const colour = rampStep(weight / largest) * 3;
      const pixel = (y * canvas.width + x) * 4;
      picture.data[pixel] = table[colour];
      picture.data[pixel + 1] = table[colour + 1];
      picture.data[pixel + 2] = table[colour + 2];
      picture.data[pixel + 3] = 255;
    }
  }
  context.putImageData(picture, 0, 0);
  return canvas;
}
