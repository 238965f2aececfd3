// The gallery: every head of a kind as a small map with its label in plain words, in any order of measures.

import { eachFrame, make } from "./parts.js";
import { fitted, heatPicture } from "./pens.js";
import { roundTop } from "./weights.js";

const THUMBNAIL = 112;
const PRINTED = 172;
const SHARES = new Set(["self", "previous", "next", "near", "first", "last", "punctuation", "diagonal", "peak"]);

/** What a measure says of a head: shares in percent, the rest as a number. */
export function measureText(page, name, value) {
  if (!Number.isFinite(value)) return "–";
  return SHARES.has(name) ? page.percent(value) : value.toFixed(2);
}

export class GalleryView {
  constructor(page) {
    this.page = page;
    this.shelf = make("div", { class: "shelf" });
    this.element = make("div", { class: "gallery-view" }, this.shelf);
    this.cards = new Map();
    this.redraw = eachFrame(() => {});
    // Thumbnails are drawn when they come near the screen.
    this.watch = new IntersectionObserver((entries) => entries.forEach((entry) => entry.isIntersecting && this.drawCard(entry.target)), { rootMargin: "300px" });
  }

  destroy() {
    this.watch.disconnect();
  }

  sync() {
    const { page } = this;
    const now = `${page.block.kind} ${page.colours.theme} ${page.language}`;
    if (this.made !== now) {
      this.made = now;
      this.watch.disconnect();
      this.cards.clear();
    }
    this.heads = this.sorted();
    const inPlace = page.state.sort === "position";
    if (inPlace) {
      this.shelf.replaceChildren(
        ...Array.from({ length: page.block.layers }, (none, layer) => {
          const mine = this.heads.filter((head) => head.layer === layer);
          const name = make("h3", { class: "shelf-name" }, page.say("layer", { layer }));
          return make("section", { class: "shelf-row" }, name, this.grid(mine));
        }),
      );
    } else this.shelf.replaceChildren(this.grid(this.heads));
    this.shelf.style.setProperty("--heads", String(inPlace ? Math.min(8, Math.max(3, page.block.heads)) : 8));
    page.reading.gallery();
  }

  grid(heads) {
    return make("ul", { class: "thumbs" }, ...heads.map((head) => make("li", {}, this.card(head))));
  }

  /** The heads in the chosen order. */
  sorted() {
    const { block, state } = this.page;
    const heads = block.everyHead.map(([layer, head]) => ({ layer, head, ...this.page.headFacts(block.kind, layer, head) }));
    if (state.sort === "position") return heads;
    const worth = (head) => head.measures?.[state.sort];
    const turn = state.rising ? 1 : -1;
    return heads.sort((a, b) => {
      const [left, right] = [worth(a), worth(b)];
      if (left === undefined || right === undefined) return (left === undefined) - (right === undefined);
      return turn * (left - right);
    });
  }

  card(facts) {
    const name = `${facts.layer}.${facts.head}`;
    if (!this.cards.has(name)) this.cards.set(name, this.makeCard(facts));
    const card = this.cards.get(name);
    const { sort } = this.page.state;
    card.querySelector(".thumb-name").textContent = this.nameOf(facts, sort === "position");
    const measure = card.querySelector(".thumb-measure");
    measure.hidden = sort === "position";
    measure.textContent = sort === "position" ? "" : measureText(this.page, sort, facts.measures?.[sort]);
    return card;
  }

  /** A head in a few letters; in its layer's row the layer need not be said again. */
  nameOf({ layer, head }, inPlace = false) {
    const { page } = this;
    const own = page.say("head", { head });
    return inPlace ? own : `${page.say("layer.short", { layer })} · ${own}`;
  }

  makeCard({ layer, head, label }) {
    const { page } = this;
    const title = page.say("layer.head", { layer, head });
    const off = page.isOff(page.block.kind, layer, head);
    const habit = off ? page.say("head.off") : page.habit(label);
    const canvas = make("canvas", { "aria-hidden": "true", width: 1, height: 1 });
    const attributes = { type: "button", class: "thumb", "data-key": `thumb-${layer}-${head}`, "data-layer": layer, "data-head": head };
    const spoken = `${page.say("open.map", { title })}: ${habit || page.say("label.none")}`;
    const card = make(
      "button",
      { ...attributes, "aria-label": spoken, title: spoken },
      make("span", { class: "thumb-picture" }, canvas),
      make("span", { class: "thumb-name" }),
      make("span", { class: `thumb-habit${off ? " off" : ""}` }, habit || "\u00a0"),
      make("span", { class: "thumb-measure" }),
    );
    card.addEventListener("click", () => page.set({ view: "map", heads: [[layer, head]], token: "" }));
    this.watch.observe(card);
    return card;
  }

  thumbnail(layer, head) {
    const { block, colours } = this.page;
    const numbers = block.head(layer, head);
    const { scale } = block;
    const columns = block.keys.length;
    const largest = roundTop(numbers, scale) * scale;
    return heatPicture(numbers, block.queries.length, columns, colours.ramp, largest, 2 * THUMBNAIL);
  }

  drawCard(card) {
    this.watch.unobserve(card);
    const picture = this.thumbnail(Number(card.dataset.layer), Number(card.dataset.head));
    const canvas = card.querySelector("canvas");
    canvas.width = picture.width;
    canvas.height = picture.height;
    canvas.getContext("2d").drawImage(picture, 0, 0);
    canvas.classList.toggle("coarse", Math.max(picture.width, picture.height) < THUMBNAIL);
    card.dataset.drawn = "true";
  }

  picture() {
    const { page } = this;
    const columns = Math.min(this.heads.length, page.state.sort === "position" ? Math.max(page.block.heads, 1) : 8, 12);
    const [wide, high] = [PRINTED + 16, PRINTED + 52];
    const rows = Math.ceil(this.heads.length / columns);
    return {
      width: columns * wide,
      height: rows * high,
      draw: (pen) => this.heads.forEach((head, place) => {
        const x = (place % columns) * wide + 8;
        const y = Math.floor(place / columns) * high;
        pen.image(this.thumbnail(head.layer, head.head), x, y, PRINTED, PRINTED);
        pen.text(this.nameOf(head), x, y + PRINTED + 14, { size: 12, weight: 600, fill: page.colours.ink });
        const { sort } = page.state;
        const words = sort === "position" ? page.habit(head.label) : measureText(page, sort, head.measures?.[sort]);
        pen.text(fitted(words || "", PRINTED + 12, 11), x, y + PRINTED + 31, { size: 11, fill: page.colours.muted });
      }),
    }; // prettier-ignore
  }
}
