"""From pictures to labels: a Vision Transformer trains, resumes, is used, inspected and made faster from the shell."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.data.made_up_pictures import stripes, write_folder, write_idx
from tests.journeys.conftest import assignments, make, weighed

from clearhead.storage import SUMS, read_json, write_json, write_sums

Clearhead = Callable[..., Any]

TINY = (
    "model.patch=2", "model.dim=16", "model.ff_dim=32", "model.num_heads=2", "model.num_layers=2", "model.dropout=0.0",
    "batches.batch_size=16", "train.lr=5e-3", "train.warmup=4", "train.log_every=5", "train.epochs=100.0",
    "train.validate_every=75",
)  # fmt: skip
NAMES = ("across", "down")


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `train` and `other`, a folder for each class in each; not to be changed."""
    root = tmp_path_factory.mktemp("photos")
    write_folder(root / "train", *stripes(60), NAMES)
    write_folder(root / "other", *stripes(10, seed=9), NAMES)
    return root


@pytest.fixture(scope="session")
def vit_run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on a folder of pictures; not to be changed."""
    out = tmp_path_factory.mktemp("runs") / "vit"
    settings = assignments(
        *TINY, "train.steps=150", "data.hold_out=10", "data.hold_out_test=10", "data.distort.shift=1"
    )
    cache = tmp_path_factory.getbasetemp() / "cache"
    make(cache, "train", "vit", "--pictures", photos / "train", "--out", out, *settings)
    return out


def accuracies(run: Path) -> list[float]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row["accuracy"] for row in rows if row["event"] == "validated"]


def test_a_folder_of_pictures_becomes_a_model(vit_run: Path) -> None:
    assert len(accuracies(vit_run)) == 2
    assert accuracies(vit_run)[-1] >= 0.9
    config = json.loads((vit_run / "model" / "config.json").read_text())
    assert config["kind"] == "vit" and config["labels"] == list(NAMES)
    assert (config["height"], config["width"], config["channels"]) == (8, 8, 1)
    log = (vit_run / "train.log").read_text()
    assert "60 pictures, 8 x 8, grey; 2 labels: across 30, down 30" in log
    assert "40 pictures to train on, 10 to validate on, 10 to test on" in log
    assert "pictures/s" in log and "ppl" not in log and log.count("  accuracy ") > 2
    assert "  picture  picture " in (vit_run / "samples.txt").read_text()
    assert not (vit_run / "model" / "tokenizer.json").exists()
    assert not (vit_run / "model" / "generation_config.json").exists()
    assert "clearhead classify --model . picture.png" in (vit_run / "model" / "README.md").read_text()


def test_pictures_are_classified(clearhead: Clearhead, vit_run: Path, photos: Path) -> None:
    files = sorted((photos / "other").rglob("*.png"))
    said = clearhead("classify", "--model", vit_run, *files)
    assert said.code == 0, said.err
    right = sum(line == file.parent.name for line, file in zip(said.lines, files, strict=True))
    assert right >= 9
    piped = clearhead("classify", "--model", vit_run, stdin="".join(f"{file}\n" for file in files).encode())
    assert piped.lines == said.lines
    rows = [json.loads(line) for line in clearhead("classify", "--model", vit_run, "--json", *files[:2]).lines]
    assert [row["picture"] for row in rows] == [str(file) for file in files[:2]]
    assert all(sum(row["probabilities"].values()) == pytest.approx(1, abs=1e-4) for row in rows)
    shown = clearhead("classify", "--model", vit_run, "--probabilities", files[0]).lines[0].split("\t")
    assert shown[0] == said.lines[0] and shown[1].startswith(f"{shown[0]} 0.")


def test_empty_lines_are_kept_as_empty_answers(clearhead: Clearhead, vit_run: Path, photos: Path) -> None:
    one, two = sorted((photos / "other").rglob("*.png"))[:2]
    labels = clearhead("classify", "--model", vit_run, one, two).lines
    lines = f"\n{one}\n \n{two}\n\n".encode()
    said = clearhead("classify", "--model", vit_run, stdin=lines)
    assert (said.code, said.lines, said.err) == (0, ["", labels[0], "", labels[1], ""], "")
    assert clearhead("classify", "--model", vit_run, stdin=b"\n\n").lines == ["", ""]
    assert clearhead("classify", "--model", vit_run, "--probabilities", stdin=lines).lines[::2] == ["", "", ""]
    rows = [json.loads(line) for line in clearhead("classify", "--model", vit_run, "--json", stdin=lines).lines]
    assert rows[0] == {"picture": "", "label": None, "probability": 0.0, "probabilities": {}}
    assert [row["label"] for row in rows] == [None, labels[0], None, labels[1], None]


def test_labels_from_elsewhere_cannot_paint_the_terminal(
    clearhead: Clearhead, vit_run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, folder, painted = tmp_path / "model", tmp_path / "photos", "\x1b[31mdown"
    shutil.copytree(vit_run / "model", model)
    write_json(model / "config.json", {**read_json(model / "config.json"), "labels": ["across", painted]})
    write_sums(model, (path for path in model.iterdir() if path.name != SUMS))
    shutil.copytree(photos / "other", folder)
    (folder / "down").rename(folder / painted)
    picture = next((folder / painted).iterdir())
    commands: list[tuple[Any, ...]] = [
        ("info", model), ("classify", "--model", model, "--probabilities", picture), ("inspect", model, picture),
        ("score", "--model", model, "--folder", folder), ("score", "--model", model, "--folder", folder, "--json"),
    ]  # fmt: skip
    assert all(painted in clearhead(*command).out for command in commands[:4]), "in a pipe data are as they are"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for command in commands:
        said = clearhead(*command)
        assert said.code == 0 and "[31mdown" in said.out and "\x1b" not in said.out, command


def test_a_picture_of_another_size_is_resized_and_that_is_said(
    clearhead: Clearhead, vit_run: Path, tmp_path: Path
) -> None:
    Image.new("RGB", (30, 20), "red").save(tmp_path / "x.png")
    said = clearhead("classify", "--model", vit_run, tmp_path / "x.png")
    assert said.code == 0 and len(said.lines) == 1
    assert f"resized 1 of 1 pictures to 8 x 8, first {tmp_path / 'x.png'}, which is 20 x 30" in said.err


def test_heads_are_weighed_by_loss_and_accuracy(
    clearhead: Clearhead, vit_run: Path, photos: Path, tmp_path: Path
) -> None:
    whole, count = weighed(clearhead, tmp_path / "worth.tsv", vit_run, "--on", photos / "other")
    scored = json.loads(clearhead("score", "--model", vit_run, "--folder", photos / "other", "--json").out)
    config = json.loads((vit_run / "model" / "config.json").read_text())
    assert count == config["num_layers"] * config["num_heads"]
    assert whole["accuracy"] == pytest.approx(100 * scored["accuracy"])
    weighed(clearhead, tmp_path / "held.tsv", vit_run, "--split", "validation", "--limit", 4)


def test_pictures_are_scored(clearhead: Clearhead, vit_run: Path, photos: Path, tmp_path: Path) -> None:
    command = ("score", "--model", vit_run, "--folder", photos / "other")
    said = clearhead(*command, "--png", tmp_path / "confusion.png", "--save", tmp_path / "labels.txt")
    assert said.code == 0, said.err
    assert said.lines[0].startswith("accuracy") and "of 10" in said.lines[0]
    assert said.lines[-3].split()[-1] == "pictures"
    assert (tmp_path / "confusion.png").stat().st_size > 500
    answers = (tmp_path / "labels.txt").read_text().split()
    right = sum(answer == name for answer, name in zip(answers, ["across"] * 5 + ["down"] * 5, strict=True))
    found = json.loads(clearhead(*command, "--json").out)
    assert found["accuracy"] == right / 10 and found["labels"] == list(NAMES)
    for split in ("validation", "test"):
        held = json.loads(clearhead("score", "--model", vit_run, "--split", split, "--json").out)
        assert held["count"] == 10
    again = clearhead(*command, "--reduce", "merge", "--r", 0, "--against", vit_run, "--json")
    assert json.loads(again.out)["against"]["accuracy"] == found["accuracy"]
    assert clearhead(*command, "--min-accuracy", 100.1).code == 1
    assert len(json.loads(clearhead(*command, "--limit", 4, "--json").out)["of_labels"]) == 2


def test_a_vit_is_described_averaged_packed_and_loses_heads(
    clearhead: Clearhead, vit_run: Path, photos: Path, tmp_path: Path
) -> None:
    facts = json.loads(clearhead("info", vit_run, "--json").out)
    assert (facts["kind"], facts["height"], facts["patch"], facts["max_len"]) == ("vit", 8, 2, 17)
    picture = next((photos / "other" / "down").iterdir())
    label = clearhead("classify", "--model", vit_run, picture).lines
    assert clearhead("average", vit_run, "--last", 2, "--out", tmp_path / "mean").code == 0
    assert clearhead("pack", vit_run, "--out", tmp_path / "packed").code == 0
    pruned = clearhead("inspect", vit_run, "--prune", "encoder.1.self.0", "--out", tmp_path / "pruned")
    assert pruned.code == 0, pruned.err
    for name in ("mean", "packed", "pruned"):
        assert len(clearhead("classify", "--model", tmp_path / name, picture).lines) == 1, name
    assert clearhead("classify", "--model", tmp_path / "packed", picture).lines == label


def test_an_interrupted_run_goes_on_to_the_bit(clearhead: Clearhead, photos: Path, tmp_path: Path) -> None:
    from clearhead.run.settings import read_config
    from clearhead.run.training import train

    config = tmp_path / "config.toml"
    config.write_text(f'[data]\npictures = "{photos / "train"}"\n[model]\nkind = "vit"\n[train]\nsteps = 8\n')
    distort = ("data.distort.shift=2", "data.distort.flip=0.5", "data.distort.erase=0.5")
    settings = [*TINY[:-2], "train.validate_every=4", "model.dropout=0.2", *distort]
    weights = []
    for name, stops_at in (("whole", None), ("broken", 3)):
        steps = iter(range(1, 9))
        events = train(
            read_config(config, [*settings, f"out={tmp_path / name}"]),
            stop=lambda steps=steps, stops_at=stops_at: next(steps) == stops_at,
        )
        assert list(events)[-1].reason == ("interrupted" if stops_at else "done")
        if stops_at:
            said = clearhead("train", tmp_path / name, "--resume")
            assert said.code == 0, said.err
        weights.append((tmp_path / name / "model" / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]


def test_idx_files_train_by_a_config(clearhead: Clearhead, tmp_path: Path) -> None:
    for name, seed, count in (("train", 0, 40), ("val", 1, 12)):
        pixels, labels = stripes(count, kinds=3, seed=seed)
        write_idx(tmp_path / f"{name}-images.gz", pixels)
        write_idx(tmp_path / f"{name}-labels", labels)
    config = f"""
