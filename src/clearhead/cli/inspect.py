"""`clearhead inspect`: a model and a text in, what every head looked at out; or what heads are worth."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from clearhead.cli import show
from clearhead.cli.flags import ALL_TOKENS, Count, Device, Fewer, Switch, Threads, refuse, refuse_ending, use_threads
from clearhead.errors import MissingInputError, UsageError

if TYPE_CHECKING:
    from clearhead.run.inspecting import Inspection
    from clearhead.run.seeing import LoadedVit
    from clearhead.run.surgery import Effect
    from clearhead.run.task import Measure

Names = Annotated[list[str] | None, Parameter(consume_multiple=True, negative=())]


def inspect(
    model: str | None = None,
    text: str | None = None,
    /,
    *,
    target: str | None = None,
    out: Path | None = None,
    png: Path | None = None,
    svg: Path | None = None,
    json: Path | None = None,
    tensors: Path | None = None,
    trail: Path | None = None,
    head: str | None = None,
    ablate: Names = None,
    prune: Names = None,
    importance: Switch = False,
    on: Annotated[list[Path] | None, Parameter(consume_multiple=True, negative=())] = None,
    split: str | None = None,
    limit: Count = None,
    beam: Count = None,
    fewer: Fewer = ALL_TOKENS,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Look at every head of a model while it works on a text or a picture; switch heads off, weigh them, prune them.

    clearhead inspect runs/de-en "Ein Mann fährt Rad." --out page.html

    clearhead inspect "我吃了一个苹果。" --out page.html

    clearhead inspect runs/de-en "Ein Mann fährt Rad." --ablate decoder.2.cross.5 encoder.0

    clearhead inspect runs/fashion-vit shoe.png --png heads.png --reduce merge --r 8 --trail merged.png

    clearhead inspect runs/de-en --importance --on dev.tsv --out importance.tsv

    clearhead inspect runs/de-en --prune decoder.2.cross.5 encoder.0.self.1 --out models/smaller

    Heads and layers are counted from 0. Without a model the built-in one is used, or the one in CLEARHEAD_MODEL.

    Parameters
    ----------
    model
        A model or run directory; left out, the built-in model is looked into.
    text
        What to translate while looking, or the picture to look at; after -- if it begins with a dash.
    target
        Lead the model to this translation instead of its own.
    out
        The page to write; with --importance a table, with --prune the new model directory.
    png
        Draw heat maps of heads into this file, as dots.
    svg
        Draw heat maps of heads into this file, as lines that stay sharp.
    json
        Write everything the page knows into this file.
    tensors
        Write the weights as safetensors, with the names and shapes that bertviz takes.
    trail
        Draw which words of a text, or patches of a picture, were merged or dropped in each layer.
    head
        What is drawn: one head (cross.2.3), a layer (encoder.0), or a kind (cross by default, of pictures encoder).
    ablate
        Heads or layers to switch off, such as decoder.2.cross.5, decoder.2.cross or encoder.0.
    prune
        Heads to remove for good; the smaller model goes to --out.
    importance
        For every head, how loss and BLEU (accuracy, perplexity) change without it; started again, it goes on.
    on
        What to try heads on: a TSV, or two files with a text a line; labelled texts, a text, pictures.
    split
        Or: the validation or test data that the model's training config names.
    limit
        Use this many pairs, texts, pictures or windows only.
    beam
        Hypotheses kept side by side; 1 is greedy, which is also what --importance does unless told.
    """
    use_threads(threads)
    given = {"--out": out, "--png": png, "--svg": svg, "--json": json, "--tensors": tensors}
    about_a_text = {"a text": text, "--target": target, "--head": head, "--ablate": ablate, **fewer.flags}
    other_files = {**{flag: path for flag, path in given.items() if flag != "--out"}, "--trail": trail}
    if prune is not None:
        about_data = {"--on": on, "--split": split, "--limit": limit, "--beam": beam}
        refuse("--prune", {"--importance": importance or None, **about_data, **about_a_text, **other_files})
        _prune(_home(model), prune, out)
    elif importance:
        refuse("--importance", {**about_a_text, **other_files})
        _weigh(_home(model), on, split, limit, beam, out or Path("importance.tsv"), device)
    else:
        if text is None:
            model, text = _told_apart(model)
        refuse("a text", {"--on": on, "--split": split, "--limit": limit})
        _refuse_endings(given, trail)
        home = _home(model)
        with show.waiting("looking"):
            from clearhead.run.seeing import LoadedVit
            from clearhead.run.using import load

            loaded = load(home, device)
        if isinstance(loaded, LoadedVit):
            refuse("a picture", {"--target": target, "--beam": beam, "--out": out})
            fewer.switch_on(loaded)
            _look_at_picture(loaded, text, given, trail, head or "encoder", ablate or [])
        else:
            if not hasattr(loaded, "reduce"):
                refuse(f"a {loaded.model.config.kind}", {"--trail": trail, **fewer.flags})
            fewer.switch_on(loaded)
            _look(loaded, model, text, target, given, head, ablate or [], beam, trail)


