// Two texts in, the second out with what is not in the first marked.

import { make } from "./parts.js";

const MOST = 400;

/** Words with the spaces behind them; a script without spaces letter by letter. */
function pieces(text) {
  return text.match(/[\u3040-\u30ff\u3400-\u9fff]|[^\s\u3040-\u30ff\u3400-\u9fff]+\s*|\s+/g) || [];
}

/** Which pieces of the second list belong to the longest sequence that both have. */
function kept(before, after) {
  const longest = Array.from({ length: before.length + 1 }, () => new Uint16Array(after.length + 1));
  for (let left = before.length - 1; left >= 0; left -= 1) {
    for (let right = after.length - 1; right >= 0; right -= 1) {
      longest[left][right] = before[left] === after[right] ? 1 + longest[left + 1][right + 1] : Math.max(longest[left + 1][right], longest[left][right + 1]);
    }
  }
  const same = new Set();
  for (let left = 0, right = 0; left < before.length && right < after.length; ) {
    if (before[left] === after[right]) {
      same.add(right);
      left += 1;
      right += 1;
    } else if (longest[left + 1][right] >= longest[left][right + 1]) left += 1;
    else right += 1;
  }
  return same;
}

/** The second text as elements, its changes in `mark`; strings become text, never markup. */
export function marked(before, after) {
  const [first, second] = [before, after].map((text) => pieces(text).slice(0, MOST));
  const bare = (list) => list.map((piece) => piece.trim());
  const same = kept(bare(first), bare(second));
  return second.map((piece, place) => (same.has(place) ? piece : make("mark", {}, piece)));
}