out = "{tmp_path / "run"}"
[data]
pictures = "{tmp_path / "train-images.gz"}"
picture_labels = "{tmp_path / "train-labels"}"
validation_pictures = "{tmp_path / "val-images.gz"}"
validation_picture_labels = "{tmp_path / "val-labels"}"
labels = ["across", "down", "squares"]
[model]
kind = "vit"
pooling = "mean"
positions = "sinusoidal"
[train]
steps = 3
"""
    (tmp_path / "config.toml").write_text(config, encoding="utf-8")
    said = clearhead("train", tmp_path / "config.toml", *assignments(*TINY[:-2], "train.validate_every=3"))
    assert said.code == 0, said.err
    assert "40 pictures, 8 x 8, grey; 3 labels: across 14, down 13, squares 13" in said.err
    assert "40 pictures to train on, 12 to validate on" in said.err


@pytest.mark.parametrize(("recipe", "tokens"), [("fashion-vit", 49), ("fashion-vit-fine", 196)])
def test_each_recipe_works_in_small(
    clearhead: Clearhead, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, recipe: str, tokens: int
) -> None:
    """On pictures of its own in the place of the set's: only width and depth, steps and their number are smaller."""
    folder = tmp_path / "sets" / "fashion-mnist"
    folder.mkdir(parents=True)
    for seed, (name, count) in enumerate((("train", 60), ("t10k", 20))):
        pixels, _ = stripes(count, side=28, seed=seed)
        write_idx(folder / f"{name}-images-idx3-ubyte.gz", pixels)
        write_idx(folder / f"{name}-labels-idx1-ubyte.gz", (np.arange(count) % 10).astype(np.uint8))
    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path / "sets"))
    run, picture = tmp_path / "run", tmp_path / "shoe.png"
    Image.fromarray(stripes(1, side=28)[0][0]).save(picture)
    small = ("model.dim=16", "model.ff_dim=16", "model.num_heads=2", "model.num_layers=2", "data.hold_out=10",
             "batches.batch_size=16", "train.warmup=2", "train.steps=2", "train.validate_every=2")  # fmt: skip
    said = clearhead("train", recipe, "--out", run, *assignments(*small))
    assert said.code == 0, said.err
    assert clearhead("train", run, "--resume", "--set", "train.steps=4").code == 0
    scored = json.loads(clearhead("score", "--model", run, "--split", "test", "--json").out)
    assert scored["count"] == 20 and scored["labels"][-1] == "Ankle boot"
    assert clearhead("classify", "--model", run, picture).lines[0] in scored["labels"]
    heads = tmp_path / "heads.json"
    assert clearhead("inspect", run, picture, "--json", heads, "--png", tmp_path / "heads.png").code == 0
    assert json.loads(heads.read_text())["tokens_left"] == [tokens, tokens]
    bench = ("bench", "reduce", run, "--merge", 8, "--rounds", 1, "--limit", 10, "--out", tmp_path / "curve.png")
    assert f"{tokens - 16}.0" in clearhead(*bench).out


