// What the reader chose, as an object and as the part of the address behind #, so that a view can be linked.

export const VIEWS = ["sentence", "map", "gallery", "generation"];

const DEFAULTS = {
  view: "sentence", kind: "", heads: "all", mix: "mean", words: false, token: "", sort: "position", rising: false,
  step: 0, zoom: 1, theme: "", language: "",
}; // prettier-ignore

const READERS = {
  view: (text) => (VIEWS.includes(text) ? text : DEFAULTS.view),
  kind: (text) => text,
  heads: (text) => (/^\d+\.\d+(,\d+\.\d+)*$/.test(text) ? text.split(",").map((head) => head.split(".").map(Number)) : "all"),
  mix: (text) => (text === "max" ? "max" : "mean"),
  words: (text) => text === "1",
  token: (text) => (/^[qk]\d+(,[qk]\d+)?$/.test(text) ? text : ""),
  sort: (text) => text,
  rising: (text) => text === "1",
  step: (text) => Number.parseInt(text, 10) || 0,
  zoom: (text) => Math.min(16, Math.max(1, Number(text) || 1)),
  theme: (text) => (["light", "dark"].includes(text) ? text : ""),
  language: (text) => (["en", "zh"].includes(text) ? text : ""),
};

/** The state that an address names; what it does not name is as at the beginning. */
export function readState(hash) {
  const parts = new URLSearchParams(hash.replace(/^#/, ""));
  const state = { ...DEFAULTS };
  for (const [name, read] of Object.entries(READERS)) {
    if (parts.has(name)) state[name] = read(parts.get(name));
  }
  return state;
}

/** The address of a state: only what differs from the beginning. */
export function writeState(state) {
  const parts = [];
  for (const [name, start] of Object.entries(DEFAULTS)) {
    const value = state[name];
    if (value === start) continue;
    const text = Array.isArray(value) ? value.map((head) => head.join(".")).join(",") : value === true ? "1" : String(value);
    parts.push(`${name}=${encodeURIComponent(text).replaceAll("%2C", ",")}`);
  }
  return parts.length ? `#${parts.join("&")}` : "";
}
