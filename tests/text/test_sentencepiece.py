"""SentencePiece models read without SentencePiece cut text as SentencePiece itself does."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.numbers import spell
from clearhead.errors import DataError, MissingInputError
from clearhead.text.sentencepiece import FOREIGN, read_pieces, sentencepiece_engine
from clearhead.text.specials import SPECIALS, UNK_ID
from clearhead.text.tokenizer import Tokenizer

spm = pytest.importorskip("sentencepiece", reason="compared with SentencePiece where it is installed")

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "Der schnelle braune Fuchs springt über den faulen Hund.",
    "Twenty-three dogs and forty-two foxes ran 3.14 miles on the 5th of May!",
    "Dreiundzwanzig Hunde und zweiundvierzig Füchse liefen am 5. Mai.",
    "He said: “that’s fine”, and went home.",
]
CORPUS = [*TEXTS * 4, *(spell(number, language) for number in range(1, 300) for language in ("de", "en"))]


def train(folder: Path, name: str = "model", **more: Any) -> Path:
    """A SentencePiece model of CORPUS."""
    file = io.BytesIO()
    options = {"model_type": "unigram", "vocab_size": 160, "character_coverage": 1.0, "minloglevel": 2} | more
    soft = {"hard_vocab_limit": options["model_type"] != "unigram", "num_threads": 1}
    spm.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_writer=file, **soft, **options)
    path = folder / f"{name}.spm"
    path.write_bytes(file.getvalue())
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("spm"))


@pytest.fixture(scope="module")
def both(path: Path) -> tuple[Any, Tokenizer]:
    """SentencePiece, and ours from the same file."""
    theirs = spm.SentencePieceProcessor(model_file=str(path))
    pieces = read_pieces(path)
    return theirs, Tokenizer("sentencepiece", sentencepiece_engine(pieces, [*SPECIALS, *pieces.scores]))


def tokens(tokenizer: Tokenizer, text: str) -> list[str]:
    stored = tokenizer.tokens()
    return [stored[index] for index in tokenizer.encode(text)]


def known(pieces: list[str], theirs: Any) -> list[str]:
    """What SentencePiece says, with what it does not know under one name."""
    return [piece if theirs.piece_to_id(piece) > 0 or piece == "<unk>" else "<unk>" for piece in pieces]


@pytest.mark.parametrize(
    "text",
    [
        *TEXTS, "", " ", "a", "  two  spaces ", "\ttab", "ﬁne print", "Ｆｕｌｌ　ｗｉｄｔｈ", "e\u0301 é", "42",
        "unknown: 我 ß Ж", "我吃了一个苹果", "fox我fox", "a\u00a0b", "x" * 200, "…", "\u200bzero\u200b width", "½ ²",
    ],
)  # fmt: skip
def test_text_is_cut_alike(both: tuple[Any, Tokenizer], text: str) -> None:
    theirs, ours = both
    assert tokens(ours, text) == known(theirs.encode(text, out_type=str), theirs)


@given(text=st.text(st.sampled_from("abcdefghijklmnopqrstuvwxyzABDHTF äöü.,!-3145 我ß“”’"), max_size=40))
def test_any_text_is_cut_alike(both: tuple[Any, Tokenizer], text: str) -> None:
    theirs, ours = both
    assert tokens(ours, text) == known(theirs.encode(text, out_type=str), theirs)


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back(both: tuple[Any, Tokenizer], text: str) -> None:
    theirs, ours = both
    ids = ours.encode(text)
    assert ours.decode(ids) == theirs.decode(theirs.encode(text))
    assert "".join(piece for piece in ours.pieces(ids)).replace("▁", " ").strip() == ours.decode(ids)


@pytest.mark.parametrize("text", ["</s>", "<s>", "<blank>", "<unk>", "a</s>b", " </s> ", "x <s>y", "<<s>>"])
def test_a_control_token_typed_by_a_user_is_text(both: tuple[Any, Tokenizer], text: str) -> None:
    ids = both[1].encode(text)
    assert set(ids).isdisjoint({0, 1, 2})
    assert len(ids) > 2


def test_entries_that_are_no_pieces_are_spelt_out_but_never_found(path: Path) -> None:
    pieces = read_pieces(path)
    vocabulary = [*SPECIALS, *pieces.scores, "▁foxtrot", "Ж", ">>fra<<"]
    tokenizer = Tokenizer("sentencepiece", sentencepiece_engine(pieces, vocabulary))
    foreign, letter, code = (vocabulary.index(entry) for entry in ("▁foxtrot", "Ж", ">>fra<<"))
    assert foreign not in tokenizer.encode("foxtrot")
    assert tokenizer.decode([foreign, foreign]) == "foxtrot foxtrot"
    assert tokenizer.pieces([foreign]) == ["▁foxtrot"]
    assert tokenizer.encode("Ж")[-1] == letter
    assert tokenizer.encode(">>fra<< fox")[0] == code
    assert tokenizer.encode(">>fra<< fox")[1:] == tokenizer.encode("fox")
    assert UNK_ID in tokenizer.encode(FOREIGN + "▁foxtrot")


def test_saved_equals_loaded(both: tuple[Any, Tokenizer], tmp_path: Path) -> None:
    both[1].save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert loaded.kind == "sentencepiece"
    assert loaded.encode_batch(TEXTS) == both[1].encode_batch(TEXTS)
    assert loaded.fingerprint() == both[1].fingerprint()


def test_pieces_make_up_words(both: tuple[Any, Tokenizer]) -> None:
    ours = both[1]
    ids = ours.encode("the lazy dog.")
    assert ours.words(ids)[-1] == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model_type": "bpe"}, "another algorithm than unigram"),
        ({"byte_fallback": True, "vocab_size": 400}, "bytes"),
        ({"user_defined_symbols": ["<x>"]}, "user-defined pieces"),
        ({"split_by_whitespace": False}, "pieces across spaces"),
    ],
    ids=lambda value: str(value),
)
def test_what_is_not_known_is_refused(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    file = train(tmp_path, **options)
    with pytest.raises(DataError) as error:
        read_pieces(file)
    assert str(error.value) == f"{file} uses {said}, which is not known here"


def test_rubbish_is_no_model(path: Path, tmp_path: Path) -> None:
    whole = path.read_bytes()
    for number, content in enumerate(
        [b"", b"\x00", b"\xff" * 30, b"not a model", whole[:50], whole[:-3], b"\x0a\x02\x08"]
    ):
        file = tmp_path / f"{number}.spm"
        file.write_bytes(content)
        with pytest.raises(DataError):
            read_pieces(file)
    with pytest.raises(MissingInputError):
        read_pieces(tmp_path / "none.spm")


def test_without_normalisation_nothing_is_normalised(tmp_path: Path) -> None:
    file = train(tmp_path, normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=False)
    theirs = spm.SentencePieceProcessor(model_file=str(file))
    pieces = read_pieces(file)
    ours = Tokenizer("sentencepiece", sentencepiece_engine(pieces, [*SPECIALS, *pieces.scores]))
    for text in ("the fox", " the  fox ", "ﬁne", TEXTS[2]):
        assert tokens(ours, text) == known(theirs.encode(text, out_type=str), theirs)
