// The beam tree: a column for each step, the winner's path on top, what was dropped below it.

import { make, Window } from "./parts.js";
import { fitted, textWidth } from "./pens.js";
import { labelOf } from "./weights.js";

const ROW = 36;
const NODE = 26;
const LINK = 34;

/** Where every node of the tree stands, and how large the drawing is. */
function placeNodes(nodes) {
  const byId = new Map(nodes.map((node) => [node.id, { ...node, text: labelOf(node.text), children: [] }]));
  const placed = [...byId.values()];
  for (const node of placed) byId.get(node.parent)?.children.push(node);
  const steps = [...new Set(placed.map((node) => node.step))].sort((a, b) => a - b);
  let x = 8;
  let lowest = 0;
  for (const step of steps) {
    const column = placed.filter((node) => node.step === step);
    const rowOf = (node) => byId.get(node.parent)?.row ?? 0;
    const rank = (node) => (node.fate === "winner" ? 0 : 1);
    column.sort((a, b) => rank(a) - rank(b) || rowOf(a) - rowOf(b) || b.score - a.score);
    const width = Math.min(130, Math.max(34, ...column.map((node) => textWidth(node.text, 13, 500) + 20)));
    column.forEach((node, row) => Object.assign(node, { row, x, y: 26 + row * ROW, width }));
    lowest = Math.max(lowest, column.length);
    x += width + LINK;
  }
  return { placed, byId, steps, width: x - LINK + 8, height: 26 + lowest * ROW + 4 };
}

export class BeamTree {
  constructor(page, nodes) {
    this.page = page;
    this.plan = placeNodes(nodes);
    this.node = null;
    this.window = new Window({ role: "application", class: "window tree" }, (pen, seen) => this.draw(pen, seen));
    const { element } = this.window;
    element.setAttribute("aria-label", page.say("tree.label"));
    element.setAttribute("aria-roledescription", page.say("tree.label"));
    element.setAttribute("aria-description", page.say("tree.keys"));
    element.addEventListener("pointermove", (event) => this.pointAt(this.nodeAt(event)));
    element.addEventListener("pointerleave", () => this.pointAt(null));
    element.addEventListener("keydown", (event) => this.walk(event));
    this.said = make("p", { class: "note tree-said" });
    this.legend = make("div", { class: "legend" }, ...["winner", "kept", "finished", "dropped"].map((fate) => make("span", { class: `fate ${fate}` }, page.say(`fate.${fate}`))));
    this.element = make("div", {}, element, make("div", { class: "tree-foot" }, this.legend, this.said));
  }

  sync() {
    this.window.resize(this.plan.width, this.plan.height, 420);
  }

  nodeAt(event) {
    const { x, y, left, top } = this.window.place(event);
    const hit = (node) => x + left >= node.x && x + left <= node.x + node.width && y + top >= node.y && y + top <= node.y + NODE;
    return this.plan.placed.find(hit) || null;
  }

  sentence({ step, text, probability, score, fate }) {
    const { page } = this;
    const values = { step: step + 1, token: text, value: page.percent(probability), score: page.signed(score), fate: page.say(`fate.${fate}`) };
    return page.say("tree.node", values);
  }

  pointAt(node) {
    if (node === this.node) return;
    this.node = node;
    this.said.textContent = node ? this.sentence(node) : "";
    this.window.redraw();
  }

  walk(event) {
    const { placed, byId } = this.plan;
    const from = this.node || placed.find((node) => node.fate === "winner") || placed[0];
    const beside = (step) => placed.find((node) => node.step === from.step && node.row === from.row + step);
    const to = {
      ArrowLeft: () => byId.get(from.parent),
      ArrowRight: () => from.children.toSorted((a, b) => a.row - b.row)[0],
      ArrowUp: () => beside(-1),
      ArrowDown: () => beside(1),
      Escape: () => null,
    }[event.key];
    if (!to) return;
    event.preventDefault();
    const node = event.key === "Escape" ? null : (this.node && to()) || from;
    this.pointAt(node);
    if (!node) return;
    const { element } = this.window;
    element.scrollLeft = Math.min(node.x - 8, Math.max(element.scrollLeft, node.x + node.width + 8 - element.clientWidth));
    element.scrollTop = Math.min(node.y - 26, Math.max(element.scrollTop, node.y + ROW - element.clientHeight));
    this.page.announce(this.sentence(node));
  }

  /** The way from the root to the node that is pointed at. */
  lineage() {
    const line = new Set();
    for (let node = this.node; node; node = this.plan.byId.get(node.parent)) line.add(node.id);
    return line;
  }

  draw(pen, seen) {
    const { placed, byId, steps } = this.plan;
    const { colours } = this.page;
    const line = this.lineage();
    const near = (node) => node.x + node.width + LINK > seen.left - 200 && node.x < seen.left + seen.width + 200;
    const at = (node) => [node.x - seen.left, node.y - seen.top];
    for (const step of steps) {
      const column = placed.find((node) => node.step === step);
      if (near(column)) pen.text(String(step + 1), column.x - seen.left + column.width / 2, 11 - seen.top, { size: 11, fill: colours.muted, align: "center" });
    }
    for (const node of placed) {
      const parent = byId.get(node.parent);
      if (!parent || !near(node)) continue;
      const [x, y] = at(node);
      const [px, py] = at(parent);
      const ends = [px + parent.width, py + NODE / 2, x, y + NODE / 2];
      const middle = (ends[0] + ends[2]) / 2;
      const winner = node.fate === "winner";
      pen.line([[ends[0], ends[1]], [middle, ends[1]], [middle, ends[3]], [ends[2], ends[3]]], {
        stroke: line.has(node.id) ? colours.warm : winner ? colours.accent : colours.faint,
        thickness: winner || line.has(node.id) ? 2.25 : 1.25, dash: node.fate === "dropped" ? [3, 3] : [],
      }); // prettier-ignore
    }
    for (const node of placed) if (near(node)) this.drawNode(pen, node, at(node), line.has(node.id));
  }

  drawNode(pen, node, [x, y], inLine) {
    const { colours } = this.page;
    const looks = {
      winner: { fill: colours.accent, ink: colours["on-accent"] },
      kept: { fill: colours["accent-soft"], ink: colours.ink },
      finished: { fill: colours.panel, ink: colours.ink, stroke: colours.accent },
      dropped: { fill: colours.sunken, ink: colours.muted },
    }[node.fate] || { fill: colours.sunken, ink: colours.ink };
    const stroke = inLine ? colours.warm : looks.stroke;
    pen.rect(x, y, node.width, NODE, { fill: looks.fill, stroke, thickness: inLine ? 2 : 1.25, radius: 7 });
    const text = fitted(node.text, node.width - 12, 13);
    pen.text(text, x + node.width / 2, y + NODE / 2, { size: 13, fill: looks.ink, align: "center" });
  }
}
