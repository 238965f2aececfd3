"""Views as `inspect` makes them, but made up: small with heads of every habit, large, and with nasty tokens."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

MEASURES = ["entropy", "distance", "self", "previous", "next", "first", "punctuation", "diagonal"]
HABITS = ["previous", "diagonal", "first", "next", "self", "everywhere", "last", "punctuation"]
SOURCE = ["Ein", "▁Mann", "▁fährt", "▁mit", "▁dem", "▁Fahr", "rad", "▁durch", "▁die", "▁Alt", "stadt", "."]
TARGET = ["A", "▁man", "▁rides", "▁his", "▁bi", "cycle", "▁through", "▁the", "▁old", "▁town", "."]
ALIGNED = [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12]
NASTY = [
    "<script>alert(1)</script>", "</script>", "<!--", "]]>", "&amp;", "<b>", "</s>", "{data}", "'\"`", "\\xe4",
    "\u202e", "مرحبا", "بالعالم", "שלום", "👩‍👩‍👧‍👦", "🏳️‍🌈", "我", "吃了", "苹果", "▁", "", "\u2028", "ด้วย",
    "a" * 300, "e\u0301\u0302",
]  # fmt: skip


def tokens(texts: list[str], *, start: bool = False, end: bool = True) -> list[dict[str, Any]]:
    """Tokens of a sentence; a piece with no space before it goes on with the word before."""
    out: list[dict[str, Any]] = []
    word = -1
    for place, text in enumerate(texts):
        goes_on = place > 0 and not text.startswith("▁") and text[:1].isalpha()
        word += not goes_on
        out.append({"text": text, "word": word, "special": False})
    if start:
        out.insert(0, {"text": "<s>", "word": -1, "special": True})
    return [*out, {"text": "</s>", "word": word + 1, "special": True}] if end else out


def weights(habit: str, rows: int, columns: int, causal: bool, noise: np.random.Generator) -> np.ndarray:
    """The weights of a head with one habit: each row sums to one, the future is dark where it must be."""
    row, column = np.mgrid[:rows, :columns]
    centre = {
        "previous": row - 1, "next": row + 1, "self": row, "first": 0 * row, "last": 0 * row + columns - 1,
        "diagonal": row * (columns - 1) / max(1, rows - 1), "punctuation": 0 * row + columns - 2,
    }.get(habit)  # fmt: skip
    scores = noise.normal(0, 0.6, (rows, columns))
    if centre is not None:
        scores = scores - 1.6 * np.abs(column - np.clip(centre, 0, columns - 1))
    if causal:
        scores = np.where(column > row, -np.inf, scores)
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(raised / raised.sum(-1, keepdims=True))


def encoded(array: np.ndarray, encoding: str) -> str:
    """Weights as the page reads them."""
    largest, kind = (65535, "<u2") if encoding == "u16" else (255, "u1")
    return base64.b64encode(np.round(array * largest).astype(kind).tobytes()).decode()


def _measures(habit: str, array: np.ndarray) -> dict[str, float]:
    rows, columns = array.shape
    row, column = np.mgrid[:rows, :columns]
    shares = {
        name: float(array[row + step == column].sum() / rows)
        for name, step in (("self", 0), ("previous", -1), ("next", 1))
    }
    entropy = float(-(array * np.log2(array, where=array > 0, out=np.zeros_like(array))).sum(-1).mean())
    distance = float((array * np.abs(row - column)).sum(-1).mean())
    first, marks = float(array[:, 0].mean()), float(array[:, -2:].sum(-1).mean())
    rest = {"first": first, "punctuation": marks, "diagonal": float(np.clip(1 - distance / max(1, columns), 0, 1))}
    return {"entropy": entropy, "distance": distance, **shares, **rest}


def made_up_view(
    source: list[str],
    target: list[str],
    layers: int = 3,
    heads: int = 4,
    encoding: str = "u16",
    aligned: list[int] | None = None,
) -> dict[str, Any]:
    """A translator's view of a pair, with every part filled."""
    noise = np.random.default_rng(4)
    named = {"source": tokens(source), "target": tokens(target), "read": tokens(target, start=True, end=False)}
    attention, facts = [], []
    for kind, queries, keys in (
        ("encoder", "source", "source"),
        ("decoder", "target", "read"),
        ("cross", "target", "source"),
    ):
        rows, columns = len(named[queries]), len(named[keys])
        block = np.zeros((layers, heads, rows, columns))
        for layer in range(layers):
            for head in range(heads):
                habit = HABITS[(layer * 3 + head * 2 + len(kind)) % len(HABITS)]
                array = weights(habit, rows, columns, kind == "decoder", noise)
                if kind == "cross" and aligned is not None and (layer + head) % 3 != 2:
                    habit = "diagonal"
                    array = 0.15 * array + 0.85 * np.eye(columns)[aligned]
                block[layer, head] = array
                clear = habit != "everywhere" or head % 2 == 0
                label = {"code": habit, "share": round(float(array.max(-1).mean()), 3)} if clear else None
                place = f"decoder.{layer}.cross" if kind == "cross" else f"{kind}.{layer}.self"
                facts.append({
                    "name": f"{place}.{head}", "kind": kind, "layer": layer, "head": head,
                    "measures": _measures(habit, array), "label": label,
                })  # fmt: skip
        attention.append({
            "kind": kind, "queries": queries, "keys": keys, "layers": layers, "heads": heads,
            "causal": kind == "decoder", "encoding": encoding, "data": encoded(block, encoding),
        })  # fmt: skip
    rollout = weights("self", len(named["source"]), len(named["source"]), False, noise)
    last = named["target"][-1]["word"]
    pairs = [
        {"source": named["source"][s]["word"], "target": named["target"][t]["word"], "weight": 0.8}
        for t, s in enumerate(aligned or [])
    ]
    return {
        "format": "clearhead-view", "version": 1,
        "model": {"name": "multi30k", "kind": "translator", "parameters": 7_452_160},
        "languages": {"source": "de", "target": "en"},
        "texts": {"source": "".join(source).replace("▁", " "), "target": "".join(target).replace("▁", " ")},
        "tokens": named, "attention": attention, "measures": MEASURES, "heads": facts,
        "rollout": {"queries": "source", "keys": "source", "encoding": encoding, "data": encoded(rollout, encoding)},
        "alignment": pairs or None, "unseen": [named["source"][3]["word"]] if aligned else [], "ablated": [],
        "generation": made_up_generation(named["target"], last, noise),
    }  # fmt: skip