def test_the_recipe_has_less_than_half_a_million_parameters() -> None:
    from clearhead.models.vit import Vit
    from clearhead.run.settings import find_recipe, read_config

    config = read_config(find_recipe("fashion-vit"))
    data = {"labels": [*map(str, range(10))], "height": 28, "width": 28, "channels": 1, "mean": [0.3], "spread": [0.3]}
    assert sum(p.numel() for p in Vit(config.model.model_copy(update=data)).parameters()) < 500_000


def test_heads_are_drawn_on_the_picture(clearhead: Clearhead, vit_run: Path, photos: Path, tmp_path: Path) -> None:
    picture = next((photos / "other" / "down").iterdir())
    files = {flag: tmp_path / f"x.{ending}" for flag, ending in
             (("--json", "json"), ("--png", "png"), ("--svg", "svg"), ("--tensors", "safetensors"))}  # fmt: skip
    words = [word for flag, path in files.items() for word in (flag, path)]
    said = clearhead("inspect", vit_run, picture, *words, "--head", "encoder.1")
    assert said.code == 0, said.err
    assert said.lines[0].split("\t")[0] in NAMES
    assert all(path.stat().st_size > 500 for path in files.values())
    tree = json.loads(files["--json"].read_text())
    assert set(tree["heads"]) == {"encoder.1.self.0", "encoder.1.self.1"}
    assert tree["tokens_left"] == [17, 17] and tree["dropped"] == [[], []]
    off = clearhead("inspect", vit_run, picture, "--ablate", "encoder.0", "encoder.1.self.1")
    assert [line.split("\t")[0] for line in off.lines] == ["whole", "without encoder.0, encoder.1.self.1"]


