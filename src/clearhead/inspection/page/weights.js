// The view's data in, matrices of weights out: decoding, several heads as one, pieces merged into words.

/** The bytes or 16-bit numbers of one block. */
function decode(block) {
  const text = atob(block.data);
  const bytes = new Uint8Array(text.length);
  for (let place = 0; place < text.length; place += 1) bytes[place] = text.charCodeAt(place);
  if (block.encoding !== "u16") return bytes;
  const numbers = new Uint16Array(bytes.length >> 1);
  for (let place = 0; place < numbers.length; place += 1) numbers[place] = bytes[2 * place] | (bytes[2 * place + 1] << 8);
  return numbers;
}

/** One kind of attention; its numbers are decoded when first asked for. */
export class Block {
  constructor(tokens, { kind, queries, keys, layers = 1, heads = 1, causal = false, ...stored }) {
    Object.assign(this, { kind, layers, heads, causal, stored });
    this.names = { queries, keys };
    this.queries = tokens[queries] || [];
    this.keys = tokens[keys] || [];
    this.wholeWords = false;
    this.there = null;
    this.mixed = new Map();
  }

  /** Whether there is such a head: some may have been pruned. */
  has(layer, head) {
    return layer < this.layers && head < this.heads && (!this.there || this.there.has(`${layer}.${head}`));
  }

  get numbers() {
    if (!this.decoded) {
      this.decoded = decode(this.stored);
      const needed = this.layers * this.heads * this.queries.length * this.keys.length;
      if (this.decoded.length !== needed) throw new Error(`${this.kind}: ${this.decoded.length} weights, not ${needed}`);
    }
    return this.decoded;
  }

  get scale() {
    return this.stored.encoding === "u16" ? 65535 : 255;
  }

  /** Every head as [layer, head]. */
  get everyHead() {
    const heads = [];
    for (let layer = 0; layer < this.layers; layer += 1) {
      for (let head = 0; head < this.heads; head += 1) if (this.has(layer, head)) heads.push([layer, head]);
    }
    return heads;
  }

  /** The stored numbers of one head, a row for each query. */
  head(layer, head) {
    const size = this.queries.length * this.keys.length;
    const start = (layer * this.heads + head) * size;
    return this.numbers.subarray(start, start + size);
  }

  /** The weights of several heads as one matrix: their mean, or the largest of each cell. */
  mix(chosen, how) {
    const name = `${how} ${chosen.join(" ")}`;
    if (!this.mixed.has(name)) {
      if (this.mixed.size > 24) this.mixed.clear();
      this.mixed.set(name, this.mixAnew(chosen, how));
    }
    return this.mixed.get(name);
  }

  mixAnew(chosen, how) {
    const size = this.queries.length * this.keys.length;
    const out = new Float32Array(size);
    for (const [layer, head] of chosen) {
      const numbers = this.head(layer, head);
      if (how === "max") for (let cell = 0; cell < size; cell += 1) out[cell] = Math.max(out[cell], numbers[cell]);
      else for (let cell = 0; cell < size; cell += 1) out[cell] += numbers[cell];
    }
    const factor = 1 / (this.scale * (how === "max" ? 1 : Math.max(1, chosen.length)));
    for (let cell = 0; cell < size; cell += 1) out[cell] *= factor;
    return out;
  }
}

/** The word alignment as a block of its own, between words. */
class AlignmentBlock extends Block {
  constructor(tokens, pairs) {
    super(tokens, { kind: "alignment", queries: "target", keys: "source" });
    this.pairs = pairs;
    this.wholeWords = true;
    this.queries = wordsOf(this.queries);
    this.keys = wordsOf(this.keys);
  }

  get numbers() {
    if (!this.decoded) {
      this.decoded = new Float32Array(this.queries.length * this.keys.length);
      const row = new Map(this.queries.map((token, place) => [token.word, place]));
      const column = new Map(this.keys.map((token, place) => [token.word, place]));
      for (const { source, target, weight } of this.pairs) {
        if (row.has(target) && column.has(source)) {
          this.decoded[row.get(target) * this.keys.length + column.get(source)] = weight;
        }
      }
    }
    return this.decoded;
  }

  get scale() {
    return 1;
  }
}

/** A token as a reader wants it: the mark of the space before it is left out, for the space between words says it. */
export function labelOf(text) {
  return text === "" ? "∅" : text.replace(/^▁+(?=.)/su, "");
}

