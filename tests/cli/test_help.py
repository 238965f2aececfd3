"""Help, version and info answer at once: torch stays on disk."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from clearhead.cli import VERBS, run
from clearhead.version import VERSION

ALL = [[], *([verb] for verb in VERBS), ["data", "check"], ["data", "list"], ["data", "fetch"]]
ALL += [["bench", "train"], ["bench", "growth"], ["bench", "reduce"]]

SCRIPT = """
import json, sys
from clearhead.cli import run
for words in json.loads(sys.argv[1]):
    assert run(words) == 0, words
heavy = {"torch", "numpy", "matplotlib", "pydantic", "sacrebleu", "tokenizers"} & set(sys.modules)
assert not heavy, heavy
"""


def without_torch(*commands: list[str]) -> str:
    words = [sys.executable, "-c", SCRIPT, json.dumps(commands)]
    wide = {**os.environ, "COLUMNS": "300"}
    done = subprocess.run(words, capture_output=True, text=True, encoding="utf-8", env=wide, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_of_every_verb_and_the_version_need_no_torch() -> None:
    shown = without_torch(*([*words, "--help"] for words in ALL), ["--version"], ["train", "-h"])
    for words in ALL:
        assert f"Usage: {' '.join(['clearhead', *words])}" in shown
    assert f"\n{VERSION}\n" in shown
    assert "\x1b" not in shown


def test_info_needs_no_torch(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"format_version": 1, "kind": "translator", "dim": 8}', encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text('{"kind": "char"}', encoding="utf-8")
    (tmp_path / "config.toml").write_text('[data]\nkind = "numbers"\n', encoding="utf-8")
    header = (
        b'{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[3,4],"data_offsets":[0,48]},"b":{"shape":[]}}'
    )
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    facts = json.loads(without_torch(["info", str(tmp_path), "--json"]))
    assert (facts["dim"], facts["tokenizer"], facts["data_kind"], facts["parameters"]) == (8, "char", "numbers", 13)


def test_every_verb_is_named_with_its_purpose_in_the_order_of_need() -> None:
    shown = without_torch(["--help"])
    rows = [line.strip("│ ").split(None, 1) for line in shown.splitlines() if line.startswith("│")]
    assert [row[0] for row in rows if row[0] in VERBS] == list(VERBS)


def test_everything_in_a_panel_says_what_it_is_for() -> None:
    shown = without_torch(*([*words, "--help"] for words in ALL))
    rows = [line.strip("│ ") for line in shown.splitlines() if line.startswith("│")]
    assert len(rows) > 60
    for row in rows:
        assert re.fullmatch(r"(\*\s+)?\S.*\S\s{2,}\w.*", row)
        assert "default: False" not in row


def test_no_words_at_all_is_a_call_for_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "Usage: clearhead COMMAND" in capsys.readouterr().out


def test_python_dash_m_is_the_same_program() -> None:
    words = [sys.executable, "-m", "clearhead", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{VERSION}\n", "")
