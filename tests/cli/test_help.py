"""Help, version and info answer at once: torch stays on disk."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from clearhead.cli import VERBS, run
from clearhead.version import VERSION

ALL = [[], *([verb] for verb in VERBS), ["data", "check"], ["data", "list"], ["data", "fetch"]]

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
    done = subprocess.run(words, capture_output=True, text=True, encoding="utf-8", check=False)
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


def test_every_verb_is_named_with_its_purpose_in_the_order_of_need(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    rows = [line.strip("│ ").split(None, 1) for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    named = [row for row in rows if row[0] in VERBS]
    assert [row[0] for row in named] == list(VERBS)
    assert all(len(row) == 2 for row in named)


@pytest.mark.parametrize("words", ALL, ids=lambda words: " ".join(words) or "clearhead")
def test_everything_in_a_panel_says_what_it_is_for(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert run([*words, "--help"]) == 0
    rows = [line.strip("│ ") for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert rows and all(re.fullmatch(r"(\*\s+)?\S.*\S\s{2,}\w.*", row) for row in rows)
    assert not any("default: False" in row for row in rows)


def test_no_words_at_all_is_a_call_for_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "Usage: clearhead COMMAND" in capsys.readouterr().out


def test_python_dash_m_is_the_same_program() -> None:
    words = [sys.executable, "-m", "clearhead", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{VERSION}\n", "")