/** The lists of tokens with labels for text; `raw` is what the model has, `goesOn` marks later pieces of a word. */
export function labelled(lists) {
  const label = (token, place, list) => {
    const before = list[place - 1];
    const goesOn = Boolean(before && !before.special && !token.special && before.word === token.word);
    return { ...token, raw: token.text, goesOn, text: token.special ? token.text : labelOf(token.text) };
  };
  return Object.fromEntries(Object.entries(lists).map(([name, list]) => [name, list.map(label)]));
}

/** Every kind of attention in a view, the derived ones last. */
export function blocksOf(view, tokens) {
  const blocks = view.attention.map((block) => new Block(tokens, block));
  for (const block of blocks) {
    const known = (view.heads || []).filter(({ kind }) => kind === block.kind);
    if (known.length) block.there = new Set(known.map(({ layer, head }) => `${layer}.${head}`));
  }
  if (view.rollout) blocks.push(new Block(tokens, { kind: "rollout", ...view.rollout }));
  if (view.alignment && view.alignment.length) blocks.push(new AlignmentBlock(tokens, view.alignment));
  return blocks;
}

/** Bytes that are shown as \xe4 because a character was cut in pieces, as the character they are together. */
function joinBytes(text) {
  return text.replace(/(?:\\x[0-9a-f]{2})+/g, (run) => {
    const bytes = run.match(/[0-9a-f]{2}/g).map((byte) => parseInt(byte, 16));
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array(bytes));
    } catch {
      return run;
    }
  });
}

/** Pieces of one word merged: tokens with `from` and `to`, the places of their pieces. */
export function wordsOf(tokens) {
  const words = [];
  tokens.forEach((token, place) => {
    const last = words.at(-1);
    const goesOn = last && !last.special && !token.special && last.word === token.word;
    if (goesOn) Object.assign(last, { raw: last.raw + token.raw, to: place + 1 });
    else words.push({ ...token, goesOn: false, from: place, to: place + 1 });
  });
  for (const word of words) {
    if (!word.special && word.to - word.from > 1) word.text = joinBytes(labelOf(word.raw)).replaceAll("▁", " ");
  }
  return words;
}

/** Weights between words: what the pieces of a key get is added up, what the pieces of a query give is averaged. */
export function mergeWeights(weights, columns, rowWords, columnWords) {
  const out = new Float32Array(rowWords.length * columnWords.length);
  rowWords.forEach((row, r) => {
    columnWords.forEach((column, c) => {
      let sum = 0;
      for (let q = row.from; q < row.to; q += 1) {
        for (let k = column.from; k < column.to; k += 1) sum += weights[q * columns + k];
      }
      out[r * columnWords.length + c] = sum / (row.to - row.from);
    });
  });
  return out;
}

/** What is on show: the matrix of the chosen heads, with the tokens (or words) of its rows and columns. */
export function shownMatrix(block, chosen, how, asWords) {
  const weights = block.mix(chosen, how);
  if (!asWords || block.wholeWords) return { weights, queries: block.queries, keys: block.keys };
  const queries = wordsOf(block.queries);
  const keys = wordsOf(block.keys);
  return { weights: mergeWeights(weights, block.keys.length, queries, keys), queries, keys };
}

/** The places of the largest numbers of a row, largest first. */
export function strongest(values, count) {
  const places = Array.from(values, (value, place) => place).filter((place) => values[place] > 0);
  return places.sort((a, b) => values[b] - values[a]).slice(0, count);
}

/** The places of the largest numbers of a large table, largest first, without sorting all of it. */
export function strongestCells(values, count) {
  const best = [];
  for (let place = 0; place < values.length; place += 1) {
    const value = values[place];
    if (!(value > 0) || (best.length === count && value <= values[best[count - 1]])) continue;
    let at = best.length;
    while (at > 0 && values[best[at - 1]] < value) at -= 1;
    best.splice(at, 0, place);
    if (best.length > count) best.pop();
  }
  return best;
}

/** The smallest weight that may be drawn if no more than `most` are. */
export function threshold(weights, most) {
  const bins = new Uint32Array(1024);
  for (const weight of weights) bins[Math.min(1023, Math.floor(weight * 1024))] += 1;
  let count = 0;
  for (let bin = 1023; bin >= 0; bin -= 1) {
    count += bins[bin];
    if (count > most) return (bin + 1) / 1024;
  }
  return 0;
}

/** The top of a scale that a matrix fills: 1, or a round number not far above its largest weight. */
export function roundTop(values, scale = 1) {
  let most = 0;
  for (const value of values) most = Math.max(most, value);
  most /= scale;
  return [0.01, 0.02, 0.05, 0.1, 0.2, 0.5].find((top) => most <= top) ?? 1;
}
