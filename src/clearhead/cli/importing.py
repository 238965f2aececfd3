"""`clearhead import`: a Hugging Face directory in, a model directory of ours out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from clearhead.cli import show


def import_model(
    directory: Path, /, *, out: Path, check: Annotated[bool, Parameter(negative="--no-check")] = True
) -> None:
    """Read a model that somebody else has trained, so that you can look inside it, and ship it.

    clearhead import downloads/opus-mt-de-en --out models/de-en

    The directory is what `git clone https://huggingface.co/...` or `hf download` leave: Marian (OPUS-MT), GPT-2, BERT
    and ViT models, with weights as safetensors. Pickles are refused.

    Parameters
    ----------
    directory
        A Hugging Face model directory.
    out
        The model directory to write.
    check
        Compare with the original, where transformers is installed.
    """
    with show.waiting("reading"):
        from clearhead.run.importing import import_directory

        report = import_directory(directory, out, check=check)
    show.note(f"{out}: a {report.kind} from a {report.family} model, {report.parameters:,} parameters")
    for note in report.notes:
        show.note(note)
    if report.difference is not None:
        show.note(f"beside the original in transformers its scores differ by at most {report.difference:.2g}")
    elif check:
        show.note("not compared with the original: pip install transformers, and import it again, to do so")


app = App(name="import", default_command=import_model)
