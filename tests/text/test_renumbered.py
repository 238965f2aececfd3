"""Tokenizers of others cut text as they did, with our control tokens first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers

from clearhead.errors import DataError, MissingInputError
from clearhead.text.renumbered import FORMATS, Theirs, read_tokenizer, renumbered
from clearhead.text.specials import SPECIALS, UNK_ID
from clearhead.text.tokenizer import Tokenizer

CORPUS = [
    "The quick brown fox jumps over the lazy dog; it doesn't stop.",
    "Ein Café in Zürich, naïve Gäste.",
    "我吃了一个苹果，他没有吃。",
    "Well-known foxes ran 3.14 miles 😀 on the 5th of May!",
]
TEXTS = [
    *CORPUS, "", " ", "a  b", "FOXES", "unbekanntes Wort", "🦊🦊 fox", "line\nend\t tab ",
    "<s> </s> [CLS] [MASK] <unk>", "<|endoftext|> fox", "苹果fox苹果", "Ωμέγα", "NEW_TOKEN inside aNEW_TOKENb",
]  # fmt: skip


def bpe() -> tokenizers.Tokenizer:
    engine = tokenizers.Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False,
        special_tokens=["<|endoftext|>"],
    )  # fmt: skip
    engine.train_from_iterator(CORPUS, trainer)
    return engine


def wordpiece() -> tokenizers.Tokenizer:
    engine = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    engine.normalizer = normalizers.BertNormalizer(lowercase=True)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    engine.train_from_iterator(CORPUS[:3], trainers.WordPieceTrainer(
        vocab_size=120, special_tokens=special, show_progress=False
    ))  # fmt: skip
    return engine


MADE = {"bpe": bpe, "wordpiece": wordpiece}


def stored(folder: Path, kind: str, **names: Any) -> Path:
    """A directory with a tokenizer of a kind, in its newer form."""
    folder.mkdir(exist_ok=True)
    engine = MADE[kind]()
    engine.add_tokens([AddedToken("NEW_TOKEN", normalized=False)])
    engine.enable_truncation(4)
    engine.enable_padding(length=9)
    engine.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(names), encoding="utf-8")
    return folder


def turned(theirs: Theirs) -> tuple[Tokenizer, dict[int, int]]:
    """Ours with all entries in another order, and theirs by ours."""
    controls = {"<|endoftext|>", "[UNK]"}
    others = [entry for entry in reversed(theirs.ids) if entry not in controls]
    entries = [*SPECIALS, *others]
    kind = next(kind for kind, form in FORMATS.items() if form.model == theirs.tree["model"]["type"])
    by_ours = {index: theirs.ids[entry] for index, entry in enumerate(entries) if entry in theirs.ids}
    return Tokenizer(kind, renumbered(theirs, entries)), by_ours | {UNK_ID: theirs.ids.get("[UNK]", -1)}


@pytest.fixture(scope="module", params=MADE)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Tokenizer, Any]:
    folder = stored(tmp_path_factory.mktemp("renumbered") / request.param, request.param)
    engine = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    engine.no_truncation()
    engine.no_padding()
    engine.encode_special_tokens = True
    return engine, *turned(read_tokenizer(folder, request.param))


def check(both: tuple[Any, Tokenizer, Any], text: str) -> None:
    theirs, ours, by_ours = both
    ids = ours.encode(text)
    expected = theirs.encode(text, add_special_tokens=False).ids
    assert [by_ours[index] for index in ids] == expected, text
    assert ours.encode_batch([text]) == [ids]
    assert ours.decode(ids) == theirs.decode([index for index in expected if index != by_ours[UNK_ID]])


@pytest.mark.parametrize("text", TEXTS)
def test_texts_are_cut_as_they_were(both: tuple[Any, Tokenizer, Any], text: str) -> None:
    check(both, text)


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_any_text_is_cut_as_it_was(both: tuple[Any, Tokenizer, Any], text: str) -> None:
    check(both, text)


@given(text=st.text("ab fox'.\n\t 苹果😀É", max_size=30))
def test_a_text_is_the_sum_of_its_words(both: tuple[Any, Tokenizer, Any], text: str) -> None:
    ours = both[1]
    size = {"<u2": 2, "<u4": 4}[ours.id_type]
    (packed,) = ours.pack([text])
    found = [int.from_bytes(packed[place : place + size], "little") for place in range(0, len(packed), size)]
    assert found == ours.encode(text)


def test_no_text_is_a_control_token(both: tuple[Any, Tokenizer, Any]) -> None:
    for text in ("<s>", "</s>", "<blank>", "a</s>b", "<|endoftext|>"):
        assert not {0, 1, 2} & {*both[1].encode(text)}, text


def test_what_pieces_stand_for_is_the_text(both: tuple[Any, Tokenizer, Any]) -> None:
    ours = both[1]
    ids = ours.encode("The lazy dog")
    assert ours.raw(ids).decode().strip().lower() == "the lazy dog"
    assert ours.words(ids)[-1] == 2 and len(ours.pieces(ids)) == len(ids)
    added = ours.tokens().index("NEW_TOKEN")
    assert ours.raw([added]).decode().strip() == "NEW_TOKEN"


@pytest.mark.parametrize("kind", MADE)
def test_a_tokenizer_comes_back_from_its_files(tmp_path: Path, kind: str) -> None:
    tokenizer, _ = turned(read_tokenizer(stored(tmp_path / "theirs", kind), kind))
    tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert loaded.kind == kind and loaded.fingerprint() == tokenizer.fingerprint()
    assert loaded.encode(" ".join(TEXTS)) == tokenizer.encode(" ".join(TEXTS))


# Older files ---------------------------------------------------------------------------------------------------------


def test_vocab_json_and_merges_txt_make_the_same_tokenizer(tmp_path: Path) -> None:
    engine = bpe()
    engine.model.save(str(tmp_path))
    found, by_ours = turned(read_tokenizer(tmp_path, "bpe"))
    for text in TEXTS:
        expected = engine.encode(text, add_special_tokens=False).ids if "<|" not in text else None
        assert expected is None or [by_ours[index] for index in found.encode(text)] == expected, text
    (tmp_path / "tokenizer_config.json").write_text('{"add_prefix_space": true}', encoding="utf-8")
    spaced, _ = turned(read_tokenizer(tmp_path, "bpe"))
    assert spaced.encode("fox") == found.encode(" fox") != found.encode("fox")


@pytest.mark.parametrize("lower", [True, False, None])
def test_vocab_txt_makes_the_same_tokenizer_and_the_config_says_whether_letters_are_small(
    tmp_path: Path, lower: bool | None
) -> None:
    engine = wordpiece()
    engine.normalizer = normalizers.BertNormalizer(lowercase=lower is not False)
    engine.model.save(str(tmp_path))
    if lower is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lower}), encoding="utf-8")
    engine.encode_special_tokens = True
    found, by_ours = turned(read_tokenizer(tmp_path, "wordpiece"))
    for text in TEXTS:
        expected = engine.encode(text, add_special_tokens=False).ids
        assert [by_ours[index] for index in found.encode(text)] == expected, text


# What is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "other", "said"),
    [("bpe", "wordpiece", "it is WordPiece, not BPE"), ("wordpiece", "bpe", "it is BPE, not WordPiece")],
)
def test_another_kind_is_refused(tmp_path: Path, kind: str, other: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_tokenizer(stored(tmp_path / "theirs", other), kind)


def test_pieces_that_are_not_made_of_bytes_are_refused(tmp_path: Path) -> None:
    engine = bpe()
    engine.pre_tokenizer = pre_tokenizers.Whitespace()
    engine.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(DataError, match="its pieces are not made of bytes"):
        read_tokenizer(tmp_path, "bpe")


def test_another_sign_of_pieces_that_go_on_is_refused(tmp_path: Path) -> None:
    engine = tokenizers.Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]", continuing_subword_prefix="@@"))
    engine.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(DataError, match="pieces that go on with a word begin with '@@', not '##'"):
        read_tokenizer(tmp_path, "wordpiece")


@pytest.mark.parametrize("kind", MADE)
def test_what_is_missing_or_broken_is_named(tmp_path: Path, kind: str) -> None:
    with pytest.raises(MissingInputError, match=f"neither tokenizer.json nor {' and '.join(FORMATS[kind].files)}"):
        read_tokenizer(tmp_path, kind)
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match=r"tokenizer\.json cannot be read: "):
        read_tokenizer(tmp_path, kind)


def test_a_control_token_has_the_name_that_the_config_gives_it_or_its_usual_one(tmp_path: Path) -> None:
    theirs = read_tokenizer(stored(tmp_path / "theirs", "wordpiece", cls_token={"content": "the"}), "wordpiece")
    assert theirs.control("cls_token", "[CLS]") == theirs.ids["the"]
    assert theirs.control("sep_token", "[SEP]") == theirs.ids["[SEP]"]
    with pytest.raises(DataError, match=r"has no \[END\] \(eos_token\)"):
        theirs.control("eos_token", "[END]")
