// The entry: `mount(element, view, options)` shows a view in an element, and hands back `update(view)` and `destroy()`.

import { coloursOf, dress } from "./colour.js";
import { GalleryView } from "./gallery.js";
import { GenerationView } from "./generation.js";
import { MapView } from "./map.js";
import { eachFrame, field, freshId, make, segmented, ticked } from "./parts.js";
import { chosenHeads, HeadPicker } from "./picker.js";
import { Reading } from "./reading.js";
import { FILE_KINDS, saveFile } from "./saving.js";
import { SentenceView } from "./sentence.js";
import { readState, VIEWS, writeState } from "./state.js";
import { blocksOf, labelled, shownMatrix, wordsOf } from "./weights.js";
import { grouped, LANGUAGES, percent, phrase, preferredLanguage } from "./words.js";

const KINDS_OF_VIEW = { sentence: SentenceView, map: MapView, gallery: GalleryView, generation: GenerationView };

/** What the heads that were switched off are called: kind, layer, and head if it is one. */
function readName(name) {
  const parts = name.split(".");
  const [layer, head] = parts.filter((part) => /^\d+$/.test(part)).map(Number);
  const kinds = parts.includes("cross") ? ["cross"] : parts.length === 2 && parts[0] === "decoder" ? ["decoder", "cross"] : [parts[0]];
  return { kinds, layer, head };
}

/** One view in one element; every part of the page asks it what to show and tells it what was chosen. */
class Page {
  constructor(root, view, options) {
    this.root = root;
    this.options = { linked: false, whole: false, bare: false, switches: null, ...options };
    this.state = readState(this.options.linked ? location.hash : this.options.state || "");
    this.darkness = globalThis.matchMedia("(prefers-color-scheme: dark)");
    this.id = freshId();
    this.undo = [];
    root.classList.add("clearhead");
    root.classList.toggle("whole", this.options.whole);
    this.show(view);
    this.on(this.darkness, "change", () => this.rebuild());
    if (this.options.linked) this.on(globalThis, "hashchange", () => this.follow());
    const resized = eachFrame(() => this.sync());
    this.sizes = new ResizeObserver(() => {
      if (this.width !== this.stage.clientWidth) resized();
      this.width = this.stage.clientWidth;
    });
    this.sizes.observe(root);
    this.sizes.observe(this.stage);
  }

  on(target, name, listener) {
    target.addEventListener(name, listener);
    this.undo.push(() => target.removeEventListener(name, listener));
  }

  /** Take over a view's data. */
  show(view) {
    if (view?.format !== "clearhead-view" || view.version !== 1) throw new Error(phrase(preferredLanguage(), "nothing"));
    this.data = view;
    this.tokens = labelled(view.tokens);
    this.blocks = blocksOf(view, this.tokens);
    this.facts = new Map((view.heads || []).map((head) => [`${head.kind} ${head.layer} ${head.head}`, head]));
    this.off = (view.ablated || []).map(readName);
    this.unseen = new Set(view.unseen || []);
    this.rebuild();
  }

  destroy() {
    this.undo.forEach((undo) => undo());
    this.sizes?.disconnect();
    this.leaveView();
    this.root.replaceChildren();
    this.root.classList.remove("clearhead");
  }

  // What the parts ask.

  get language() {
    return this.state.language || this.options.language || preferredLanguage();
  }

  get colours() {
    return coloursOf(this.state.theme || (this.darkness.matches ? "dark" : "light"));
  }

  get block() {
    return this.blocks.find(({ kind }) => kind === this.state.kind) || this.blocks.find(({ kind }) => kind === "cross") || this.blocks[0];
  }

  say(key, values) {
    return phrase(this.language, key, values);
  }

  percent(share) {
    return percent(this.language, share);
  }

  grouped(number) {
    return grouped(this.language, number);
  }

  /** A number that may be negative, with a true minus sign. */
  signed(number) {
    return number.toFixed(2).replace("-", "\u2212");
  }

  narrow() {
    return this.root.clientWidth > 0 && this.root.clientWidth < 760;
  }

