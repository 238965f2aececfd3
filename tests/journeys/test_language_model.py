"""From a text file to a model that goes on with it, on the command line: train, resume, write, score, look inside."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from pathlib import Path

import pytest
from tests.journeys.conftest import Clearhead, assignments, make, weighed

from clearhead.cli import generate as generate_verb
from clearhead.data.numbers import spell
from clearhead.storage import SUMS, write_json, write_sums

TEXT = "".join(f"{spell(number, 'en')} comes after {spell(number - 1, 'en')}.\n" for number in range(100, 160))
TINY = (
    "batches.max_tokens=256", "model.dim=16", "model.ff_dim=32", "model.num_heads=2", "model.num_layers=2",
    "model.max_len=32", "train.warmup=2", "train.log_every=2",
)  # fmt: skip
SHORT = (*TINY, "train.steps=6", "train.validate_every=3")


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "numbers.txt"
    path.write_text(TEXT, encoding="utf-8", newline="\n")
    return path


@pytest.fixture(scope="session")
def gpt_run(text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on a text file; not to be changed."""
    out = tmp_path_factory.mktemp("runs") / "gpt"
    cache = tmp_path_factory.getbasetemp() / "cache"
    make(cache, "train", "gpt", "--text", text_file, "--out", out, *assignments(*SHORT))
    return out


# Training ------------------------------------------------------------------------------------------------------------


def test_a_text_file_becomes_a_model(gpt_run: Path, clearhead: Clearhead) -> None:
    model = gpt_run / "model"
    assert {path.name for path in model.iterdir()} == {
        "README.md", "SHA256SUMS", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
        "tokenizer_config.json", "training_config.toml",
    }  # fmt: skip
    card = (model / "README.md").read_text(encoding="utf-8")
    assert "pipeline_tag: text-generation" in card
    assert "tokens from" in card
    samples = (gpt_run / "samples.txt").read_text(encoding="utf-8")
    assert "comes after" in samples.split("\n  said ")[0] and samples.startswith("step 3\n  prompt        ")
    said = clearhead("info", gpt_run, "--json")
    assert (said.code, json.loads(said.out)["kind"]) == (0, "gpt")


def test_sizes_are_chosen_and_explained_without_training(clearhead: Clearhead, text_file: Path, tmp_path: Path) -> None:
    said = clearhead("train", "gpt", "--text", text_file, "--out", tmp_path / "run", "--dry-run")
    assert said.code == 0
    assert "few enough to learn letter by letter" in " ".join(said.err.split())
    assert "characters to train on" in said.err
    assert not (tmp_path / "run").exists()


def test_a_run_goes_on(clearhead: Clearhead, text_file: Path, tmp_path: Path) -> None:
    words = ("train", "gpt", "--text", text_file, "--out", tmp_path / "run", *assignments(*SHORT))
    assert clearhead(*words, "--set", "train.steps=3").code == 0
    said = clearhead("train", tmp_path / "run", "--resume", "--set", "train.steps=6")
    assert (said.code, "resuming at step 3" in said.err) == (0, True)
    events = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert (events[-1]["event"], events[-1]["step"]) == ("finished", 6)


@pytest.mark.parametrize("recipe", ["shakespeare-cpu", "shakespeare"])
def test_each_recipe_works_in_small(
    clearhead: Clearhead, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, recipe: str
) -> None:
    folder = tmp_path / "data" / "tinyshakespeare"
    folder.mkdir(parents=True)
    (folder / "input.txt.gz").write_bytes(gzip.compress(TEXT.encode()))
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path / "data"))
    run = tmp_path / "run"
    size = ("model.dim=16", "model.ff_dim=32", "model.num_layers=1", "model.max_len=16", "train.warmup=2")
    small = assignments(*size, "train.validate_every=2", "train.steps=2")
    assert clearhead("train", recipe, "--out", run, *small).code == 0
    assert clearhead("train", run, "--resume", "--set", "train.steps=4").code == 0
    said = clearhead("generate", "--model", run, "one hundred", "--length", 8)
    assert (said.code, said.out[:11]) == (0, "one hundred")
    scores = clearhead("score", "--model", run, "--split", "validation", "--like", "nanogpt", "--json")
    assert scores.code == 0
    validated = [json.loads(row) for row in (run / "metrics.jsonl").read_text().splitlines() if '"validated"' in row]
    best = min(row["loss"] for row in validated)
    found = json.loads(scores.out)
    assert found["loss"] == pytest.approx(best, abs=1e-4)
    (estimate,) = found["like"]
    assert (estimate["protocol"], estimate["windows"], estimate["length"]) == ("nanogpt", 240, 16)
    assert estimate["loss"] == pytest.approx(best, abs=0.2)
    assert clearhead("inspect", run, "one hundred", "--json", tmp_path / "view.json").code == 0


