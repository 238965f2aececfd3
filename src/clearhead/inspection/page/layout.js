// Where the tokens of a sentence stand, and the way of a line between two of them.

import { isRightToLeft, textWidth } from "./pens.js";

export const CAPTION = 26;

/** Where every token stands: in two lines if both fit into the width, else in two columns. */
export function layOut({ keys, queries }, width, captionWidths) {
  return acrossThePage(keys, queries, width) || downThePage(keys, queries, width, captionWidths);
}

function acrossThePage(keys, queries, width) {
  const size = width < 560 ? 14 : 16;
  const high = 34;
  const wide = (token) => Math.max(18, textWidth(token.text, size, token.special ? 500 : 400) + 14);
  const gap = (token) => (token.goesOn ? 2 : 12);
  const total = (tokens) => tokens.reduce((sum, token, place) => sum + wide(token) + (place ? gap(token) : 0), 0);
  if (Math.max(total(keys), total(queries)) > width) return null;
  const between = Math.max(150, Math.min(270, width * 0.3));
  const line = (tokens, y) => {
    const backwards = tokens.filter((token) => isRightToLeft(token.text)).length * 2 > tokens.length;
    let x = (width - total(tokens)) / 2;
    return tokens.map((token, place) => {
      x += place ? gap(token) : 0;
      const box = { x: backwards ? width - x - wide(token) : x, y, width: wide(token), height: high };
      x += wide(token);
      return box;
    });
  };
  const below = CAPTION + high + between;
  return {
    across: true, size, width, height: below + high + CAPTION, keys: line(keys, CAPTION), queries: line(queries, below),
    captions: { keys: [width / 2, 10, "center"], queries: [width / 2, below + high + CAPTION - 10, "center"] },
  }; // prettier-ignore
}

function downThePage(keys, queries, width, captionWidths) {
  const size = 14;
  const high = 28;
  const longest = (tokens) => Math.max(40, ...tokens.map((token) => textWidth(token.text, size, token.special ? 500 : 400) + 20));
  const left = Math.min(longest(keys), width * 0.37);
  const right = Math.min(longest(queries), width * 0.37);
  const between = Math.min(width - left - right, Math.max(width * 0.3, 460));
  const start = (width - left - right - between) / 2;
  const column = (tokens, x, wide) => tokens.map((token, place) => ({ x, y: CAPTION + place * high, width: wide, height: high - 2 }));
  const queriesAt = start + left + between;
  return {
    across: false, size, width, height: CAPTION + Math.max(keys.length, queries.length) * high + 6,
    keys: column(keys, start, left), queries: column(queries, queriesAt, right),
    captions: { keys: [Math.max(start + left - 10, captionWidths.keys), 10, "right"], queries: [Math.min(queriesAt + 10, width - captionWidths.queries), 10, "left"] },
  }; // prettier-ignore
}

/** The ends of a line and what bends it. */
export function curve(layout, key, query) {
  if (layout.across) {
    const [x1, y1] = [key.x + key.width / 2, key.y + key.height + 1];
    const [x2, y2] = [query.x + query.width / 2, query.y - 1];
    const middle = (y1 + y2) / 2;
    return [[x1, y1], [x1, middle], [x2, middle], [x2, y2]]; // prettier-ignore
  }
  const [x1, y1] = [key.x + key.width + 1, key.y + key.height / 2];
  const [x2, y2] = [query.x - 1, query.y + query.height / 2];
  const middle = (x1 + x2) / 2;
  return [[x1, y1], [middle, y1], [middle, y2], [x2, y2]]; // prettier-ignore
}