@pytest.mark.parametrize(
    ("kind", "how"), [("merge", ("--r", 3)), ("prune", ("--threshold", 0.9)), ("prune_hard", ("--threshold", 0.9))]
)
def test_fewer_tokens_are_used_and_drawn(
    clearhead: Clearhead, vit_run: Path, photos: Path, tmp_path: Path, kind: str, how: tuple[Any, ...]
) -> None:
    picture = next((photos / "other" / "down").iterdir())
    trail = tmp_path / "trail.png"
    said = clearhead("inspect", vit_run, picture, "--reduce", kind, *how, "--trail", trail, "--png", tmp_path / "x.png")
    assert said.code == 0, said.err
    assert "tokens left after each layer, of 17: " in said.err
    assert trail.stat().st_size > 500
    assert len(clearhead("classify", "--model", vit_run, "--reduce", kind, *how, picture).lines) == 1


def test_what_fewer_tokens_give_is_measured_and_drawn(clearhead: Clearhead, vit_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "curve.png"
    said = clearhead(
        "bench", "reduce", vit_run, "--merge", 0, 2, 4, "--rounds", 1, "--split", "validation", "--out", out
    )
    assert said.code == 0, said.err
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said.lines if line.startswith("|")]
    assert [row[0] for row in rows[2:]] == ["all tokens", "merge, r = 0", "merge, r = 2", "merge, r = 4"]
    assert rows[2][1:3] == rows[3][1:3], "merging nothing changes no answer"
    assert [float(row[5]) for row in rows[2:]] == [17.0, 17.0, 13.0, 9.0]
    assert out.stat().st_size > 500
    pruned = clearhead(
        "bench", "reduce", vit_run, "--prune", 0.9, "--rounds", 1, "--split", "test", "--limit", 5, "--out", out
    )
    assert pruned.code == 0, pruned.err