def _told_apart(word: str | None) -> tuple[None, str]:
    """A lone word is the text for the built-in model, unless it is a model and the text was forgotten."""
    try:
        is_path = word is not None and Path(word).exists()
        is_mistyped = word is not None and not is_path and _is_beside_others(word)
    except OSError:
        # Too long for a name: a text.
        is_path = is_mistyped = False
    if is_mistyped:
        raise MissingInputError(f"there is no model at {word}")
    if word is None or is_path:
        raise UsageError('say what to look at: clearhead inspect [MODEL] "a text" (or --importance, or --prune)')
    return None, word


def _is_beside_others(word: str) -> bool:
    """Whether a word names something in a named folder that is there: a mistyped model, hardly a text."""
    folder = Path(word).parent
    return folder.name != "" and not any(map(str.isspace, word)) and folder.is_dir()


def _home(model: str | None) -> Path:
    """Where the model is that is meant; whoever named none is told which it is."""
    if model is not None:
        return Path(model)
    from clearhead.run.built_in import default_model

    path = default_model()
    show.note(f"no model named, so this is {path}")
    return path


def _refuse_endings(given: dict[str, Path | None], trail: Path | None) -> None:
    """Each file must be called what it is going to be."""
    endings = {"--out": ".html", "--png": ".png", "--svg": ".svg", "--json": ".json", "--tensors": ".safetensors"}
    for flag, path in given.items():
        refuse_ending(flag, path, endings[flag])
    if trail is not None:
        from clearhead.inspection.pictures import ENDINGS

        refuse_ending("--trail", trail, *ENDINGS)


def _look_at_picture(
    loaded: LoadedVit, picture: str, given: dict[str, Path | None], trail: Path | None, heads: str, ablate: list[str]
) -> None:
    with show.waiting("looking"):
        whole = loaded.inspect(picture)
        whole.maps(heads)
        found = loaded.inspect(picture, ablate=ablate) if ablate else whole
    for name, one in (("whole", whole), (f"without {', '.join(ablate)}", found)) if ablate else (("", found),):
        share = f"{one.probabilities[one.label]:.4f}"
        show.data("\t".join([*([name] if name else []), one.label, share]))
    left = found.trail.left()
    if min(left) < left[0] or left[0] < found.config.num_tokens:
        show.note(f"tokens left after each layer, of {found.config.num_tokens}: {', '.join(map(str, left))}")
    for path in [path for path in given.values() if path is not None]:
        show.note(f"wrote {found.save(path, heads=heads)}")
    if trail is not None:
        show.note(f"wrote {found.save_trail(trail)}")


def _look(
    loaded: Any,
    model: str | None,
    text: str,
    target: str | None,
    given: dict[str, Path | None],
    head: str | None,
    ablate: list[str],
    beam: int | None,
    trail: Path | None,
) -> None:
    with show.waiting("looking"):
        from clearhead.inspection.names import meant, named_heads
        from clearhead.inspection.pictures import font_advice
        from clearhead.run.translating import LoadedTranslator

        if beam is not None and not isinstance(loaded, LoadedTranslator):
            raise UsageError("--beam is about translating: leave it out")
        options: dict[str, Any] = {} if beam is None else {"beam_size": beam}
        if loaded.model.config.kind != "gpt":  # To all others a text is one line, as for translate, classify and fill.
            text, target = " ".join(text.split("\n")), target and " ".join(target.split("\n"))
        whole = loaded.inspect(text, target, **options)
        if head is not None:
            meant(named_heads(whole.heads), head)
        found = loaded.inspect(text, target, ablate=ablate, **options) if ablate else whole
    _say(whole, found, ablate, is_led=target is not None)
    wanted = [path for path in given.values() if path is not None]
    for path in wanted:
        found.save(path, heads=head)
        is_page = path.suffix.lower() == ".html"
        show.note(f"wrote {path}" + (f"; open it in a browser: {show.address(path)}" if is_page else ""))
    if trail is not None:
        wanted.append(found.save_trail(trail))
        show.note(f"wrote {trail}")
    if any(path.suffix.lower() in (".png", ".svg") for path in wanted):
        advice = font_advice([text, found.translation])
        if advice:
            show.note(advice)
    if not wanted and not ablate:
        _table(found)
        again = shlex.join([*([] if model is None else [model]), text])
        show.note(f"\nto look for yourself:  {show.program()} inspect {again} --out page.html")


