// The generation view: what was written, coloured by doubt; what each step chose among; the tree of beams.

import { inkOn, shade } from "./colour.js";
import { bars, eachFrame, make, tokenText } from "./parts.js";
import { textWidth } from "./pens.js";
import { BeamTree } from "./tree.js";
import { labelOf } from "./weights.js";

/** How much doubt a probability leaves: none above 95 %, all of it below 10 %. */
function doubtOf(probability) {
  return Math.min(1, Math.max(0, (0.95 - probability) / 0.85));
}

function section(title, ...children) {
  return make("section", { class: "part" }, make("h2", {}, title), ...children);
}

export class GenerationView {
  constructor(page) {
    this.page = page;
    this.element = make("div", { class: "generation-view" });
    this.redraw = eachFrame(() => this.tree?.window.redraw());
  }

  sync() {
    const { page } = this;
    page.reading.nothing();
    const now = `${page.language} ${page.colours.theme}`;
    if (this.made !== now) {
      this.made = now;
      this.build();
    }
    this.choose(page.state.step);
    this.tree?.sync();
  }

  build() {
    const { page } = this;
    const { generation } = page.data;
    this.tree = null;
    this.steps = [];
    this.columns = [];
    if (!generation) {
      this.element.replaceChildren(make("p", { class: "empty" }, page.say("generation.none")));
      return;
    }
    const parts = [this.confidence(generation), this.candidates(generation)];
    if (generation.tree?.length) {
      this.tree = new BeamTree(page, generation.tree);
      parts.push(section(page.say("tree"), this.tree.element));
    }
    if (generation.hypotheses?.length) parts.push(this.hypotheses(generation));
    this.element.replaceChildren(...parts);
  }

  tokenOf(step) {
    return this.page.tokens.target?.[step.token] ?? { text: "?", special: false };
  }

  confidence({ steps }) {
    const { page } = this;
    this.steps = steps.map((step, place) => {
      const token = this.tokenOf(step);
      const doubt = doubtOf(step.probability);
      const value = page.percent(step.probability);
      const button = make(
        "button",
        {
          type: "button", class: ["written", token.special && "special", token.goesOn && "goes-on"].filter(Boolean).join(" "), "data-key": `step-${place}`,
          "aria-label": page.say("step.said", { step: place + 1, token: token.text, value }),
          onclick: () => page.set({ step: place }),
        },
        make("span", { class: "written-text" }, tokenText(token)),
        make("span", { class: "written-value", "aria-hidden": "true" }, value),
      ); // prettier-ignore
      const box = button.firstChild;
      box.style.backgroundColor = shade(page.colours.doubt, doubt);
      box.style.color = token.special ? "" : inkOn(page.colours.doubt, doubt);
      button.addEventListener("keydown", (event) => this.walk(event, place));
      return button;
    });
    const legend = make(
      "div",
      { class: "legend" },
      make("span", {}, page.say("confidence.sure")),
      make("span", { class: "ramp doubt" }),
      make("span", {}, page.say("confidence.unsure")),
      make("span", { class: "muted" }, page.say("confidence.hint")),
    );
    return section(page.say("confidence"), make("div", { class: "written-line", role: "group", "aria-label": page.say("target") }, ...this.steps), legend);
  }

  walk(event, place) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = step && this.steps[place + step];
    if (!next) return;
    event.preventDefault();
    next.focus();
    this.page.set({ step: place + step });
  }

  candidates({ steps }) {
    const { page } = this;
    this.columns = steps.map((step, place) => {
      const rows = step.candidates.map((candidate) => ({
        token: { text: labelOf(candidate.text), special: false }, share: candidate.probability, value: page.percent(candidate.probability),
        mark: candidate.chosen, title: candidate.chosen ? page.say("candidate.chosen") : undefined,
      })); // prettier-ignore
      const column = make("li", { class: "column", onclick: () => page.set({ step: place }) }, make("h3", {}, page.say("candidates.step", { step: place + 1 })), bars(rows));
      for (const chosen of column.querySelectorAll(".marked .bar-name")) chosen.append(make("span", { class: "unheard" }, ` (${page.say("candidate.chosen")})`));
      return column;
    });
    this.strip = make("ol", { class: "columns", tabindex: "0", role: "list", "aria-label": page.say("candidates") }, ...this.columns);
    return section(page.say("candidates"), this.strip);
  }

  hypotheses({ hypotheses }) {
    const { page } = this;
    const rows = hypotheses.map(({ text, score, finished }) =>
      make(
        "li",
        {},
        make("bdi", {}, text),
        make("span", { class: "muted" }, [page.say("hypothesis.score", { score: page.signed(score) }), finished ? "" : page.say("hypothesis.open")].filter(Boolean).join(" · ")),
      ),
    );
    return section(page.say("hypotheses"), make("ol", { class: "hypotheses" }, ...rows));
  }

  /** Show one step's column. */
  choose(place) {
    const at = Math.min(place, this.steps.length - 1);
    this.steps.forEach((button, step) => {
      button.setAttribute("aria-pressed", String(step === at));
      button.tabIndex = step === at ? 0 : -1;
    });
    this.columns.forEach((column, step) => column.classList.toggle("chosen", step === at));
    const column = this.columns[at];
    if (!column || !this.strip.clientWidth) return;
    const middle = column.offsetLeft - this.strip.offsetLeft - (this.strip.clientWidth - column.offsetWidth) / 2;
    this.strip.scrollLeft = middle;
    if (this.said !== at && this.said !== undefined) {
      this.page.announce(this.steps[at].getAttribute("aria-label"));
    }
    this.said = at;
  }

  picture() {
    const { page } = this;
    const { generation } = page.data;
    if (!generation) return { width: 400, height: 40, draw: (pen) => pen.text(page.say("generation.none"), 0, 20, { size: 13, fill: page.colours.muted }) };
    const wide = Math.max(640, this.tree?.plan.width ?? 0);
    const boxes = this.writtenBoxes(wide);
    const high = boxes.at(-1).y + 56;
    return {
      width: wide,
      height: high + (this.tree ? this.tree.plan.height + 12 : 0),
      draw: (pen) => {
        for (const { x, y, width, token, probability } of boxes) {
          const doubt = doubtOf(probability);
          pen.rect(x, y, width, 30, { fill: shade(page.colours.doubt, doubt), radius: 6 });
          pen.text(token.text, x + width / 2, y + 15, { size: 16, fill: inkOn(page.colours.doubt, doubt), align: "center" });
          pen.text(page.percent(probability), x + width / 2, y + 40, { size: 10, fill: page.colours.muted, align: "center" });
        }
        this.tree?.draw(pen, { left: 0, top: -high, width: wide, height: this.tree.plan.height });
      },
    };
  }

  writtenBoxes(wide) {
    let [x, y] = [0, 0];
    return this.page.data.generation.steps.map((step) => {
      const token = this.tokenOf(step);
      const width = Math.max(36, textWidth(token.text, 16) + 14);
      if (x + width > wide) [x, y] = [0, y + 60];
      const box = { x, y, width, token, probability: step.probability };
      x += width + 6;
      return box;
    });
  }
}