  chosen() {
    return chosenHeads(this.block, this.state.heads);
  }

  matrix() {
    return shownMatrix(this.block, this.chosen(), this.state.mix, this.state.words);
  }

  headFacts(kind, layer, head) {
    return this.facts.get(`${kind} ${layer} ${head}`);
  }

  /** A label in plain words, with its share. */
  habit(label) {
    return label ? `${this.say(`label.${label.code}`)} ${Number.isFinite(label.share) ? this.percent(label.share) : ""}`.trim() : "";
  }

  isOff(kind, layer, head) {
    return this.off.some((name) => name.kinds.includes(kind) && (name.layer === undefined || name.layer === layer) && (name.head === undefined || name.head === head));
  }

  /** What the chosen heads are called where they can be switched off. */
  chosenNames() {
    const { kind } = this.block;
    return this.chosen().map(([layer, head]) => (kind === "cross" ? `decoder.${layer}.cross.${head}` : `${kind}.${layer}.self.${head}`));
  }

  isUnseen(list, token) {
    return list === "source" && !token.special && this.unseen.has(token.word);
  }

  /** What is on show, in words. */
  title() {
    const { block } = this;
    if (this.state.view === "generation" || !block) return this.data.model.name;
    const kind = this.say(`kind.${block.kind}`);
    if (this.state.view === "gallery" || block.everyHead.length === 1) return kind;
    const chosen = this.chosen();
    if (chosen.length === 1) return `${kind} · ${this.say("layer.head", { layer: chosen[0][0], head: chosen[0][1] })}`;
    const all = chosen.length === block.everyHead.length;
    const heads = this.say(all ? "all.heads" : "some.heads", { count: chosen.length });
    return `${kind} · ${this.say("mixed", { mix: this.say(`mix.${this.state.mix}`), heads })}`;
  }

  /** Whose tokens stand on a side, and what they do. */
  caption(side) {
    return [this.say(this.block.names[side]), this.say(side === "keys" ? "seen" : "looks")];
  }

  // What the parts tell.

  announce(text) {
    this.live.textContent = text;
  }

  set(changes) {
    const before = this.state;
    this.state = { ...before, ...changes };
    const other = ["view", "kind", "words"].some((name) => name in changes && changes[name] !== before[name]);
    if (other && !("token" in changes)) this.state.token = "";
    if (this.options.linked) this.link();
    if (this.state.theme !== before.theme || this.state.language !== before.language) this.rebuild();
    else this.sync();
  }

  link() {
    const hash = writeState(this.state);
    try {
      history.replaceState(null, "", hash || location.pathname + location.search);
    } catch {
      // A page inside a frame without an address has nothing to link.
    }
  }

  follow() {
    this.state = readState(location.hash);
    this.rebuild();
  }

  // The frame around the views.

