"""Arguments in, exit code out: the one program, `clearhead`; each verb lives in its own file.

A new verb is one file with a function (or an `app` of further verbs) of its name, and one word in VERBS. Such a file
imports torch only inside the function, so that help needs none of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from cyclopts import App, CycloptsError, MissingArgumentError, UnusedCliTokensError

from clearhead.cli import show
from clearhead.errors import INTERNAL_ERROR, INTERRUPTED, ClearheadError, StorageError, UnavailableError
from clearhead.version import VERSION

VERBS = (
    "demo", "train", "translate", "classify", "fill", "generate", "score", "inspect", "serve", "info", "average",
    "pack", "export", "import", "data", "bench",
)  # fmt: skip
"""Every verb, in the order in which a newcomer needs them."""
FILES = {"import": "importing"}
"""The files of verbs that Python has another use for."""

app = App(
    name="clearhead",
    help="Train a Transformer on your own data, look inside it, ship it with proof.",
    version=VERSION,
    help_format="plaintext",
    # Ctrl-C is ours: a run in progress saves first.
    suppress_keyboard_interrupt=False,
)
for place, verb in enumerate(VERBS):
    module = import_module(f"clearhead.cli.{FILES.get(verb, verb)}")
    command = getattr(module, "app", None) or App(name=verb, default_command=getattr(module, verb))
    command.sort_key = place
    app.command(command)


def main() -> NoReturn:
    """The console script."""
    _open_closed_streams()
    # Text is UTF-8 with plain line feeds, here as in every file, whatever the locale says; file names may be any bytes.
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        stream.reconfigure(encoding="utf-8", errors=errors, newline="\n")  # type: ignore[union-attr]
    code = run(sys.argv[1:])
    if "WORLD_SIZE" in os.environ and "torch.distributed" in sys.modules:
        # One of a team: torch's threads may abort the process while Python takes itself apart, and change its code.
        _silence()
        os._exit(code)
    sys.exit(code)


def _open_closed_streams() -> None:
    """Read nothing from a stream that was closed before we were started, and write into it what nobody reads."""
    # In this order, so that each gets its own number back, and no file of ours is taken for it.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 (open to the end)


def run(arguments: Sequence[str]) -> int:
    """Carry out one command; whatever goes wrong becomes one line on stderr and an exit code."""
    try:
        result = app(list(arguments), exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except CycloptsError as error:
        show.fail(_misuse(error))
        return 2
    except ClearheadError as error:
        show.fail(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        show.fail("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        _silence()
        return 0
    except Exception as error:
        if os.environ.get("CLEARHEAD_TRACEBACK"):
            raise
        return _unforeseen(error)
    return result if isinstance(result, int) else 0


def _misuse(error: CycloptsError) -> str:
    """What is wrong with the command line, in our words where the parser's are its own."""
    verb = " ".join(error.command_chain or ())
    if isinstance(error, UnusedCliTokensError):
        said = f"{verb} has no use for '{' '.join(error.unused_tokens or ())}'"
    elif isinstance(error, MissingArgumentError) and error.argument is not None:
        said = f"{error.keyword} needs a value" if error.keyword else f"{verb} needs {error.argument.name}"
    else:
        said = " ".join(str(error).split()).removesuffix(".")
        said = said[:1].lower() + said[1:]
    return f"{said} ({' '.join(['clearhead', *verb.split()])} --help shows what there is)"


def _unforeseen(error: Exception) -> int:
    """The disk's fault, the memory's, or ours."""
    if _is_out_of_memory(error):
        show.fail(
            "there is not enough memory for this: use a smaller model, smaller batches (batches.max_tokens), or fewer "
            "or shorter texts at once"
        )
        return UnavailableError.exit_code
    if isinstance(error, OSError):
        _silence()
        where = f" ({error.filename})" if error.filename else ""
        show.fail(f"cannot read or write: {error.strerror or error}{where}")
        return StorageError.exit_code
    show.fail(
        f"this is a bug in clearhead: {type(error).__name__}: {error} (CLEARHEAD_TRACEBACK=1 shows where)", is_bug=True
    )
    return INTERNAL_ERROR


def _is_out_of_memory(error: Exception) -> bool:
    """Whether memory was asked for that is not there; torch has errors of its own for that."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))
    )


def _silence() -> None:
    """Turn away from an output that takes no more."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            show.turn_away(stream)
