"""Arguments in, exit code out: the one program, `clearhead`; each verb lives in its own file, imported when needed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from cyclopts import App, CycloptsError

from clearhead.cli import show
from clearhead.errors import INTERNAL_ERROR, INTERRUPTED, ClearheadError
from clearhead.version import VERSION

VERBS = ("demo", "train", "translate", "score", "info", "average")

app = App(
    name="clearhead",
    help="Train a Transformer on your own data, look inside it, ship it with proof.",
    version=VERSION,
    help_format="plaintext",
    # Ctrl-C is ours: a run in progress saves first.
    suppress_keyboard_interrupt=False,
)
for verb in VERBS:
    app.command(f"clearhead.cli.{verb}:{verb}", name=verb)
app.command("clearhead.cli.data:app", name="data")


def main() -> NoReturn:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Carry out one command; whatever goes wrong becomes one line on stderr and an exit code."""
    try:
        result = app(list(arguments), exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except CycloptsError as error:
        show.fail(f"{' '.join(str(error).split())} (clearhead {_verb(arguments)}--help shows what there is)")
        return 2
    except ClearheadError as error:
        show.fail(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        show.fail("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has seen enough; what is still buffered must not fail again when Python exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("CLEARHEAD_TRACEBACK"):
            raise
        show.fail(f"this is a bug in clearhead: {type(error).__name__}: {error} (CLEARHEAD_TRACEBACK=1 shows where)")
        return INTERNAL_ERROR
    return result if isinstance(result, int) else 0


def _verb(arguments: Sequence[str]) -> str:
    return f"{arguments[0]} " if arguments and arguments[0] in (*VERBS, "data") else ""