  rebuild() {
    const focused = this.root.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    this.leaveView();
    dress(this.root, this.colours);
    this.root.lang = this.language === "zh" ? "zh-CN" : "en";
    if (this.options.whole) {
      document.documentElement.lang = this.root.lang;
      document.documentElement.style.colorScheme = this.colours.theme;
      document.title = `${this.data.texts.source} · ${this.say("title")}`.slice(0, 120);
    }
    this.live = make("div", { class: "unheard", "aria-live": "polite", role: "status" });
    this.reading = new Reading(this);
    this.stage = make("div", { class: "stage", id: `${this.id}-stage`, role: "tabpanel", tabindex: "-1" });
    this.controls = this.buildControls();
    this.tabs = this.buildTabs();
    const main = make("main", { class: "main" }, this.controls.element, this.stage, this.reading.element);
    this.root.replaceChildren(this.buildHeader(), this.tabs.element, main, this.live);
    this.sizes?.observe(this.stage);
    this.sync();
    if (focused) this.root.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  leaveView() {
    this.current?.destroy?.();
    this.current = this.currentName = null;
  }

  /** Let every part show what is chosen now. */
  sync() {
    const name = this.block || this.state.view === "generation" ? this.state.view : "";
    this.tabs.sync();
    if (!name) {
      this.stage.replaceChildren(make("p", { class: "empty" }, this.say("nothing")));
      return;
    }
    if (name !== this.currentName) {
      this.leaveView();
      this.currentName = name;
      this.current = new KINDS_OF_VIEW[name](this);
      this.stage.replaceChildren(this.current.element);
    }
    this.root.dataset.view = name;
    this.controls.sync();
    this.current.sync();
  }

  buildHeader() {
    const { data } = this;
    const text = (name, language, words) =>
      make(
        "div",
        { class: "text" },
        make("span", { class: "text-name" }, this.say(name), language ? make("span", { class: "text-language" }, language) : null),
        make("bdi", { class: "text-words", lang: language || undefined, title: words }, words),
      );
    const kind = this.say(`model.${data.model.kind}`);
    const size = this.say("parameters", { count: this.grouped(data.model.parameters) });
    const notes = [];
    if (data.ablated?.length) notes.push(make("p", { class: "warning" }, this.say("ablated", { names: data.ablated.join(", ") })));
    if (this.unseen.size) notes.push(make("p", { class: "warning" }, this.say("unseen", { words: this.unseenWords().join(", ") })));
    if (this.options.bare) return make("header", { class: "top" }, ...notes);
    return make(
      "header",
      { class: "top" },
      make(
        "div",
        { class: "top-line" },
        make("p", { class: "brand" }, make("strong", {}, "Clearhead"), make("span", { class: "brand-model" }, [data.model.name, kind, size].join(" · "))),
        this.buildSwitches(),
      ),
      make("h1", { class: "unheard" }, this.say("title")),
      make("div", { class: "texts" }, text("source", data.languages?.source, data.texts.source), data.texts.target ? text("target", data.languages?.target, data.texts.target) : null),
      ...notes,
    );
  }

  unseenWords() {
    return wordsOf(this.tokens.source || []).filter((word) => this.isUnseen("source", word)).map((word) => word.text);
  }

  buildSwitches() {
    const themes = ["", "light", "dark"].map((value) => ({ value, text: this.say(`theme.${value || "auto"}`) }));
    const theme = segmented(this.say("theme"), themes, "theme", (chosen) => this.set({ theme: chosen }));
    theme.sync(this.state.theme);
    const languages = Object.entries(LANGUAGES).map(([value, text]) => ({ value, text }));
    const language = segmented(this.say("language"), languages, "language", (chosen) => this.set({ language: chosen }));
    language.sync(this.language);
    return make("div", { class: "switches" }, theme.element, language.element);
  }

  buildTabs() {
    const list = make("div", { class: "tabs", role: "tablist", "aria-label": this.say("views") });
    const tabs = VIEWS.map((view) => {
      const attributes = { type: "button", role: "tab", id: `${this.id}-${view}`, "aria-controls": `${this.id}-stage`, "data-key": `tab-${view}` };
      return make("button", { ...attributes, onclick: () => this.set({ view }) }, this.say(`view.${view}`));
    });
    list.append(...tabs);
    list.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const at = tabs.indexOf(event.target);
      if (!step || at < 0) return;
      event.preventDefault();
      const next = (at + step + tabs.length) % tabs.length;
      tabs[next].focus();
      this.set({ view: VIEWS[next] });
    });
    const save = FILE_KINDS.map((kind) => {
      const attributes = { type: "button", class: "save", title: this.say(`save.${kind}`), "aria-label": this.say(`save.${kind}`), "data-key": `save-${kind}` };
      return make("button", { ...attributes, onclick: () => this.save(kind) }, kind.toUpperCase());
    });
    const saves = make("div", { class: "saves", role: "group", "aria-label": this.say("save") }, make("span", { class: "muted", "aria-hidden": "true" }, this.say("save")), ...save);
    const sync = () => {
      VIEWS.forEach((view, place) => {
        const on = view === this.state.view;
        tabs[place].setAttribute("aria-selected", String(on));
        tabs[place].tabIndex = on ? 0 : -1;
        if (on) this.stage.setAttribute("aria-labelledby", tabs[place].id);
      });
    };
    return { element: make("nav", { class: "bar-top" }, list, saves), sync };
  }

  async save(kind) {
    if (!this.current) return;
    const name = await saveFile(kind, this, () => this.current.picture());
    this.announce(this.say("saved", { name }));
  }

  buildControls() {
    const kinds = this.blocks.map(({ kind }) => ({ value: kind, text: this.say(`kind.${kind}`), title: this.say(`about.${kind}`) }));
    const kind = segmented(this.say("kind"), kinds, "kind", (chosen) => this.set({ kind: chosen }));
    const words = ticked(this.say("words"), "words", (on) => this.set({ words: on }));
    const picker = this.block ? new HeadPicker(this) : null;
    const zoom = this.buildZoom();
    const sort = this.buildSort();
    const kindField = field(this.say("kind"), kind.element);
    const element = make("section", { class: "controls", "aria-label": this.say("settings") }, kindField, sort.element, picker?.element, words.element, zoom.element);
    const sync = () => {
      const { view } = this.state;
      const ofHeads = view === "sentence" || view === "map";
      element.hidden = view === "generation";
      kind.sync(this.block?.kind);
      words.sync(this.state.words);
      words.element.hidden = !ofHeads || Boolean(this.block?.wholeWords);
      picker?.sync();
      if (picker && !ofHeads) picker.element.hidden = true;
      zoom.element.hidden = view !== "map";
      zoom.sync();
      sort.element.hidden = view !== "gallery";
      sort.sync();
    };
    return { element, sync };
  }

  buildZoom() {
    const button = (key, text, label, zoom) => make("button", { type: "button", class: "small", "aria-label": label, title: label, "data-key": key, onclick: () => this.set({ zoom: zoom() }) }, text);
    const out = button("zoom-out", "−", this.say("zoom.out"), () => Math.max(1, this.state.zoom / 1.5));
    const fit = button("zoom-fit", this.say("zoom.fit"), this.say("zoom.fit"), () => 1);
    const closer = button("zoom-in", "+", this.say("zoom.in"), () => Math.min(16, this.state.zoom * 1.5));
    const sync = () => {
      out.disabled = fit.disabled = this.state.zoom <= 1;
      closer.disabled = this.state.zoom >= 16;
    };
    return { element: field(this.say("zoom"), make("div", { class: "buttons" }, out, fit, closer)), sync };
  }

  buildSort() {
    const names = ["position", ...(this.data.measures || [])];
    const id = `${this.id}-sort`;
    const options = names.map((name) => make("option", { value: name }, this.say(name === "position" ? "sort.position" : `measure.${name}`)));
    const select = make("select", { id, "data-key": "sort", onchange: () => this.set({ sort: select.value }) }, ...options);
    const order = make("button", { type: "button", class: "small", "data-key": "order", onclick: () => this.set({ rising: !this.state.rising }) });
    const element = make("div", { class: "field" }, make("label", { class: "field-name", for: id }, this.say("sort")), make("div", { class: "buttons" }, select, order));
    const sync = () => {
      select.value = names.includes(this.state.sort) ? this.state.sort : "position";
      order.hidden = this.state.sort === "position";
      order.textContent = this.say(this.state.rising ? "sort.up" : "sort.down");
    };
    return { element, sync };
  }

}

/** Show a view in an element. Options: `linked` keeps the state in the address, `whole` says that the page is ours, `bare`
    leaves out what a page around it says itself, `switches` (`toggle(names)`, `say(off)`) lets heads be switched off. */
export function mount(element, view, options = {}) {
  const page = new Page(element, view, options);
  return { update: (next) => page.show(next), set: (changes) => page.set(changes), destroy: () => page.destroy() };
}

/** Show the view that a page carries in itself. */
export function mountPage(element, carrier) {
  try {
    return mount(element, JSON.parse(carrier.textContent), { linked: true, whole: true });
  } catch (error) {
    element.textContent = phrase(preferredLanguage(), "unreadable", { reason: error.message });
    throw error;
  }
}