def test_thresholds_are_learnt_and_then_used_hard(
    clearhead: Clearhead, vit_run: Path, photos: Path, tmp_path: Path
) -> None:
    learn = assignments(*TINY, "train.steps=6", "train.validate_every=6", "model.reduce.kind=prune",
                        "model.reduce.weight=2.0", f"init={vit_run}")  # fmt: skip
    soft = tmp_path / "soft"
    said = clearhead("train", "vit", "--pictures", photos / "train", "--out", soft, *learn)
    assert said.code == 0, said.err
    assert "a vit: " in said.err and "encoder.blocks.0.reduction.threshold" in said.err
    hard = assignments(*TINY, "train.steps=2", "train.validate_every=2", "model.reduce.kind=prune_hard", f"init={soft}")
    said = clearhead("train", "vit", "--pictures", photos / "train", "--out", tmp_path / "hard", *hard)
    assert said.code == 0, said.err
    from clearhead.checkpoint import read_tensors

    first, second = (read_tensors(run / "model" / "model.safetensors") for run in (soft, tmp_path / "hard"))
    name = "encoder.blocks.1.reduction.threshold"
    assert first[name].item() != pytest.approx(0.3, abs=1e-4), "it was learnt"
    assert first[name].item() == second[name].item(), "and stays"
    bench = clearhead("bench", "reduce", soft, "--prune", 0, 1, "--rounds", 1, "--split", "validation",
                      "--out", tmp_path / "x.png")  # fmt: skip
    assert bench.code == 0, bench.err
    assert "prune, learnt x 1" in bench.out


# Mistakes ------------------------------------------------------------------------------------------------------------


