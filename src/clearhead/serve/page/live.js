// The page at /: a text in, what a model makes of it out, and the view of the offline page below, live.

import { askAttention, askModels, Refused } from "./asking.js";
import { marked } from "./changes.js";
import { coloursOf, dress } from "./colour.js";
import { paneFor } from "./kinds.js";
import { words } from "./live-words.js";
import { make, segmented } from "./parts.js";
import { readState, writeState } from "./state.js";
import { mount } from "./view.js";
import { grouped, LANGUAGES, percent, phrase, preferredLanguage } from "./words.js";

const PAUSE = 350;
const ENGINES = { torch: "PyTorch", ctranslate2: "CTranslate2", onnx: "ONNX Runtime" };

/** The page; everything it shows follows from the text, the model, the chosen sentence and the heads that are off. */
class Live {
  constructor(root, { models, bounds }) {
    this.root = root;
    this.models = models;
    this.bounds = bounds;
    this.model = models[0];
    this.text = "";
    this.sentence = 0;
    this.ablate = [];
    this.wishes = { tokens: 64, temperature: 0.8 };
    this.answer = null;
    this.whole = null;
    this.chosen = readState(location.hash);
    this.darkness = globalThis.matchMedia("(prefers-color-scheme: dark)");
    this.darkness.addEventListener("change", () => this.rebuild());
    globalThis.addEventListener("hashchange", () => this.choose(readState(location.hash)));
    root.classList.add("clearhead", "live", "whole");
    this.rebuild();
  }

  get language() {
    return this.chosen.language || preferredLanguage();
  }

  say(key, values) {
    return words(this.language, key, values);
  }

  percent(share) {
    return percent(this.language, share);
  }

  // What stays: the top, the text, the answer; built anew when the language, the theme or the model changes.