def made_up_generation(target: list[dict[str, Any]], last: int, noise: np.random.Generator) -> dict[str, Any]:
    """Steps, candidates and a tree of four beams in which one wins."""
    others = ["▁the", "▁a", "▁bike", "▁with", "▁city", "▁woman", "▁is", "▁riding", "▁in", "▁of", "▁on"]
    steps, hypotheses = [], []
    tree: list[dict[str, Any]] = []
    parents: list[int | None] = [None] * 4
    scores = [0.0] * 4
    for step, token in enumerate(target):
        probability = float(noise.beta(6, 2)) if step % 4 else float(noise.beta(3, 4))
        rest = sorted((1 - probability) * noise.dirichlet([0.7] * 5), reverse=True)[:4]
        shown = [{"text": token["text"], "probability": probability, "chosen": True}]
        shown += [
            {"text": others[(step * 3 + place) % 11], "probability": float(share), "chosen": False}
            for place, share in enumerate(rest)
        ]
        shown.sort(key=lambda candidate: -candidate["probability"])
        steps.append({"token": step, "probability": probability, "candidates": shown})
        at: list[int | None] = []
        for beam in range(4):
            came_from = 0 if beam == 0 or step == 0 else int(noise.integers(0, 4))
            fate = "winner" if beam == 0 else "finished" if step == len(target) - 1 and beam == 1 else "dropped"
            text = token["text"] if beam == 0 else others[(step + beam * 3) % 11]
            likely = probability if beam == 0 else float(rest[beam - 1])
            parent = parents[came_from]
            tree.append({
                "id": len(tree), "parent": parent, "step": step, "text": text, "probability": likely,
                "score": scores[came_from] + float(np.log(max(likely, 1e-6))), "fate": fate,
            })  # fmt: skip
            at.append(len(tree) - 1)
            if parent is not None and tree[parent]["fate"] == "dropped":
                tree[parent]["fate"] = "kept"
        parents, scores = at, [tree[place]["score"] for place in at if place is not None]
    written = "".join(token["text"] for token in target if not token["special"]).replace("▁", " ")
    for place in range(3):
        text = written if place == 0 else written.replace(" old town", [" city", " town"][place - 1])
        hypotheses.append({"text": text, "score": -0.31 - 0.22 * place, "finished": place < 2})
    return {"steps": steps, "hypotheses": hypotheses, "tree": tree}


def small_view() -> dict[str, Any]:
    """A German sentence and its English translation, 3 layers of 4 heads."""
    return made_up_view(SOURCE, TARGET, aligned=ALIGNED)


def big_view(length: int = 200, layers: int = 6, heads: int = 8) -> dict[str, Any]:
    """As long as a page must still bear."""
    source = [SOURCE[place % len(SOURCE)] for place in range(length - 1)]
    target = [TARGET[place % len(TARGET)] for place in range(length - 1)]
    return made_up_view(
        source, target, layers, heads, encoding="u8", aligned=[min(place, length - 1) for place in range(length)]
    )


def nasty_view() -> dict[str, Any]:
    """Tokens that look like markup, run from right to left, are long, empty, or not to be seen."""
    return made_up_view(NASTY, [*NASTY[11:19], "</title>", "<img src=x onerror=alert(1)>"], layers=2, heads=2)


def language_model_view() -> dict[str, Any]:
    """A model with a decoder only, and nothing else."""
    view = small_view()
    view["attention"] = [block for block in view["attention"] if block["kind"] == "decoder"]
    view["model"] = {"name": "shakespeare", "kind": "gpt", "parameters": 812_032}
    view["tokens"].pop("source")
    view |= {
        "rollout": None,
        "alignment": None,
        "unseen": [],
        "generation": None,
        "ablated": ["decoder.1.attention.2", "decoder.2"],
    }
    view["texts"] = {"source": view["texts"]["target"], "target": None}
    view["languages"] = {"source": None, "target": None}
    view["heads"] = [head for head in view["heads"] if head["kind"] == "decoder"]
    return view


def reader_view() -> dict[str, Any]:
    """A model with an encoder only, such as a classifier, whose answer is a label."""
    view = small_view()
    view["attention"] = [block for block in view["attention"] if block["kind"] == "encoder"]
    view["model"] = {"name": "imdb", "kind": "classifier", "parameters": 2_310_000}
    view["tokens"] = {"source": view["tokens"]["source"]}
    view |= {"alignment": None, "unseen": [], "generation": None}
    view["texts"]["target"] = "pos"
    view["languages"] = {"source": None, "target": None}
    view["heads"] = [head for head in view["heads"] if head["kind"] == "encoder"]
    return view
