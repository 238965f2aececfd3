"""Pictures: IDX files and folders say the same, what is wrong is one line with its file, and examples are fair."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.data.made_up_pictures import stripes, write_folder, write_idx

from clearhead.config import build
from clearhead.data.distortion import Distort
from clearhead.data.examples import Draw, where
from clearhead.data.picture_files import Folder, IdxFiles
from clearhead.data.picture_reading import Form, read_picture
from clearhead.data.pictures import (
    PictureExamples,
    Pictures,
    PicturesConfig,
    check_known,
    check_labels,
    mean_and_spread,
    open_set,
    opening,
    seen_before,
    set_aside,
)
from clearhead.errors import ClearheadError, ConfigError, DataError, MissingInputError, UnavailableError

NAMES = ("across", "down", "squares")


def opened(pictures: Any, **form: Any) -> Pictures:
    steps = opening(pictures, pictures.form(form.get("size"), form.get("channels")))
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


@pytest.fixture
def idx(tmp_path: Path) -> Path:
    pixels, labels = stripes(12, kinds=3)
    write_idx(tmp_path / "images.gz", pixels)
    write_idx(tmp_path / "labels", labels)
    return tmp_path


def idx_files(folder: Path, names: tuple[str, ...] = ()) -> IdxFiles:
    return IdxFiles(folder / "images.gz", folder / "labels", names)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "pictures", *stripes(12, kinds=3), NAMES)


# Reading -------------------------------------------------------------------------------------------------------------


def test_idx_files_and_folders_say_the_same(idx: Path, folder: Path) -> None:
    one, other = opened(idx_files(idx, NAMES)), opened(Folder(folder))
    assert one.names == other.names == NAMES
    assert one.form == other.form == Form(8, 8, 1)
    order = np.argsort(one.labels, kind="stable")
    assert np.array_equal(one.labels[order], other.labels)
    assert np.array_equal(one.pixels[order], other.pixels)
    assert np.array_equal(one.sums[order], other.sums)
    assert one.counts() == dict.fromkeys(NAMES, 4)
    assert one.notes == other.notes == ()


def test_unnamed_labels_are_numbers(idx: Path) -> None:
    assert idx_files(idx).labels == ("0", "1", "2")


def test_what_was_decoded_once_is_not_decoded_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = opened(Folder(folder))
    monkeypatch.setattr(Folder, "pictures", lambda self, form: pytest.fail("decoded again"))
    assert np.array_equal(opened(Folder(folder)).pixels, first.pixels)


def test_another_picture_is_another_set(folder: Path) -> None:
    before = Folder(folder).fingerprint()
    Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(folder / "down" / "001.png")
    assert Folder(folder).fingerprint() != before


def test_pictures_of_other_sizes_are_resized_and_that_is_said(folder: Path) -> None:
    odd = folder / "down" / "001.png"
    Image.new("L", (20, 10), 99).save(odd)
    found = opened(Folder(folder), size=(8, 8))
    assert found.pixels.shape == (12, 1, 8, 8)
    assert found.notes == (f"resized 1 of 12 pictures to 8 x 8, first {odd}, which is 10 x 20",)
    assert (found.pixels[found.labels == 1][0] == 99).all()
    assert opened(Folder(folder), size=(8, 8)).notes == found.notes, "also when nothing is decoded again"


def test_idx_pictures_are_resized_too(idx: Path) -> None:
    found = opened(idx_files(idx), size=(4, 6), channels=3)
    assert found.pixels.shape == (12, 3, 4, 6)
    assert found.notes == ("resized all 12 pictures from 8 x 8 to 4 x 6",)


def test_one_coloured_picture_makes_all_of_them_coloured(folder: Path) -> None:
    Image.new("RGB", (8, 8), (10, 20, 30)).save(folder / "across" / "000.png")
    found = opened(Folder(folder))
    assert found.form == Form(8, 8, 3)
    assert found.pixels[0, :, 0, 0].tolist() == [10, 20, 30]
    assert np.array_equal(found.pixels[1, 0], found.pixels[1, 2])
    assert opened(Folder(folder), channels=1).form == Form(8, 8, 1)


@pytest.mark.parametrize(
    ("mode", "colour", "channels", "wanted"),
    [
        ("RGBA", (10, 20, 30, 0), 3, [255, 255, 255]),
        ("RGBA", (10, 20, 30, 255), 3, [10, 20, 30]),
        ("LA", (40, 255), 1, [40]),
        ("1", 1, 1, [255]),
        ("I;16", 65535, 1, [255]),
        ("I;16", 25700, 1, [100]),
        ("CMYK", (0, 0, 0, 0), 3, [255, 255, 255]),
    ],
)
def test_every_mode_becomes_eight_bits(
    tmp_path: Path, mode: str, colour: Any, channels: int, wanted: list[int]
) -> None:
    path = tmp_path / ("a.tif" if mode in ("CMYK", "I;16") else "a.png")
    Image.new(mode, (2, 3), colour).save(path)
    pixels, size = read_picture(path, Form(3, 2, channels))
    assert size == (3, 2)
    assert pixels.dtype == np.uint8 and pixels.shape == (channels, 3, 2)
    assert pixels[:, 0, 0].tolist() == wanted


def test_a_picture_on_its_side_is_put_upright(tmp_path: Path) -> None:
    image = Image.new("L", (4, 2))
    image.putpixel((0, 0), 255)
    exif = image.getexif()
    exif[0x0112] = 6
    for kind in ("a", "b"):
        (tmp_path / kind).mkdir()
        image.save(tmp_path / kind / "x.png", exif=exif)
    assert Folder(tmp_path).form(None, None) == Form(4, 2, 1)
    pixels, size = read_picture(tmp_path / "a" / "x.png", Form(4, 2, 1))
    assert size == (4, 2)
    assert pixels[0, 0].tolist() == [0, 255]


def test_pictures_in_folders_below_a_class_belong_to_it(folder: Path) -> None:
    before = opened(Folder(folder))
    for deep in (folder / "down" / "2023" / "may", folder / "down" / ".thumbnails"):
        deep.mkdir(parents=True)
        Image.new("L", (8, 8)).save(deep / "deep.png")
    found = opened(Folder(folder))
    assert len(found) == 13
    assert found.counts() == before.counts() | {"down": 5}


def test_a_folder_whose_name_is_no_text_can_be_no_label(folder: Path) -> None:
    (folder / os.fsdecode(b"caf\xe9")).mkdir()
    with pytest.raises(DataError, match=r"has a folder 'caf\\xe9', whose name is not UTF-8"):
        Folder(folder)


def test_files_that_are_no_pictures_are_left_out_and_that_is_said(folder: Path) -> None:
    (folder / "down" / "notes.txt").write_text("not a picture")
    (folder / "down" / ".hidden.png").write_text("not a picture either")
    found = opened(Folder(folder))
    assert len(found) == 12
    assert found.notes == (f"left out 1 files whose names are not those of pictures: {folder / 'down' / 'notes.txt'}",)


# Mistakes ------------------------------------------------------------------------------------------------------------


def says(message: str, error: type[ClearheadError] = DataError) -> Any:
    import re

    return pytest.raises(error, match=f"^{re.escape(message)}$")


def test_pictures_of_several_sizes_are_named(folder: Path) -> None:
    odd = folder / "down" / "001.png"
    Image.new("L", (20, 10)).save(odd)
    first = folder / "across" / "000.png"
    with says(
        f"pictures of 2 sizes: {first} is 8 x 8 and {odd} 10 x 20; "
        "set data.size, such as [8, 8], and all are resized to it"
    ):
        Folder(folder).form(None, None)


@pytest.mark.parametrize("cut", [0, 20, 60])
def test_a_broken_picture_is_named(folder: Path, cut: int) -> None:
    path = folder / "down" / "001.png"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError) as error:
        opened(Folder(folder))
    message = str(error.value)
    assert message.startswith(f"{path} is not a picture that can be read: ")
    assert "\n" not in message and message.count(str(path)) == 1


def test_a_text_that_calls_itself_a_picture_is_named(folder: Path) -> None:
    path = folder / "down" / "001.png"
    path.write_text("hello")
    with says(f"{path} is not a picture that can be read: it is damaged, or not in any format that Pillow knows"):
        opened(Folder(folder))


def test_a_picture_of_a_billion_pixels_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 60)
    with pytest.raises(DataError, match="decompression bomb"):
        Folder(folder).form(None, None)


def test_without_pillow_a_folder_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "PIL", None)
    with says("reading pictures needs Pillow: pip install 'clearhead[pictures]'", UnavailableError):
        Folder(folder)


def test_folders_that_are_none_are_named(tmp_path: Path, folder: Path) -> None:
    with says(f"there is no folder {tmp_path / 'none'}", MissingInputError):
        Folder(tmp_path / "none")
    with says(f"{folder / 'down'} has no folders in it: put the pictures of each class into a folder of its own"):
        Folder(folder / "down")
    (folder / "empty").mkdir()
    with pytest.raises(DataError, match=rf"^{folder / 'empty'} has no pictures in it \(names that end with one of"):
        Folder(folder)


def test_a_class_that_was_never_trained_is_named(folder: Path, idx: Path) -> None:
    with says(f"{folder / 'squares'}: nothing was trained on the label 'squares'; they are: across, down"):
        Folder(folder, names=("across", "down"))
    with says(f"{idx / 'labels'}, picture 3: label 2 is none of 0 to 1, the labels there are"):
        idx_files(idx, ("across", "down"))
    whole = opened(idx_files(idx, NAMES))
    trained = Pictures(whole.pixels[:2], whole.labels[:2], whole.sums[:2], NAMES, whole.form, "", ())
    with says("x, picture 3: nothing was trained on the label 'squares'; the labels are: across, down"):
        check_known(whole, trained, "x")


def test_one_class_only_is_refused(tmp_path: Path) -> None:
    pixels, _ = stripes(3)
    found = opened(Folder(write_folder(tmp_path / "one", pixels, np.zeros(3, dtype=np.uint8), NAMES)))
    with says("here: all 3 pictures have the label 'across', and a classifier needs two or more"):
        check_labels(found, "here")


def test_counts_that_do_not_match_are_named(idx: Path) -> None:
    write_idx(idx / "labels", stripes(11)[1])
    with says(f"{idx / 'images.gz'} has 12 pictures, and {idx / 'labels'} has 11 labels"):
        idx_files(idx)


def test_an_empty_set_is_refused(idx: Path) -> None:
    write_idx(idx / "images.gz", np.zeros((0, 8, 8), dtype=np.uint8))
    write_idx(idx / "labels", np.zeros(0, dtype=np.uint8))
    with says(f"{idx / 'images.gz'} has no pictures: it is 0 x 8 x 8"):
        idx_files(idx)


def test_settings_that_do_not_fit_are_named(idx: Path, folder: Path) -> None:
    wanted = "set data.pictures to a folder with a folder for each class, or an IDX file"
    with says(f"no training data: {wanted}", ConfigError):
        open_set(PicturesConfig(), "train")
    with says(f"{idx / 'images.gz'} holds pictures only: name the IDX file of their labels too", ConfigError):
        open_set(PicturesConfig(pictures=str(idx / "images.gz")), "train")
    with says("data.labels names the numbers of IDX files, and folders have names: leave it out", ConfigError):
        open_set(PicturesConfig(pictures=str(folder), labels=["a", "b"]), "train")
    assert open_set(PicturesConfig(pictures=str(folder)), "test") is None
    with pytest.raises(ConfigError, match="size is a height and a width from 1 to 4096"):
        build(PicturesConfig, {"size": [28]}, "here")
    with pytest.raises(ConfigError, match="unknown kind of pictures, did you mean 'idx'"):
        build(PicturesConfig, {"kind": "idxx"}, "here")


# Examples ------------------------------------------------------------------------------------------------------------


def test_held_out_pictures_follow_from_pixels_and_seed(idx: Path) -> None:
    found = opened(idx_files(idx))
    config = PicturesConfig(hold_out=3, hold_out_test=2)
    held, tested = set_aside(found, config, 1, validate=True)
    assert held.sum() == 3 and tested.sum() == 2 and not (held & tested).any()
    other, same = set_aside(found, config, 2, validate=True)
    assert np.array_equal(same, tested), "no seed changes what is tested on"
    assert not np.array_equal(other, held)
    assert not set_aside(found, config, 1, validate=False)[0].any()


def test_pictures_seen_in_training_are_counted(idx: Path, folder: Path) -> None:
    one = opened(idx_files(idx))
    assert seen_before(one, opened(Folder(folder))) == 12
    write_idx(idx / "images.gz", stripes(12, kinds=3, seed=5)[0])
    assert seen_before(one, opened(idx_files(idx))) == 0


def test_mean_and_spread_are_numpys() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (9, 3, 4, 5)).astype(np.uint8)
    mean, spread = mean_and_spread(pixels, np.array([0, 2, 4, 8]))
    chosen = pixels[[0, 2, 4, 8]] / 255
    assert mean == pytest.approx(chosen.mean((0, 2, 3)).tolist())
    assert spread == pytest.approx(chosen.std((0, 2, 3)).tolist())
    assert mean_and_spread(np.full((2, 1, 3, 3), 51, dtype=np.uint8), np.arange(2)) == ([pytest.approx(0.2)], [1.0])


def test_examples_are_the_pictures_of_their_rows(idx: Path) -> None:
    found = opened(idx_files(idx))
    rows = np.array([7, 3, 11, 0])
    examples = PictureExamples(found, rows, num_tokens=17, distort=Distort(shift=2, flip=0.5))
    assert len(examples) == 4
    assert examples.lengths.tolist() == [17] * 4 and examples.answers.tolist() == [1] * 4
    assert examples.sort_keys == ()
    assert [where(examples, row) for row in range(4)] == ["picture 8", "picture 4", "picture 12", "picture 1"]
    batch = examples.batch(np.array([2, 0]), None)
    assert batch.indices.tolist() == [11, 7] and batch.num_answers == 2
    assert np.array_equal(batch.pictures, found.pixels[[11, 7]])
    assert np.array_equal(batch.labels, found.labels[[11, 7]])
    drawn = examples.batch(np.array([2, 0]), Draw(1, 0))
    assert not np.array_equal(drawn.pictures, batch.pictures)
    assert np.array_equal(drawn.labels, batch.labels)
    # What happens to a picture does not depend on who stands beside it, or in which split it is.
    alone = PictureExamples(found, np.array([11]), 17, Distort(shift=2, flip=0.5)).batch(np.array([0]), Draw(1, 0))
    assert np.array_equal(alone.pictures[0], drawn.pictures[0])


def test_without_distortions_training_sees_pictures_as_they_are(idx: Path) -> None:
    found = opened(idx_files(idx))
    batch = PictureExamples(found, np.arange(12), 17).batch(np.arange(3), Draw(1, 0))
    assert np.array_equal(batch.pictures, found.pixels[:3])
