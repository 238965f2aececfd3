// What is on show, as a file: SVG, PNG, or the data as JSON.

import { onCanvas } from "./parts.js";
import { fitted, moved, SvgPen } from "./pens.js";

const MARGIN = 28;
const HEADING = 72;
const FOOTING = 26;

/** A view's drawing on paper, with what it shows above and where it comes from below. */
function framed(page, picture) {
  const width = Math.ceil(Math.max(picture.width, 320) + 2 * MARGIN);
  const height = Math.ceil(picture.height + 2 * MARGIN + HEADING + FOOTING);
  const { colours } = page;
  const draw = (pen) => {
    pen.rect(0, 0, width, height, { fill: colours.paper });
    const title = `${page.say(`view.${page.state.view}`)} · ${page.title()}`;
    pen.text(fitted(title, width - 2 * MARGIN, 16, 600), MARGIN, MARGIN + 8, { size: 16, weight: 600, fill: colours.ink });
    [colours.ink, colours.accent].forEach((fill, line) => {
      const text = page.data.texts[line ? "target" : "source"];
      if (text) pen.text(fitted(text, width - 2 * MARGIN, 13), MARGIN, MARGIN + 30 + 19 * line, { size: 13, fill });
    });
    pen.text(`${page.data.model.name} · Clearhead`, MARGIN, height - MARGIN + 4, { size: 11, fill: colours.muted });
    picture.draw(moved(pen, MARGIN, MARGIN + HEADING));
  };
  return { width, height, draw };
}

function download(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

const SAVERS = {
  svg(page, picture) {
    const { width, height, draw } = framed(page, picture);
    const pen = new SvgPen(width, height, page.title());
    draw(pen);
    return new Blob([String(pen)], { type: "image/svg+xml" });
  },
  png(page, picture) {
    const { width, height, draw } = framed(page, picture);
    const canvas = onCanvas(width, height, 2, draw);
    return new Promise((done) => canvas.toBlob(done, "image/png"));
  },
  json(page) {
    return new Blob([JSON.stringify(page.data)], { type: "application/json" });
  },
};

export const FILE_KINDS = Object.keys(SAVERS);

/** Save what is on show; the name of the file comes back. */
export async function saveFile(kind, page, picture) {
  const name = `clearhead-${kind === "json" ? "view" : page.state.view}.${kind}`;
  download(await SAVERS[kind](page, kind === "json" ? null : picture()), name);
  return name;
}