def test_mistakes_with_pictures_are_one_line_and_the_right_code(
    clearhead: Clearhead, vit_run: Path, photos: Path, numbers_run: Path, tmp_path: Path
) -> None:
    one = write_folder(tmp_path / "one", *stripes(4, kinds=1), NAMES)
    mixed = write_folder(tmp_path / "mixed", *stripes(6), NAMES)
    Image.new("L", (9, 9)).save(mixed / "down" / "001.png")
    broken = write_folder(tmp_path / "broken", *stripes(6), NAMES)
    (broken / "down" / "001.png").write_bytes(b"no picture")
    third = write_folder(tmp_path / "third", *stripes(6, kinds=3), (*NAMES, "squares"))
    (tmp_path / "text.txt").write_text("no picture")
    good = ("train", "vit", "--pictures", photos / "train", "--out", tmp_path / "out")
    start = ("train", "vit", "--out", tmp_path / "out", "--pictures")
    cases: list[tuple[tuple[Any, ...], int, str]] = [
        (("train", "vit"), 2, "say what to train on: --pictures FOLDER"),
        ((*start, tmp_path / "none"), 66, "there is no file or folder"),
        ((*start, one), 65, "a classifier needs two or more"),
        ((*start, mixed), 65, "set data.size, such as [8, 8]"),
        ((*start, broken), 65, f"{broken / 'down' / '001.png'} is not a picture that can be read"),
        ((*start, tmp_path / "text.txt"), 78, "name the IDX file of their labels too"),
        ((*good, "--validation-pictures", third), 65, "nothing was trained on the label 'squares'"),
        ((*good, "--source", "x"), 2, "a vit is not trained on --source"),
        ((*good, "--set", "model.patch=3"), 78, "set model.patch to one of 1, 2, 4, 8"),
        ((*good, "--set", "model.reduce.kind=murge"), 78, "did you mean 'merge'?"),
        (("classify", "x.png"), 2, "--model"),
        (("classify", "--model", vit_run, tmp_path / "none.png"), 66, "there is no picture"),
        (("classify", "--model", vit_run, tmp_path / "text.txt"), 65, "is not a picture that can be read"),
        (("classify", "--model", vit_run, "--r", 3, tmp_path / "x.png"), 2, "add --reduce merge"),
        (("classify", "--model", vit_run, "--reduce", "murge", "x.png"), 78, "did you mean 'merge'?"),
        (("classify", "--model", numbers_run, "x.png"), 2, "is a translator: use clearhead translate"),
        (("translate", "--model", vit_run, "x"), 2, "is a vit: use clearhead classify"),
        (("inspect", vit_run, "none.png"), 66, "there is no picture none.png"),
        (("inspect", vit_run, "x.png", "--out", "page.html"), 2, "a picture has no use for --out"),
        (("score", "--model", vit_run), 2, "say what to score on: --folder DIR"),
        (("score", "--model", vit_run, "--split", "test", "--tsv", "x"), 2, "scored on labelled pictures"),
        (("score", "--model", vit_run, "--folder", third), 65, "nothing was trained on the label 'squares'"),
        (
            ("score", "--model", vit_run, "--split", "test", "--png", "confusion.txt"),
            2,
            "ends with .png, not confusion",
        ),
        (("score", "--model", vit_run, "--split", "test", "--png", "confusion"), 2, "ends with .png, not confusion"),
        (("bench", "reduce", vit_run, "--merge", 2, "--out", "x.txt"), 2, "that ends with .png or .svg or .pdf, not x"),
        (("bench", "growth", "--quick", "--out", "x.txt"), 2, "that ends with .png or .svg or .pdf, not x.txt"),
        (("bench", "reduce", vit_run), 2, "say what to try: --merge"),
        (("bench", "reduce", vit_run, "--prune", 1, "--r-last", 2), 2, "--r-last goes with --merge"),
        (("bench", "reduce", numbers_run, "--merge", 2), 2, "is a translator, whose answers are not just right"),
        (("bench", "reduce", vit_run, "--merge", 2, "--split", "tset"), 78, "did you mean 'test'?"),
    ]
    for words, code, message in cases:
        said = clearhead(*words)
        assert (said.code, said.out) == (code, ""), (words, said)
        assert message in said.err.strip().splitlines()[-1], (words, said.err)
        # What is wrong with sizes comes to light only after the data have been told of.
        assert words[0] == "train" or len(said.err.strip().splitlines()) == 1, (words, said.err)
