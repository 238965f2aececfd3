// Colours in OKLCH (lightness, chroma, hue), where equal steps look equal: palettes and ramps for light and dark.

const PALETTES = {
  light: {
    paper: [0.985, 0.004, 250], panel: [1, 0, 0], sunken: [0.962, 0.006, 250], line: [0.905, 0.008, 255],
    faint: [0.78, 0.014, 255], muted: [0.52, 0.025, 260], ink: [0.24, 0.03, 265],
    accent: [0.47, 0.17, 268], "accent-soft": [0.945, 0.028, 268], "on-accent": [0.99, 0.005, 268],
    warm: [0.62, 0.155, 50], "warm-soft": [0.95, 0.04, 65], shadow: [0.35, 0.04, 265],
  },
  dark: {
    paper: [0.185, 0.014, 265], panel: [0.222, 0.017, 265], sunken: [0.255, 0.019, 265], line: [0.325, 0.022, 265],
    faint: [0.46, 0.025, 265], muted: [0.7, 0.025, 260], ink: [0.94, 0.01, 255],
    accent: [0.76, 0.125, 255], "accent-soft": [0.32, 0.06, 262], "on-accent": [0.2, 0.04, 265],
    warm: [0.8, 0.13, 70], "warm-soft": [0.34, 0.055, 60], shadow: [0.08, 0.01, 265],
  },
}; // prettier-ignore

// Lightness runs in a straight line from end to end, so that a grey print or a colour-blind eye reads the same order.
const RAMPS = {
  light: { from: 0.972, to: 0.25, stops: [[0.006, 240], [0.07, 205], [0.12, 232], [0.155, 262], [0.13, 285]] },
  dark: { from: 0.235, to: 0.94, stops: [[0.02, 268], [0.12, 278], [0.13, 245], [0.11, 195], [0.11, 130]] },
}; // prettier-ignore

// Doubt is warm, being sure is plain paper.
const DOUBTS = {
  light: { from: 1, to: 0.78, stops: [[0, 80], [0.06, 78], [0.13, 62]] },
  dark: { from: 0.222, to: 0.5, stops: [[0.017, 80], [0.06, 70], [0.115, 55]] },
}; // prettier-ignore

/** One colour as red, green and blue from 0 to 1, some of them outside if the screen cannot show it. */
function toRgb([lightness, chroma, hue]) {
  const angle = (hue * Math.PI) / 180;
  const a = chroma * Math.cos(angle);
  const b = chroma * Math.sin(angle);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ].map((part) => (part <= 0.0031308 ? 12.92 * part : 1.055 * part ** (1 / 2.4) - 0.055));
}

/** One colour as bytes; chroma is lowered until the screen can show it, lightness and hue stay. */
function toBytes([lightness, chroma, hue]) {
  let low = 0;
  let high = chroma;
  let shown = toRgb([lightness, chroma, hue]);
  const fits = (rgb) => rgb.every((part) => part > -0.002 && part < 1.002);
  if (!fits(shown)) {
    for (let round = 0; round < 12; round += 1) {
      const middle = (low + high) / 2;
      shown = toRgb([lightness, middle, hue]);
      if (fits(shown)) low = middle;
      else high = middle;
    }
    shown = toRgb([lightness, low, hue]);
  }
  return shown.map((part) => Math.round(255 * Math.min(1, Math.max(0, part))));
}

function rgbText(bytes) {
  return `rgb(${bytes.join(", ")})`;
}

/** 256 colours from nothing to everything. */
function rampTable({ from, to, stops }) {
  const table = new Uint8Array(256 * 3);
  for (let step = 0; step < 256; step += 1) {
    const share = step / 255;
    const place = share * (stops.length - 1);
    const left = Math.min(Math.floor(place), stops.length - 2);
    const part = place - left;
    const [chroma, hue] = [0, 1].map((axis) => stops[left][axis] * (1 - part) + stops[left + 1][axis] * part);
    table.set(toBytes([from + (to - from) * share, chroma, hue]), step * 3);
  }
  return table;
}

const made = new Map();

/** The colours of a theme: named ones as text, the ramp of weights and the ramp of doubt as tables. */
export function coloursOf(theme) {
  if (!made.has(theme)) {
    const named = Object.entries(PALETTES[theme]).map(([name, colour]) => [name, rgbText(toBytes(colour))]);
    const ramp = rampTable(RAMPS[theme]);
    const doubt = rampTable(DOUBTS[theme]);
    made.set(theme, { theme, ...Object.fromEntries(named), names: Object.keys(PALETTES[theme]), ramp, doubt });
  }
  return made.get(theme);
}

const LIFT = 0.7;

/** The place in a table of a share from 0 to 1; small shares are lifted a little, they would all look like nothing. */
export function rampStep(share) {
  return Math.round(255 * Math.min(1, Math.max(0, share)) ** LIFT);
}

/** The colour of a share from 0 to 1. */
export function shade(table, share) {
  const step = rampStep(share);
  return rgbText(table.subarray(step * 3, step * 3 + 3));
}

/** Whether dark letters or light ones can be read on a colour of a table. */
export function inkOn(table, share) {
  const step = rampStep(share);
  const [red, green, blue] = table.subarray(step * 3, step * 3 + 3);
  const bright = 0.299 * red + 0.587 * green + 0.114 * blue > 140;
  return bright ? rgbText(toBytes(PALETTES.light.ink)) : rgbText(toBytes(PALETTES.dark.ink));
}

/** Give the page's style sheet the colours of a theme. */
export function dress(root, colours) {
  for (const name of colours.names) root.style.setProperty(`--${name}`, colours[name]);
  const steps = [0, 64, 128, 191, 255].map((step) => rgbText(colours.ramp.subarray(step * 3, step * 3 + 3)));
  root.style.setProperty("--ramp", `linear-gradient(to right, ${steps.join(", ")})`);
  const doubts = [0, 128, 255].map((step) => rgbText(colours.doubt.subarray(step * 3, step * 3 + 3)));
  root.style.setProperty("--doubt", `linear-gradient(to right, ${doubts.join(", ")})`);
  root.dataset.theme = colours.theme;
  root.style.colorScheme = colours.theme;
}
