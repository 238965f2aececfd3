// The choice of heads: a small grid, a row for each layer, a column for each head; one, several, or all.

import { field, make, segmented, ticked } from "./parts.js";

/** The cells of the grid as [layer, head], with "all" written out. */
export function chosenHeads(block, heads) {
  const there = heads === "all" ? [] : heads.filter(([layer, head]) => block.has(layer, head));
  return there.length ? there : block.everyHead;
}

export class HeadPicker {
  constructor(page) {
    this.page = page;
    this.several = false;
    this.at = [0, 0];
    this.summary = make("span", { class: "summary-value" });
    this.grid = make("div", { class: "picker", role: "grid", "aria-label": page.say("heads.grid"), "aria-multiselectable": "true" });
    this.tick = ticked(page.say("heads.several"), "several", (on) => {
      this.several = on;
    });
    const options = ["mean", "max"].map((value) => ({ value, text: page.say(`mix.${value}`) }));
    this.mix = segmented(page.say("mix"), options, "mix", (mix) => page.set({ mix }));
    const { switches } = page.options;
    this.switch = switches && make("button", { type: "button", class: "small", "data-key": "switch", onclick: () => switches.toggle(page.chosenNames()) });
    const wide = globalThis.matchMedia("(min-width: 800px)").matches && !page.narrow();
    this.element = make(
      "details",
      { class: "field heads", open: wide },
      make("summary", { "data-key": "heads" }, make("span", { class: "field-name" }, page.say("heads")), this.summary),
      make("div", { class: "scroll-x" }, this.grid),
      this.tick.element,
      field(page.say("mix"), this.mix.element),
      this.switch,
    );
    this.grid.addEventListener("keydown", (event) => this.walk(event));
  }

  sync() {
    const { page } = this;
    const { block } = page;
    this.element.hidden = block.everyHead.length === 1;
    const shape = `${block.kind} ${block.layers} ${block.heads}`;
    if (this.shape !== shape) {
      this.shape = shape;
      this.at = [0, 0];
      this.build();
    }
    const chosen = page.chosen();
    const names = new Set(chosen.map(String));
    this.summary.textContent = page.say("heads.chosen", { count: chosen.length, total: block.everyHead.length });
    for (const button of this.grid.querySelectorAll("[data-cell]")) {
      button.setAttribute("aria-selected", String(names.has(button.dataset.cell)));
    }
    this.mix.sync(page.state.mix);
    this.tick.sync(this.several);
    if (this.switch) this.switch.textContent = page.options.switches.say(chosen.every(([layer, head]) => page.isOff(block.kind, layer, head)));
  }

  build() {
    const { page } = this;
    const { block } = page;
    const there = (heads) => heads.filter(([layer, head]) => block.has(layer, head));
    const header = make("div", { role: "row" }, this.cell([-1, -1], page.say("heads.all"), page.say("heads.all"), () => page.set({ heads: "all" })));
    for (let head = 0; head < block.heads; head += 1) {
      const every = Array.from({ length: block.layers }, (none, layer) => [layer, head]);
      header.append(this.cell([-1, head], String(head), page.say("head.every", { head }), () => this.choose(there(every))));
    }
    const rows = Array.from({ length: block.layers }, (none, layer) => {
      const every = Array.from({ length: block.heads }, (nothing, head) => [layer, head]);
      const first = this.cell([layer, -1], page.say("layer.short", { layer }), page.say("layer.every", { layer }), () => this.choose(there(every)));
      return make("div", { role: "row" }, first, ...every.map((head) => this.headCell(head)));
    });
    this.grid.style.setProperty("--columns", String(block.heads));
    this.grid.replaceChildren(header, ...rows);
    this.stop();
  }

  cell(place, text, label, choose) {
    const role = place[0] < 0 && place[1] < 0 ? "columnheader" : place[0] < 0 ? "columnheader" : "rowheader";
    const attributes = { type: "button", role, class: "picker-name", "aria-label": label, title: label, "data-place": String(place), "data-key": `pick-${place}` };
    return make("button", { ...attributes, onclick: choose }, text);
  }

  headCell([layer, head]) {
    const { page } = this;
    if (!page.block.has(layer, head)) return make("span", { role: "gridcell", class: "picker-gone", title: page.say("head.gone"), "aria-label": page.say("head.gone") });
    const off = page.isOff(page.block.kind, layer, head);
    const habit = page.habit(page.headFacts(page.block.kind, layer, head)?.label);
    const label = [page.say("layer.head", { layer, head }), habit, off && page.say("head.off")].filter(Boolean).join(": ");
    return make("button", {
      type: "button", role: "gridcell", class: `picker-cell${off ? " off" : ""}`, "aria-label": label, title: label,
      "data-cell": `${layer},${head}`, "data-place": `${layer},${head}`, "data-key": `pick-${layer},${head}`,
      onclick: (event) => this.choose([[layer, head]], event.shiftKey || event.ctrlKey || event.metaKey),
    }); // prettier-ignore
  }

  /** Take these heads alone, or, when several may be chosen, switch them on or off beside the others. */
  choose(heads, beside = false) {
    const { page } = this;
    if (!(this.several || beside)) {
      page.set({ heads });
      return;
    }
    const now = page.state.heads === "all" ? [] : page.chosen();
    const names = new Set(heads.map(String));
    const rest = now.filter((head) => !names.has(String(head)));
    const allOn = rest.length === now.length - heads.length;
    const next = allOn ? rest : [...rest, ...heads].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    page.set({ heads: next.length ? next : "all" });
  }

  /** One stop for the tab key; arrow keys walk. */
  stop() {
    for (const button of this.grid.querySelectorAll("button")) button.tabIndex = button.dataset.place === String(this.at) ? 0 : -1;
  }

  walk(event) {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    const from = event.target.dataset.place?.split(",").map(Number);
    if (!step || !from) return;
    const to = [from[0] + step[0], from[1] + step[1]];
    const button = this.grid.querySelector(`[data-place="${to}"]`);
    event.preventDefault();
    if (!button) return;
    this.at = to;
    this.stop();
    button.focus();
  }
}