def test_heads_are_weighed_by_loss_and_perplexity(
    clearhead: Clearhead, gpt_run: Path, text_file: Path, tmp_path: Path
) -> None:
    whole, count = weighed(clearhead, tmp_path / "worth.tsv", gpt_run, "--split", "validation")
    scored = json.loads(clearhead("score", "--model", gpt_run, "--split", "validation", "--json").out)
    assert count == 4 and whole["loss"] == pytest.approx(scored["loss"], abs=1e-5)
    assert whole["perplexity"] == pytest.approx(scored["perplexity"], abs=1e-3)
    few, _ = weighed(clearhead, tmp_path / "few.tsv", gpt_run, "--on", text_file, "--limit", 3)
    assert few["loss"] != whole["loss"]
    said = clearhead("inspect", gpt_run, "--importance", "--on", text_file, "--beam", 2, "--out", tmp_path / "x.tsv")
    assert said.code == 2 and "--beam is for translators" in said.err


# Writing -------------------------------------------------------------------------------------------------------------


def test_prompts_come_from_arguments_files_and_pipes(clearhead: Clearhead, gpt_run: Path, tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_bytes(b"one hundred")
    (tmp_path / "prompt.gz").write_bytes(gzip.compress(b"one hundred"))
    words = ("generate", "--model", gpt_run, "--length", 20)
    by_argument = clearhead(*words, "one hundred")
    assert by_argument.code == 0
    assert by_argument.out.startswith("one hundred")
    assert clearhead(*words, "--input", tmp_path / "prompt.txt").out == by_argument.out
    assert clearhead(*words, "-i", tmp_path / "prompt.gz").out == by_argument.out
    assert clearhead(*words, stdin=b"one hundred").out == by_argument.out
    assert clearhead(*words, stdin=b"one hundred\n").out != by_argument.out
    only_new = clearhead(*words, "--only-new", "one hundred")
    assert f"one hundred{only_new.out}" == by_argument.out


def test_a_stream_says_the_same(clearhead: Clearhead, gpt_run: Path) -> None:
    words = ("generate", "--model", gpt_run, "--length", 60, "--seed", 4, "one")
    whole, stream = clearhead(*words), clearhead(*words, "--stream")
    assert (stream.code, stream.out) == (0, whole.out)


def test_several_prompts_and_samples_are_told_apart(clearhead: Clearhead, gpt_run: Path) -> None:
    said = clearhead("generate", "--model", gpt_run, "--length", 12, "--samples", 3, "one", "two hundred")
    assert said.code == 0
    texts = said.out.split(generate_verb.BETWEEN)
    assert [text[:3] for text in texts] == ["one"] * 3 + ["two"] * 3
    assert len(set(texts)) == 6


def test_json_has_what_was_added_apart(clearhead: Clearhead, gpt_run: Path) -> None:
    words = ("generate", "--model", gpt_run, "--length", 15, "--json")
    said = clearhead(*words, "--samples", 2, "one", "two")
    rows = [json.loads(line) for line in said.lines]
    assert [row["prompt"] for row in rows] == ["one", "one", "two", "two"]
    assert all(row["tokens"] == 15 and row["log_prob"] < 0 and not row["stopped"] for row in rows)
    lines = clearhead(*words, "--lines", stdin=b"one\n\ntwo\n")
    assert [json.loads(line)["prompt"] for line in lines.lines] == ["one", "", "two"]


def test_a_stop_and_a_seed_are_heeded(clearhead: Clearhead, gpt_run: Path) -> None:
    words = ("generate", "--model", gpt_run, "--length", 40, "--only-new", "one")
    free = clearhead(*words, "--seed", 3).out
    assert clearhead(*words, "--seed", 3).out == free
    assert clearhead(*words, "--seed", 5).out != free
    stopped = clearhead(*words, "--seed", 3, "--stop", free[7])
    assert stopped.out == free[: free.index(free[7])] + "\n"


def test_narrow_draws_take_the_likeliest(clearhead: Clearhead, gpt_run: Path) -> None:
    words = ("generate", "--model", gpt_run, "--length", 20, "one")
    greedy = clearhead(*words, "--temperature", 0).out
    for narrow in (("--top-k", 1), ("--top-p", 1e-9), ("--min-p", 1)):
        assert clearhead(*words, *narrow).out == greedy


def test_a_model_that_does_not_draw_by_itself_draws_when_asked(
    clearhead: Clearhead, gpt_run: Path, tmp_path: Path
) -> None:
    greedy = tmp_path / "greedy"
    shutil.copytree(gpt_run / "model", greedy)
    write_json(greedy / "generation_config.json", {"strategy": "greedy"})
    write_sums(greedy, (path for path in greedy.iterdir() if path.name != SUMS))
    words = ("generate", "--model", greedy, "--length", 20, "one")
    likeliest = clearhead(*words).out
    assert clearhead(*words, "--temperature", 0).out == likeliest
    for flags in (("--temperature", 1.5), ("--top-k", 20), ("--top-p", 0.99), ("--min-p", 0.001), ("--seed", 3)):
        drawn = clearhead(*words, *flags)
        assert drawn.code == 0 and drawn.out != likeliest, flags
        assert clearhead(*words, *flags, "--stream").out == drawn.out
    several = clearhead(*words, "--samples", 3)
    assert (several.code, len(set(several.out.split(generate_verb.BETWEEN)))) == (0, 3)


def test_a_long_prompt_is_told_how_much_of_it_is_seen(clearhead: Clearhead, gpt_run: Path) -> None:
    said = clearhead("generate", "--model", gpt_run, "--length", 3, TEXT[:200])
    assert said.code == 0
    assert "a prompt has 200 tokens: the model sees the last 32 of them" in said.err
    assert said.out.startswith(TEXT[:200])


# Scoring and looking -------------------------------------------------------------------------------------------------


def test_a_text_is_scored(clearhead: Clearhead, gpt_run: Path, text_file: Path) -> None:
    said = clearhead("score", "--model", gpt_run, "--text", text_file)
    assert said.code == 0
    assert "perplexity per token" in said.out
    also = clearhead("score", "--model", gpt_run, "--text", text_file, "--like", "nanogpt")
    assert also.lines[:3] == said.lines and also.lines[3].startswith("loss like nanogpt ")
    other = clearhead("score", "--model", gpt_run, "--text", text_file, "--like", "nanogtp")
    assert (other.code, other.out) == (78, "") and "did you mean 'nanogpt'?" in other.err
    tree = json.loads(clearhead("score", "--model", gpt_run, "--text", text_file, "--json").out)
    assert tree["characters"] == len(TEXT) == tree["tokens"]
    assert tree["perplexity"] == pytest.approx(tree["perplexity_per_character"])
    assert tree["bits_per_byte"] == pytest.approx(tree["bits_per_character"])


def test_heads_are_looked_at_on_a_text(clearhead: Clearhead, gpt_run: Path, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("page.html", "heads.png", "view.json", "heads.safetensors")]
    flags = zip(("--out", "--png", "--json", "--tensors"), files, strict=True)
    said = clearhead("inspect", gpt_run, "one hundred", *(word for pair in flags for word in pair))
    assert said.code == 0
    assert all(path.stat().st_size > 500 for path in files)
    view = json.loads(files[2].read_text())
    assert [block["kind"] for block in view["attention"]] == ["decoder"]
    assert [token["text"] for token in view["tokens"]["read"]] == [*"one▁hundred"]
    assert [token["text"] for token in view["tokens"]["target"]][:-1] == [*"ne▁hundred"]
    assert len(view["generation"]["steps"]) == 11
    table = clearhead("inspect", gpt_run, "one hundred", "--ablate", "decoder.1.self.0")
    assert (table.code, len(table.lines)) == (0, 2)


def test_heads_can_be_taken_out(clearhead: Clearhead, gpt_run: Path, tmp_path: Path) -> None:
    assert clearhead("inspect", gpt_run, "--prune", "decoder.1.self.0", "--out", tmp_path / "small").code == 0
    said = clearhead("generate", "--model", tmp_path / "small", "one", "--length", 5)
    assert (said.code, len(said.out)) == (0, 9)


# Mistakes ------------------------------------------------------------------------------------------------------------


def test_a_verb_for_another_kind_of_model_names_the_right_one(
    clearhead: Clearhead, gpt_run: Path, numbers_run: Path
) -> None:
    said = clearhead("translate", "--model", gpt_run, "eins")
    assert (said.code, said.err) == (2, f"clearhead: {gpt_run} is a gpt: use clearhead generate\n")
    said = clearhead("generate", "--model", numbers_run, "one")
    assert (said.code, said.err) == (2, f"clearhead: {numbers_run} is a translator: use clearhead translate\n")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("one", "--input", "x.txt"), 2, "give prompts, or --input and --lines, not both"),
        (("one", "two", "--stream"), 2, "--stream writes one text while it comes into being"),
        (("one", "--stream", "--json"), 2, "--stream writes one text while it comes into being"),
        (("one", "--samples", "0"), 2, "--samples"),
        (("one", "--length", "0"), 2, "--length"),
        (("one", "--top-p", "2"), 2, "'top_p' = 2.0"),
        (("one", "--stop", ""), 2, "an empty text is in every other"),
        (("--input", "absent.txt"), 66, "cannot read absent.txt"),
        (("zürich",), 65, "the prompt has a character that this model has never seen: 'z' (character 1)"),
    ],
)
def test_a_mistake_in_writing_is_one_line(
    clearhead: Clearhead, gpt_run: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    said = clearhead("generate", "--model", gpt_run, *words)
    assert said.code == code
    assert message in said.err
    assert (said.out, said.err.count("\n")) == ("", 1)


def test_writing_needs_a_model(clearhead: Clearhead, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLEARHEAD_MODEL", raising=False)
    said = clearhead("generate", "one")
    assert said.code == 2
    assert "say which model writes: --model runs/NAME" in said.err


@pytest.mark.parametrize(
    ("content", "settings", "code", "message"),
    [
        (b"", (), 65, "is empty"),
        (b"x", (), 65, "has 1 characters: too few to train and to validate on"),
        (b"\xff\xfe\n\xff\n", (), 65, "UTF-16"),
        (b"a\xff\nb\xff\n", (), 65, "has no text: 2 lines (bad encoding"),
        (b"PK\x03\x04" + b"\x00" * 50, (), 65, "is zip data, not text"),
        (None, (), 66, "there is no file"),
        (TEXT.encode(), ("tokenizer.kind=word",), 78, "choose bpe, char or byte"),
        (TEXT.encode(), ("data.windows=tield",), 78, "did you mean 'tiled'?"),
        (TEXT.encode(), ("data.hold_out=1.5",), 78, "hold_out"),
        (TEXT.encode(), ("model.norm=group",), 78, "looks at later positions"),
        (TEXT.encode(), ("model.num_layer=2",), 78, "did you mean 'model.num_layers'?"),
    ],
)
def test_a_text_or_setting_that_will_not_do_is_one_line(
    clearhead: Clearhead, tmp_path: Path, content: bytes | None, settings: tuple[str, ...], code: int, message: str
) -> None:
    if content is not None:
        (tmp_path / "a.txt").write_bytes(content)
    words = ("train", "gpt", "--text", tmp_path / "a.txt", "--out", tmp_path / "run")
    said = clearhead(*words, *assignments(*SHORT, *settings))
    assert said.code == code
    assert message in said.err
    assert "Traceback" not in said.err
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_what_else_a_gpt_is_not_trained_on(clearhead: Clearhead, text_file: Path) -> None:
    said = clearhead("train", "gpt", "--tsv", text_file)
    assert said.code == 2
    assert "a gpt is not trained on --tsv: --text FILE" in said.err
    assert clearhead("train", "gpt").code == 2


def test_a_score_of_the_wrong_kind_is_one_line(clearhead: Clearhead, gpt_run: Path, numbers_run: Path) -> None:
    assert "--text FILE" in clearhead("score", "--model", gpt_run).err
    assert clearhead("score", "--model", gpt_run).code == 2
    said = clearhead("score", "--model", numbers_run, "--text", gpt_run / "config.toml")
    assert (said.code, said.err.count("\n")) == (2, 1)
    said = clearhead("score", "--model", gpt_run, "--split", "test")
    assert (said.code, said.err.count("\n")) == (78, 1)
    said = clearhead("score", "--model", gpt_run, "--split", "validation", "--workers", 2)
    assert (said.code, said.err) == (2, "clearhead: a language model is scored on a text: leave out --workers\n")


def test_a_flipped_bit_in_a_language_model_is_found(clearhead: Clearhead, gpt_run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "model"
    copy.mkdir()
    for path in (gpt_run / "model").iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    weights = bytearray((copy / "model.safetensors").read_bytes())
    weights[-9] ^= 4
    (copy / "model.safetensors").write_bytes(weights)
    said = clearhead("generate", "--model", copy, "one")
    assert (said.code, said.out) == (74, "")


def test_a_terminal_is_shown_the_text_as_it_comes(
    clearhead: Clearhead, gpt_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("generate", "--model", gpt_run, "--length", 10, "one")
    whole = clearhead(*words)
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda self: True, raising=False)
    assert clearhead(*words).out == whole.out
