"""Vision Transformers of others say what they say in transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.export.hub import changed, read, rewrite, stirred, write

from clearhead.cli import run
from clearhead.errors import DataError, WouldOverwriteError
from clearhead.export import vit
from clearhead.models.vit import Vit
from clearhead.run.importing import import_directory
from clearhead.run.using import load

transformers = pytest.importorskip("transformers", reason="compared with transformers where it is installed")
pillow = pytest.importorskip("PIL.Image", reason="pictures are written by Pillow")
pytestmark = [pytest.mark.usefixtures("unchecked"), pytest.mark.filterwarnings("ignore")]

SHAPES: dict[str, dict[str, Any]] = {
    "usual": {},
    "wide": {
        "image_size": [8, 12], "patch_size": [2, 2], "num_hidden_layers": 3, "hidden_size": 24,
        "hidden_act": "gelu_new",
    },
    "grey": {"num_channels": 1, "qkv_bias": False, "layer_norm_eps": 1e-2, "num_labels": 4},
}  # fmt: skip
NAMES = {0: "crane", 1: "owl", 2: "crane"}


def vit_directory(path: Path, **settings: Any) -> Path:
    """A Vision Transformer with random weights, as Hugging Face stores it."""
    config = {
        "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 20, "image_size": 8,
        "patch_size": 4,
    } | settings  # fmt: skip
    model = stirred(transformers.ViTForImageClassification(transformers.ViTConfig(**config)))
    model.save_pretrained(path)
    channels = model.config.num_channels
    order = {"image_mean": [0.4, 0.5, 0.6][:channels], "image_std": [0.2, 0.3, 0.1][:channels]}
    size = {"height": 8, "width": 8}
    write(path / "preprocessor_config.json", {**order, "do_normalize": True, "resample": 2, "size": size})
    return path


@pytest.fixture(scope="module", params=SHAPES)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vit_directory(tmp_path_factory.mktemp("vit") / request.param, **SHAPES[request.param])


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vit_directory(tmp_path_factory.mktemp("vit") / "plain", id2label=NAMES, num_labels=3)


def picture(path: Path, height: int = 8, width: int = 8) -> Path:
    pixels = np.random.default_rng(height).integers(0, 256, (height, width, 3), dtype=np.uint8)
    pillow.fromarray(pixels).save(path)
    return path


def test_scores_are_those_of_transformers(directory: Path) -> None:
    imported = read(directory)
    assert isinstance(imported.model, Vit)
    assert vit.differences(directory, imported) < 1e-4


def test_a_picture_is_put_in_order_as_its_makers_do_and_labelled_alike(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    assert run(["import", str(plain), "--out", str(model)]) == 0
    said = capsys.readouterr().err
    assert "a vit from a vit model" in said and "differ by at most" in said and "resize" not in said
    original = transformers.ViTForImageClassification.from_pretrained(plain).eval()
    ours = load(model, "cpu")
    assert ours.labels == ["crane", "owl", "crane (2)"]
    processor = transformers.ViTImageProcessorPil.from_pretrained(plain)
    for size in ((8, 8), (20, 31)):
        path = picture(tmp_path / "picture.png", *size)
        given = processor(pillow.open(path), return_tensors="pt")
        with torch.inference_mode():
            expected = original(**given).logits[0].softmax(-1)
        (seen,) = ours.stream([path])
        torch.testing.assert_close(torch.tensor(list(seen.probabilities.values())), expected, atol=1e-4, rtol=0)
        assert seen.label == ours.labels[int(expected.argmax())]


def test_an_imported_model_is_a_model_like_any_other(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    assert run(["import", str(plain), "--out", str(model), "--no-check"]) == 0
    folder = tmp_path / "pictures"
    for label in ("crane", "owl"):
        (folder / label).mkdir(parents=True)
        picture(folder / label / "one.png")
    capsys.readouterr()
    assert run(["classify", "--model", str(model), str(folder / "owl" / "one.png")]) == 0
    assert capsys.readouterr().out.strip() in ("crane", "owl", "crane (2)")
    assert run(["score", "--model", str(model), "--folder", str(folder), "--json"]) == 0
    assert 0 <= json.loads(capsys.readouterr().out)["accuracy"] <= 1
    assert run(["inspect", str(model), str(folder / "owl" / "one.png"), "--png", str(tmp_path / "heads.png")]) == 0
    assert (tmp_path / "heads.png").is_file()


@pytest.mark.parametrize(
    ("pictures", "mean", "spread"),
    [
        (None, [0.5] * 3, [0.5] * 3),
        ({"do_normalize": False}, [0.0] * 3, [1.0] * 3),
        ({"image_mean": [0.1, 0.2, 0.3], "image_std": [1, 1, 1]}, [0.1, 0.2, 0.3], [1.0] * 3),
    ],
    ids=["nothing said", "left as it is", "said"],
)
def test_mean_and_spread_come_from_the_preprocessor(
    plain: Path, tmp_path: Path, pictures: dict[str, Any] | None, mean: list[float], spread: list[float]
) -> None:
    copy = changed(plain, tmp_path)
    (copy / "preprocessor_config.json").unlink()
    if pictures is not None:
        write(copy / "preprocessor_config.json", pictures)
    config = read(copy).model.config
    assert isinstance(config, Vit.Config)
    assert (config.mean, config.spread) == (mean, spread)


def test_where_pictures_are_made_to_fit_in_other_ways_it_is_said(plain: Path, tmp_path: Path) -> None:
    copy = changed(plain, tmp_path)
    rewrite(copy / "preprocessor_config.json", {"resample": 3, "do_center_crop": True})
    assert read(copy).notes == [
        "its makers resize pictures by bicubic interpolation, and we by bilinear",
        "its makers cut the middle out of pictures that do not fit, and we resize them",
    ]


def test_pictures_that_are_not_scaled_as_ours_are_refused(plain: Path, tmp_path: Path) -> None:
    copy = changed(plain, tmp_path)
    rewrite(copy / "preprocessor_config.json", {"rescale_factor": 1 / 127.5})
    with pytest.raises(DataError, match="are not scaled to values from 0 to 1"):
        read(copy)


@pytest.mark.parametrize(
    ("pictures", "said"),
    [
        ({"image_mean": 0.5}, "image_mean = 0.5 should be a list"),
        ({"image_mean": [0.5]}, "image_mean = [0.5] should be 3 numbers, one for each channel"),
        ({"image_std": [0.5, 0.5, "0.5"]}, "image_std = [0.5, 0.5, '0.5'] should be 3 numbers, one for each channel"),
        ({"image_std": [0, 0, 0]}, "image_std = [0, 0, 0] cannot be divided by"),
        ({"rescale_factor": "0.00392"}, "rescale_factor = '0.00392' should be a number"),
        ({"rescale_factor": float("nan")}, "rescale_factor = nan should be a number"),
        ({"resample": [1]}, "resample = [1] should be a whole number"),
    ],
    ids=str,
)
def test_an_order_of_pictures_that_is_none_is_named(
    plain: Path, tmp_path: Path, pictures: dict[str, Any], said: str
) -> None:
    copy = changed(plain, tmp_path)
    rewrite(copy / "preprocessor_config.json", pictures)
    with pytest.raises(DataError) as error:
        read(copy)
    assert str(error.value) == f"{copy / 'preprocessor_config.json'}: {said}"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"patch_size": [4, 2]}, "has patches of 4 x 2 and 3 channels"),
        ({"num_channels": 2}, "has patches of 4 x 4 and 2 channels"),
        ({"hidden_act": "mish"}, "its activation 'mish' is none of"),
        ({"hidden_act": ["gelu"]}, "config.json: hidden_act = ['gelu'] should be a text"),
        ({"id2label": ["a", "b"]}, "config.json: id2label = ['a', 'b'] should be an object"),
        ({"image_size": [8]}, "config.json: image_size = [8] should be a whole number"),
        (
            {"image_size": 16},
            "config.json: image_size = 16 does not fit: with patch_size it makes 17 places, and its weights have 5",
        ),
        ({"num_attention_heads": 0}, "config.json: 'num_heads' = 0: input should be"),
        ({"num_hidden_layers": 3}, "has no tensor vit.encoder.layer.2."),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_shape_that_is_not_ours_is_refused(plain: Path, tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError) as error:
        read(changed(plain, tmp_path, **settings))
    assert said in str(error.value)


def test_one_without_a_head_is_refused(tmp_path: Path) -> None:
    config = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, image_size=8, patch_size=4
    )
    transformers.ViTModel(config).save_pretrained(tmp_path / "headless")
    with pytest.raises(DataError, match="has no head that labels pictures"):
        read(tmp_path / "headless")


def test_what_got_the_name_of_an_import_meanwhile_stays(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    monkeypatch.setattr("clearhead.run.importing.refuse_existing", lambda out: None)
    with pytest.raises(WouldOverwriteError, match="out exists: choose another --out"):
        import_directory(plain, tmp_path / "out", check=False)
    assert [path.name for path in tmp_path.iterdir()] == ["out"] and not list((tmp_path / "out").iterdir())
