"""`clearhead demo`: nothing in; the built-in model at work, a translator trained before your eyes, a look inside."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from clearhead.cli import show
from clearhead.cli.flags import Switch
from clearhead.errors import MissingInputError, WouldOverwriteError

SENTENCES = ("Ich habe gestern im Park einen alten Freund getroffen.", "我吃了一个苹果。")
"""What the built-in model shows itself with."""
SHOWN = (7, 23, 58, 391, 4_711, 86_420, 917_253)
PICTURED = 23
MARK = "made-by-clearhead-demo.txt"
"""What tells a directory that the demo may replace from one that it must not touch."""


def demo(*, out: Path = Path("demo"), quick: Switch = False) -> int:
    """Translate with the built-in model, train a small one live, score it on unseen numbers, look inside it.

    Offline, on built-in data, in about two minutes on a laptop.

    Parameters
    ----------
    out
        Where the run, the page and the picture go; an earlier demo there is replaced.
    quick
        A few steps only: shows the way, not the result.
    """
    _make_room(out)
    with show.waiting("waking up"):
        from clearhead.run.demonstration import numbers_config, spelled, unseen_numbers
        from clearhead.run.training import train
        from clearhead.run.translating import LoadedTranslator
        from clearhead.run.using import load_as

    has_built_in = _show_built_in()
    run = out / "run"
    config = numbers_config(run, quick=quick)
    show.note(f"Clearhead learns to read German numbers aloud in English, from {config.data.train_size:,} examples.\n")
    for _ in show.training(train(config)):
        pass
    translator = load_as(LoadedTranslator, run)
    sources, references = unseen_numbers(run)
    with show.counting("translating unseen numbers", len(sources)) as done:
        found = []
        for best in translator.stream(sources, translator.generation):
            found.append(best[0].text)
            done(len(found))
    right = sum(hypothesis == reference for hypothesis, reference in zip(found, references, strict=True))
    show.note("")
    words = [spelled(number) for number in SHOWN]
    rows = zip(map("{:,}".format, SHOWN), words, translator.translate(words), strict=True)
    show.table("what it says", ("number", "German", "English, as translated"), rows)
    show.note(
        f"\n{right:,} of {len(found):,} numbers it never saw are exactly right ({100 * right / len(found):.1f} %)."
    )
    looked = translator.inspect(spelled(PICTURED))
    page, picture = looked.save(out / "page.html"), looked.save(out / "attention.png", heads="cross")
    show.note(f"\nLook inside it: what every head saw while {spelled(PICTURED)} became {looked.translation}.")
    show.note(f"  open in a browser:  {show.address(page)}")
    show.note(f"  or as a picture:    {picture}")
    again = show.program()
    show.note(f'\nYour turn:  {again} translate --model {shlex.quote(str(run))} "{spelled(42)}"')
    show.note(f'            {again} inspect {shlex.quote(str(run))} "{spelled(391)}" --out {shlex.quote(str(page))}')
    if has_built_in:
        show.note(f'            {again} translate "Wo ist der Bahnhof?"')
    show.note(f"            {again} train translator --source your.de --target your.en --out runs/mine")
    return 0


def _show_built_in() -> bool:
    """Two sentences and what the model in the box makes of them; whether there is one comes back."""
    from clearhead.run.built_in import default_model
    from clearhead.run.translating import LoadedTranslator
    from clearhead.run.using import load_as

    try:
        path = default_model()
    except MissingInputError:
        show.note("This copy of clearhead has no built-in model to show; it trains one.\n")
        return False
    rows = zip(SENTENCES, load_as(LoadedTranslator, path).translate(SENTENCES), strict=True)
    show.table("the model in the box", ("text", "English, as translated"), rows)
    show.note("")
    return True


def _make_room(out: Path) -> None:
    """Remove an earlier demo, but nothing else."""
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / MARK).is_file())):
        raise WouldOverwriteError(f"{out} was not made by the demo: choose another --out")
    shutil.rmtree(out / "run", ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    (out / MARK).write_text(
        "The next `clearhead demo` here replaces this run, its page and its picture.\n", encoding="utf-8"
    )