  rebuild() {
    const focused = document.activeElement?.dataset?.key;
    const colours = coloursOf(this.chosen.theme || (this.darkness.matches ? "dark" : "light"));
    dress(this.root, colours);
    this.root.lang = document.documentElement.lang = this.language === "zh" ? "zh-CN" : "en";
    document.documentElement.style.colorScheme = colours.theme;
    document.title = `Clearhead · ${this.model.name}`;
    this.view?.destroy();
    this.view = null;
    const made = this.pane?.model === this.model ? this.pane.made : undefined;
    this.pane = Object.assign(paneFor(this), { model: this.model });
    this.status = make("p", { class: "status", role: "status", "data-key": "status" });
    this.stage = make("div", { class: "inside" });
    this.changes = make("section", { class: "changes", hidden: true, "aria-live": "polite" });
    this.sentences = make("div", { class: "sentences", hidden: true });
    this.root.replaceChildren(this.buildTop(), this.buildPanes(), this.changes, this.sentences, this.stage);
    if (made !== undefined) this.pane.show(made);
    else this.pane.clear();
    this.showAnswer();
    if (focused) this.root.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  buildTop() {
    const picked = make("select", { "data-key": "model", "aria-label": this.say("model"), onchange: () => this.pick(picked.value) });
    for (const { name, kind } of this.models) picked.append(make("option", { value: name, selected: name === this.model.name }, `${name} · ${phrase(this.language, `model.${kind}`)}`));
    const themes = ["", "light", "dark"].map((value) => ({ value, text: phrase(this.language, `theme.${value || "auto"}`) }));
    const theme = segmented(phrase(this.language, "theme"), themes, "theme", (chosen) => this.choose({ theme: chosen }));
    theme.sync(this.chosen.theme);
    const languages = Object.entries(LANGUAGES).map(([value, text]) => ({ value, text }));
    const language = segmented(phrase(this.language, "language"), languages, "language", (chosen) => this.choose({ language: chosen }));
    language.sync(this.language);
    const { parameters, engine } = this.model;
    const size = parameters === null ? null : phrase(this.language, "parameters", { count: grouped(this.language, parameters) });
    const about = [size, ENGINES[engine] || engine].filter(Boolean).join(" · ");
    return make(
      "header",
      { class: "live-top" },
      make("p", { class: "brand" }, make("strong", {}, "Clearhead"), picked, make("span", { class: "size" }, about)),
      make("h1", { class: "unheard" }, this.say("title")),
      make("div", { class: "switches" }, make("a", { href: "docs", class: "docs" }, this.say("documentation")), theme.element, language.element),
    );
  }

  buildPanes() {
    const { kind } = this.model;
    const said = (what) => this.say(`${what}.${kind}`);
    this.input = make("textarea", { id: "text", rows: "4", maxlength: String(this.bounds.characters), placeholder: said("hint"), spellcheck: "false", "data-key": "text", oninput: () => this.typed() });
    this.input.value = this.text;
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.ask();
    });
    this.count = make("span", { class: "count" });
    const code = (language) => (language ? make("span", { class: "text-language" }, language) : null);
    const go = this.pane.asksByItself ? null : make("button", { type: "button", class: "go", "data-key": "go", onclick: () => (this.asking ? this.leave() : this.ask()) }, this.say("continue"));
    this.go = go;
    const left = make("section", { class: "pane" }, make("div", { class: "pane-top" }, make("label", { for: "text" }, said("text")), ...this.model.sources.map(code), this.count), this.input, make("div", { class: "pane-foot" }, this.pane.controls, go));
    const right = make("section", { class: "pane answer", "aria-live": "polite" }, make("div", { class: "pane-top" }, make("span", {}, said("made")), code(this.model.target)), this.pane.element, this.status);
    this.recount();
    return make("div", { class: "panes" }, left, right);
  }

  recount() {
    this.count.textContent = this.say("count", { count: grouped(this.language, this.text.length), most: grouped(this.language, this.bounds.characters) });
  }

  // What the reader does.

  pick(name) {
    this.leave();
    this.model = this.models.find((model) => model.name === name);
    this.forget();
    this.answer = null;
    this.rebuild();
    if (this.pane.asksByItself) this.ask();
  }

  choose(changes) {
    const before = { theme: this.chosen.theme, language: this.chosen.language };
    this.chosen = { ...this.chosen, ...changes };
    if (this.chosen.theme === before.theme && this.chosen.language === before.language) return;
    const now = { ...readState(location.hash), theme: this.chosen.theme, language: this.chosen.language };
    history.replaceState(null, "", writeState(now) || location.pathname);
    this.rebuild();
  }

  typed() {
    this.text = this.input.value;
    this.recount();
    this.forget();
    if (!this.pane.asksByItself) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), PAUSE);
  }

  toggle(names) {
    const off = new Set(this.ablate);
    const allOff = names.every((name) => off.has(name));
    for (const name of names) allOff ? off.delete(name) : off.add(name);
    this.ablate = [...off];
    this.look();
  }

  /** What was found is of another text. */
  forget() {
    this.sentence = 0;
    this.ablate = [];
    this.whole = null;
  }

  leave() {
    clearTimeout(this.timer);
    this.asking?.abort();
    this.asking = null;
    if (this.go) this.go.textContent = this.say("continue");
  }

  // What the server is asked.

  /** Do something for which the server is asked, once nothing else is asked of it any more; tell how it went. */
  async during(work, waiting = "") {
    this.leave();
    const asking = (this.asking = new AbortController());
    if (this.go) this.go.textContent = this.say("stop");
    this.tell(waiting);
    const started = performance.now();
    try {
      await work(asking.signal);
      this.tell(this.say("took", { seconds: ((performance.now() - started) / 1000).toFixed(2) }));
    } catch (error) {
      if (asking.signal.aborted) return;
      if (error instanceof Refused && [429, 503].includes(error.status)) {
        this.tell(this.say("busy"));
        this.timer = setTimeout(() => this.during(work, waiting), 1000 * Math.max(1, error.retryAfter));
      } else this.tell(error instanceof Refused ? error.message : this.say("failed"), true);
    } finally {
      if (this.asking === asking) {
        this.asking = null;
        if (this.go) this.go.textContent = this.say("continue");
      }
    }
  }

  ask() {
    const { text, pane } = this;
    if (!text.trim() && this.model.kind !== "gpt") {
      this.leave();
      pane.clear();
      this.tell("");
      this.answer = null;
      this.showAnswer();
      return;
    }
    this.during(async (signal) => {
      await pane.ask(text, signal);
      await this.found(signal);
    });
  }

  look() {
    this.during((signal) => this.found(signal), this.say("looking"));
  }

  async found(signal) {
    if (!this.model.shows_attention) return;
    const { sentence, ablate } = this;
    const { text } = this.pane.looked(this.text);
    if (!text.trim()) return;
    this.answer = await askAttention(this.model, text, { sentence, ablate }, signal);
    if (!ablate.length) this.whole = this.answer;
    this.pane.seen?.(this.answer);
    this.showAnswer();
  }

  tell(text, isWrong = false) {
    this.status.textContent = text;
    this.status.classList.toggle("wrong", isWrong);
  }

  // What was found.

  showAnswer() {
    const { answer } = this;
    this.showChanges();
    this.showSentences();
    if (!answer) {
      this.view?.destroy();
      this.view = null;
      const hint = this.model.shows_attention ? "attention.hint" : "attention.none";
      this.stage.replaceChildren(make("p", { class: "empty" }, this.say(hint)));
      return;
    }
    if (this.view) this.view.update(answer.view);
    else {
      const element = make("div", {});
      this.stage.replaceChildren(element);
      const switches = { toggle: (names) => this.toggle(names), say: (off) => this.say(off ? "switch.on" : "switch.off") };
      this.view = mount(element, answer.view, { linked: true, bare: true, switches });
    }
  }

  showChanges() {
    const { answer, whole, ablate } = this;
    this.changes.hidden = !answer || !whole || !ablate.length;
    if (this.changes.hidden) return;
    const named = ablate.length === 1 ? this.say("without.one", { name: ablate[0] }) : this.say("without", { count: ablate.length });
    const line = (name, text, loss) =>
      make("div", { class: "change" }, make("span", { class: "field-name" }, name), make("bdi", {}, ...text), make("span", { class: "muted" }, loss === null ? "" : this.say("loss", { loss: loss.toFixed(3) })));
    const isSame = answer.text === whole.text;
    this.changes.replaceChildren(
      line(this.say("with"), [whole.text], whole.loss),
      line(named, isSame ? [answer.text, make("span", { class: "muted" }, ` (${this.say("same")})`)] : marked(whole.text, answer.text), answer.loss),
      make("button", { type: "button", class: "small", "data-key": "all-on", onclick: () => this.toggle([...ablate]) }, this.say("switch.all")),
    );
  }

  showSentences() {
    const all = this.answer?.sentences || [];
    this.sentences.hidden = all.length < 2;
    const options = all.map((text, place) => ({ value: String(place), text: text.length > 40 ? `${text.slice(0, 38)}…` : text, title: this.say("sentence", { number: place + 1 }) }));
    const choice = segmented(this.say("sentences"), options, "sentence", (value) => {
      this.sentence = Number(value);
      this.whole = null;
      this.ablate = [];
      this.look();
    });
    choice.sync(String(this.answer?.sentence));
    this.sentences.replaceChildren(make("span", { class: "field-name" }, this.say("sentences")), choice.element);
  }
}

const root = document.getElementById("live");
askModels()
  .then((served) => {
    if (!served.models.length) throw new Refused(404, words(preferredLanguage(), "nothing"), 0);
    new Live(root, served);
  })
  .catch((error) => {
    root.textContent = error instanceof Refused ? error.message : words(preferredLanguage(), "failed");
  });
