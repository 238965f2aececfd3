"""Pictures of heads: the right size, every token as text, and no fuss about fonts."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import matplotlib.image
import numpy as np
import pytest
import torch
from torch import Tensor

from clearhead.errors import StorageError, UsageError
from clearhead.inspection import pictures
from clearhead.inspection.pictures import Changes, draw_changes, draw_confusion, draw_heads, font_advice, font_families

STRANGE = ["$a_1$", "$", "_", "<script>alert(1)</script>", "\\frac{1}{2}", "</s>", "▁ein", "&amp;", "^", "\\$"]


def heads(count: int, queries: int, keys: int) -> Tensor:
    return torch.rand(count, queries, keys, generator=torch.Generator().manual_seed(0)).softmax(-1)


@pytest.mark.parametrize("count", [1, 3, 4, 5, 8])
def test_a_picture_file_is_written_with_a_panel_for_each_head(tmp_path: Path, count: int) -> None:
    path = tmp_path / "heads.png"
    titles = [f"head {number}" for number in range(count)]
    draw_heads(path, heads(count, 4, 3), ["a", "b", "c", "</s>"], ["x", "y", "</s>"], titles, "a → x")
    height, width, depth = matplotlib.image.imread(path).shape
    rows, columns = {1: (1, 1), 3: (2, 2), 4: (2, 2), 5: (2, 3), 8: (3, 3)}[count]
    one = (2.36, 2.74) if count == 1 else (2.03, 2.42)
    assert depth == 4 and height == pytest.approx(130 * (rows * one[1] + 0.4), abs=2)
    assert width == pytest.approx(130 * (columns * one[0] + 0.6), abs=2)


def test_layers_may_have_a_row_each(tmp_path: Path) -> None:
    titles = [f"head {number}" for number in range(6)]
    draw_heads(tmp_path / "heads.png", heads(6, 4, 3), [*"abcd"], [*"xyz"], titles, "two\nlines", columns=6)
    height, width, _ = matplotlib.image.imread(tmp_path / "heads.png").shape
    assert height == pytest.approx(130 * (2.42 + 0.6), abs=2) and width == pytest.approx(130 * (6 * 2.03 + 0.6), abs=2)


def test_a_true_label_is_a_row_of_a_confusion_matrix_and_an_answer_a_column(tmp_path: Path) -> None:
    """What the first label was answered with moves along the first row, and nothing else changes."""
    drawn = []
    for answers in ((8, 0, 0), (0, 0, 8)):
        draw_confusion(tmp_path / "x.png", ["好", "b", "c"], [answers, (0, 8, 0), (0, 8, 0)], "")
        drawn.append(np.asarray(matplotlib.image.imread(tmp_path / "x.png"))[..., :3].sum(-1))
    darker = drawn[1] - drawn[0]
    first, last = (np.argwhere(side > 1).mean(0) for side in (darker, -darker))
    assert first[0] == pytest.approx(last[0], abs=3) and first[0] < len(darker) / 2
    assert first[1] < last[1] - len(darker) / 5


@pytest.mark.parametrize("sign", ["\x07", "\x0c", "\x00", "\ufffe"], ids=ascii)
def test_an_svg_can_be_read_whatever_characters_a_text_has(tmp_path: Path, sign: str) -> None:
    path, text = tmp_path / "heads.svg", f"Ein{sign} Mann"
    draw_heads(path, heads(1, 2, 2), ["a", text], ["x", "y"], [text], text)
    ElementTree.parse(path)
    assert path.read_text(encoding="utf-8").count("Ein\ufffd Mann") == 3
    assert [one.name for one in tmp_path.iterdir()] == ["heads.svg"]


@pytest.mark.parametrize("name", ["x.txt", "x"])
def test_a_name_that_says_no_kind_of_picture_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=rf"{name}: a name that ends with one of \.png, \.svg, \.pdf says"):
        draw_confusion(tmp_path / name, ["a", "b"], [(1, 0), (0, 1)], "")
    assert list(tmp_path.iterdir()) == []


def test_the_heaviest_cell_is_the_darkest(tmp_path: Path) -> None:
    path = tmp_path / "heads.png"
    weights = torch.zeros(1, 2, 2)
    weights[0, 0, 1] = weights[0, 1, 1] = 1
    draw_heads(path, weights, ["a", "b"], ["x", "y"], [""])
    picture = np.asarray(matplotlib.image.imread(path))
    most, none = (np.array(pictures.palette()(value)[:3]) for value in (1.0, 0.0))
    dark = np.argwhere(np.abs(picture[..., :3] - most).max(-1) < 0.01)
    light = np.argwhere(np.abs(picture[..., :3] - none).max(-1) < 0.01)
    assert most.sum() < none.sum() and len(light) > 1000 and len(dark) > 1000
    assert np.median(dark[:, 1]) > np.median(light[:, 1])


def test_a_head_of_use_is_blue_in_loss_and_in_bleu(tmp_path: Path) -> None:
    path = tmp_path / "worth.png"
    names = ["encoder.0.self.0", "encoder.0.self.1"]
    losses, scores = (dict(zip(names, pair, strict=True)) for pair in ((1.0, -1.0), (-2.0, 2.0)))
    draw_changes(path, [Changes("loss", losses, 1), Changes("BLEU", scores, -1, 2)])
    picture = np.asarray(matplotlib.image.imread(path))[..., :3]
    colours = (np.array(matplotlib.colormaps["RdBu"](value)[:3]) for value in (1.0, 0.0))
    useful, harmful = (np.argwhere(np.abs(picture - colour).max(-1) < 0.01) for colour in colours)
    middle = len(picture) / 2
    for rows in (useful[:, 0] < middle, harmful[:, 0] < middle):
        assert rows.sum() > 500 and (~rows).sum() > 500, "once for the loss and once for BLEU"
    assert np.median(useful[:, 1]) < np.median(harmful[:, 1])


def test_heads_that_were_pruned_leave_a_gap(tmp_path: Path) -> None:
    changes = {"decoder.0.cross.1": 0.1, "decoder.2.cross.3": -0.2, "encoder.1.self.0": 0.0}
    draw_changes(tmp_path / "worth.png", [Changes("loss", changes, 1)])
    assert (tmp_path / "worth.png").stat().st_size > 1000
    with pytest.raises(StorageError, match="cannot write"):
        draw_changes(tmp_path / "nowhere" / "worth.png", [Changes("loss", changes, 1)])


def test_long_sentences_are_drawn_finer_not_endlessly_large(tmp_path: Path) -> None:
    path = tmp_path / "long.png"
    draw_heads(path, heads(2, 3, 200), ["a", "b", "c"], ["wort"] * 200, ["one", "two"])
    assert max(matplotlib.image.imread(path).shape) <= 10_001


def test_tokens_are_text_and_never_mathematics_or_markup(tmp_path: Path) -> None:
    path = tmp_path / "heads.svg"
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        draw_heads(path, heads(1, len(STRANGE), 2), STRANGE, ["$x$", "y"], ["$t_1$"], "$h$ → <b>")
    svg = path.read_text(encoding="utf-8")
    shown = [re.sub("&lt;", "<", re.sub("&gt;", ">", text)) for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]
    shown = [text.replace("&amp;", "&") for text in shown]
    assert {*STRANGE, "$x$", "$t_1$", "$h$ → <b>"} <= set(shown)
    assert "<script" not in svg


def test_a_users_own_matplotlib_settings_do_not_matter_and_stay(tmp_path: Path) -> None:
    with matplotlib.rc_context({"text.usetex": True, "text.parse_math": True}):
        draw_heads(tmp_path / "heads.png", heads(1, 2, 2), ["$a_", "b"], ["x^", "y"], ["%"])
        assert matplotlib.rcParams["text.usetex"] and matplotlib.rcParams["text.parse_math"]


def test_half_precision_and_gradients_can_be_drawn(tmp_path: Path) -> None:
    weights = heads(2, 2, 2).bfloat16().requires_grad_()
    draw_heads(tmp_path / "heads.png", weights, ["a", "b"], ["x", "y"], ["one", "two"])
    assert (tmp_path / "heads.png").stat().st_size > 1000


def test_every_head_needs_its_title(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="zip"):
        draw_heads(tmp_path / "heads.png", heads(2, 2, 2), ["a", "b"], ["x", "y"], ["one"])


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot write .*nowhere/heads.png: No such file or directory"):
        draw_heads(tmp_path / "nowhere" / "heads.png", heads(1, 1, 1), ["a"], ["x"], [""])


@pytest.fixture
def no_chinese_font(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "font_families", lambda: ["DejaVu Sans"])
    pictures._drawable.cache_clear()
    monkeypatch.setattr(pictures, "_drawable", pictures._drawable.__wrapped__)


def test_without_a_chinese_font_there_are_boxes_but_no_warning(tmp_path: Path, no_chinese_font: None) -> None:
    draw_heads(tmp_path / "heads.png", heads(1, 2, 2), ["二十", "三"], ["我", "吃"], ["层"], "二十三")
    assert (tmp_path / "heads.png").stat().st_size > 1000


def test_missing_signs_are_named_with_what_to_install(no_chinese_font: None) -> None:
    assert font_advice(["ein", "→", "▁ü", " \n"]) is None
    advice = font_advice(["二十三", "二", "abc"])
    assert advice == (
        "drawn as boxes, for want of a font: 三 二 十; "
        "install a Chinese font (on Debian or Ubuntu: apt install fonts-noto-cjk)"
    )
    assert font_advice(["\U0001f680"]) == "drawn as boxes, for want of a font: \U0001f680; install a font that has them"
    assert ": 一 丁 七 丄 万 …;" in (font_advice([chr(0x4E00 + place) for place in (0, 1, 3, 4, 7, 8, 9)]) or "")


@pytest.mark.skipif(len(font_families()) < 2, reason="needs a Chinese font: apt install fonts-noto-cjk")
def test_with_a_chinese_font_every_sign_has_its_picture(tmp_path: Path) -> None:
    assert font_advice(["二十三我吃了苹果"]) is None
    draw_heads(tmp_path / "heads.png", heads(1, 2, 2), ["二十", "三"], ["我", "吃"], ["层"])
    assert (tmp_path / "heads.png").stat().st_size > 1000