def _say(whole: Inspection, found: Inspection, ablate: Sequence[str], *, is_led: bool) -> None:
    """What was written goes to stdout; with heads switched off, both, and how sure the model was."""
    lines = [found.translation]
    if ablate:
        without = f"without {', '.join(ablate)}"
        lines = [f"{name}\t{one.loss:.4f}\t{one.translation}" for name, one in (("whole", whole), (without, found))]
        show.note("which heads, loss per token, " + ("the target" if is_led else "the translation"))
    for line in lines:
        show.data(" ".join(line.splitlines()))


WORDS = {
    "previous": "looks one back",
    "next": "looks one ahead",
    "self": "looks at itself",
    "near": "looks nearby",
    "first": "looks at the beginning",
    "last": "looks at the end",
    "punctuation": "looks at punctuation",
    "diagonal": "follows word by word",
    "peak": "looks at one place at a time",
    "everywhere": "looks everywhere",
}
"""Labels in plain words."""


def _table(found: Inspection) -> None:
    """The heads whose habit is clear in this sentence."""
    names = {(head.kind, head.layer, head.number): head.name for head in found.heads}
    rows = [
        (
            names[head["kind"], head["layer"], head["head"]],
            WORDS[head["label"]["code"]],
            f"{100 * head['label']['share']:.0f} %",
        )
        for head in found.view["heads"]
        if head["label"] is not None
    ]
    if not rows:
        show.note("no head has a clear habit in this sentence")
        return
    show.table("heads with a clear habit in this sentence", ("head", "habit", "share"), rows)


def _weigh(
    model: Path,
    on: list[Path] | None,
    split: str | None,
    limit: int | None,
    beam: int | None,
    out: Path,
    device: str,
) -> None:
    files = on or []
    if bool(files) == (split is not None):
        raise UsageError("say what to try heads on: --on dev.tsv, --on dev.de dev.en, or --split validation")
    if out.suffix != ".tsv":
        raise UsageError(f"--importance writes a table: --out NAME.tsv, not {out} (a .json and a .png go beside it)")
    from clearhead.inspection.names import all_heads
    from clearhead.run.surgery import importance, save_importance
    from clearhead.run.task import Asked
    from clearhead.run.tasks import TASKS
    from clearhead.run.using import load

    loaded = load(model, device)
    trial = TASKS[loaded.model.config.kind].trial(loaded, model, Asked(files, split, limit, beam))
    notes = out.with_suffix(".jsonl")
    count = len(all_heads(loaded.model))
    effects = []
    try:
        with show.counting(f"{count} heads on {trial.size:,} {trial.unit}", (count + 1) * trial.size) as done:
            for effect in importance(loaded.model, trial, notes, done):
                effects.append(effect)
    except KeyboardInterrupt:
        show.note(f"{notes} has the heads that are done: the same command goes on from there")
        raise
    _print(sorted(effects, key=lambda effect: -effect.changes["loss"]), trial.measures)
    table, tree, picture = save_importance(out, effects, trial.measures)
    show.note(f"wrote {table}, {tree} and {picture}")


def _print(effects: Sequence[Effect], measures: Sequence[Measure]) -> None:
    width = max(len(effect.name) for effect in effects)
    heads = (f"{measure.name:>10}  {'change':>9}" for measure in measures)
    sys.stdout.write("  ".join([f"{'without':<{width}}", *heads]) + "\n")
    for effect in effects:
        cells = (
            f"{effect.values[measure.key]:10.{measure.digits}f}  {effect.changes[measure.key]:+9.{measure.digits}f}"
            for measure in measures
        )
        sys.stdout.write("  ".join([f"{effect.name:<{width}}", *cells]) + "\n")


def _prune(model: Path, names: list[str], out: Path | None) -> None:
    if out is None:
        raise UsageError("say where the smaller model goes: --out DIR")
    from clearhead.run.surgery import prune

    before, after = prune(model, names, out)
    show.note(f"{before:,} parameters before, {after:,} after; the smaller model is in {out}")
