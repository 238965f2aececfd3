"""Laws over every kind of tokenizer, then what each kind promises on its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clearhead.config import build
from clearhead.errors import ConfigError, DataError, MissingInputError, StorageError
from clearhead.text import (
    BOS_ID,
    EOS_ID,
    PAD_ID,
    SPECIALS,
    TOKENIZERS,
    UNK_ID,
    Tokenizer,
    TokenizerConfig,
    TokenizerPair,
)

TEXTS = [
    "Two men, one dog; it isn't twenty-three.",
    "Zwei Männer grüßen einen Hund im T-Shirt.",
    "我吃了一个苹果。他说：“你好！”",
    "</s> <s> <blank> <unk> are text </s></s></s>",
    "tab\tline\r\nnext\u2028and \x00 end 😀👨‍👩‍👧",
] * 3

KINDS = list(TOKENIZERS)
LOSSLESS = [name for name, kind in TOKENIZERS.items() if kind.lossless]
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


def trained(kind: str, texts: list[str] = TEXTS, **settings: int) -> Tokenizer:
    return Tokenizer.train(TokenizerConfig(kind=kind, **{"vocab_size": 320, **settings}), texts)


TRAINED = {kind: trained(kind) for kind in KINDS}


@pytest.fixture(params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return TRAINED[request.param]


@pytest.mark.parametrize("kind", LOSSLESS)
@given(text=ANY_TEXT)
@example(text="</s> <s>我吃😀\x00\r\n\u2028\u0085\ufeff  end ")
@example(text="")
def test_decoding_gives_back_any_text(kind: str, text: str) -> None:
    tokenizer = TRAINED[kind]
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(text=st.text(st.sampled_from(sorted(set("".join(TEXTS)))), max_size=60))
def test_decoding_characters_gives_back_what_has_been_seen(text: str) -> None:
    assert TRAINED["char"].decode(TRAINED["char"].encode(text)) == text


@pytest.mark.parametrize("kind", KINDS)
@given(text=ANY_TEXT)
def test_every_id_is_in_the_vocabulary_and_has_one_piece(kind: str, text: str) -> None:
    tokenizer = TRAINED[kind]
    ids = tokenizer.encode(text)
    assert all(0 <= index < tokenizer.vocab_size for index in ids)
    assert len(tokenizer.pieces(ids)) == len(ids)


@pytest.mark.parametrize("kind", KINDS)
@given(texts=st.lists(st.one_of(ANY_TEXT, st.sampled_from(TEXTS)), max_size=8))
def test_batched_equals_one_by_one(kind: str, texts: list[str]) -> None:
    tokenizer = TRAINED[kind]
    ids = tokenizer.encode_batch(texts)
    assert ids == [tokenizer.encode(text) for text in texts]
    assert tokenizer.decode_batch(ids) == [tokenizer.decode(row) for row in ids]


def test_control_tokens_have_the_same_ids_in_every_kind(tokenizer: Tokenizer) -> None:
    assert tokenizer.pieces([BOS_ID, EOS_ID, PAD_ID, UNK_ID]) == ["<s>", "</s>", "<blank>", "<unk>"] == list(SPECIALS)


@pytest.mark.parametrize("text", ["</s>", "<s>", "<blank>", "a</s>b", " </s> ", "</s></s>", "x <s>y", "<<s>>"])
def test_a_control_token_typed_by_a_user_is_text(tokenizer: Tokenizer, text: str, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    for one in (tokenizer, Tokenizer.load(tmp_path)):
        for ids in (one.encode(text), *one.encode_batch([text, text])):
            assert not {BOS_ID, EOS_ID, PAD_ID} & set(ids)
            assert len(ids) > text.count("s>")


@pytest.mark.parametrize("kind", LOSSLESS)
def test_the_unknown_token_typed_by_a_user_is_text(kind: str) -> None:
    assert UNK_ID not in TRAINED[kind].encode("<unk>")


def test_training_on_control_tokens_makes_none_of_them_a_piece(tokenizer: Tokenizer) -> None:
    fed = trained(tokenizer.kind, ["</s>", "<s>", "<blank>", "<unk>"] * 50)
    for special in SPECIALS:
        ids = fed.encode(special)
        assert len(ids) >= 3
        assert fed.decode(ids) == special
    stored = json.loads(fed._engine.to_str())
    assert [token["content"] for token in stored["added_tokens"]] == list(SPECIALS)


def test_decoding_leaves_control_tokens_out(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("one dog")
    assert tokenizer.decode([BOS_ID, *ids, EOS_ID, PAD_ID, PAD_ID]) == tokenizer.decode(ids) == "one dog"


def test_saved_equals_loaded(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert (loaded.kind, loaded.vocab_size) == (tokenizer.kind, tokenizer.vocab_size)
    assert loaded.fingerprint() == tokenizer.fingerprint()
    assert loaded.encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)
    assert {path.name for path in tmp_path.iterdir()} == {"tokenizer.json", "tokenizer_config.json"}


def test_training_twice_gives_the_same_tokenizer(tokenizer: Tokenizer) -> None:
    assert trained(tokenizer.kind).fingerprint() == tokenizer.fingerprint()


def test_training_in_another_process_gives_the_same_tokenizer() -> None:
    program = (
        "import sys, json; from clearhead.text import *\n"
        "kinds, texts = json.load(sys.stdin)\n"
        "for kind in kinds: sys.stdout.write(Tokenizer.train("
        "TokenizerConfig(kind=kind, vocab_size=320), texts).fingerprint() + '\\n')"
    )
    environment = {**os.environ, "RAYON_NUM_THREADS": "1", "PYTHONHASHSEED": "7"}
    run = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps([KINDS, TEXTS]),
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == [TRAINED[kind].fingerprint() for kind in KINDS]


def test_training_reads_a_stream_once_and_piecemeal(tokenizer: Tokenizer) -> None:
    stream = (text for text in TEXTS)
    assert (
        Tokenizer.train(TokenizerConfig(kind=tokenizer.kind, vocab_size=320), stream).fingerprint()
        == tokenizer.fingerprint()
    )


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "byte"])
def test_other_texts_give_another_fingerprint(kind: str) -> None:
    assert trained(kind, [*TEXTS, "quite quite other words words"]).fingerprint() != TRAINED[kind].fingerprint()


def test_kinds_have_different_fingerprints() -> None:
    assert len({tokenizer.fingerprint() for tokenizer in TRAINED.values()}) == len(KINDS)


def test_an_error_in_the_stream_of_texts_comes_through(tokenizer: Tokenizer) -> None:
    def broken() -> Iterator[str]:
        yield "fine"
        raise DataError("line 2 is bad")

    if tokenizer.kind == "byte":
        assert Tokenizer.train(TokenizerConfig(kind="byte"), broken()).vocab_size == 260
        return
    with pytest.raises(DataError, match=r"^line 2 is bad$"):
        Tokenizer.train(TokenizerConfig(kind=tokenizer.kind), broken())


def test_a_lone_surrogate_is_refused_with_its_place(tokenizer: Tokenizer) -> None:
    message = r"^text has a lone surrogate U\+D800 \(character 4, after 'abc'\): decode the input as UTF-8$"
    with pytest.raises(DataError, match=message):
        tokenizer.encode("abc\ud800d")
    with pytest.raises(DataError, match=message):
        tokenizer.encode_batch(["fine", "abc\ud800d"])
    with pytest.raises(DataError, match=r"U\+DC80 \(character 1\): decode"):
        tokenizer.encode("\udc80")


def test_training_refuses_a_lone_surrogate() -> None:
    with pytest.raises(DataError, match=r"lone surrogate U\+D800"):
        trained("bpe", ["a\ud800"])


def test_an_id_beyond_the_vocabulary_has_no_piece(tokenizer: Tokenizer) -> None:
    with pytest.raises(DataError, match=rf"^id 99999 is not one of this tokenizer's {tokenizer.vocab_size}$"):
        tokenizer.pieces([99999])


# What each kind promises on its own.


def test_word_pieces_are_the_words_without_joiners() -> None:
    tokenizer = TRAINED["word"]
    ids = tokenizer.encode("it isn't twenty-three dogs.")
    assert tokenizer.pieces(ids) == ["it", "is", "n't", "twenty", "-", "three", "<unk>", "."]
    assert tokenizer.decode(ids) == "it isn't twenty-three."


def test_words_below_min_freq_are_unknown() -> None:
    texts = ["often often often", "twice twice", "once"]
    for min_freq, expected in [(1, 3), (2, 2), (3, 1)]:
        tokenizer = trained("word", texts, min_freq=min_freq)
        assert tokenizer.vocab_size == len(SPECIALS) + expected
        assert tokenizer.decode(tokenizer.encode("once twice often")).split()[-1] == "often"


def test_the_vocabulary_holds_only_what_was_given_most_frequent_first() -> None:
    word = trained("word", ["b a b", "c b a"], min_freq=1)
    assert word.pieces(range(word.vocab_size)) == [*SPECIALS, "b", "a", "c"]
    char = trained("char", ["ab b", "\n"])
    assert char.pieces(range(char.vocab_size)) == [*SPECIALS, "b", "\\n", "▁", "a"]


def test_char_keeps_even_what_it_saw_once_and_nothing_else() -> None:
    tokenizer = trained("char", ["é😀\n我"], min_freq=5)
    assert tokenizer.decode(tokenizer.encode("我é\n😀")) == "我é\n😀"
    assert tokenizer.encode("x") == [UNK_ID]


def test_more_than_thirty_thousand_words_are_kept() -> None:
    tokenizer = trained("word", [" ".join(f"w{number}" for number in range(31_000))], min_freq=1)
    assert tokenizer.vocab_size == len(SPECIALS) + 31_000


@given(text=ANY_TEXT)
def test_byte_ids_are_the_bytes_shifted_by_the_control_tokens(text: str) -> None:
    assert TRAINED["byte"].encode(text) == [len(SPECIALS) + byte for byte in text.encode()]


def test_bpe_keeps_to_its_size_and_always_has_all_bytes() -> None:
    assert trained("bpe", vocab_size=300).vocab_size == 300
    assert trained("bpe", [], vocab_size=300).vocab_size == 260
    assert trained("bpe", vocab_size=260).decode(TRAINED["byte"].encode("abc"))


def test_bpe_learns_chinese_words_without_spaces() -> None:
    tokenizer = trained("bpe", ["我吃苹果。", "苹果好吃！", "大苹果"] * 20, vocab_size=400)
    assert "苹果" in tokenizer.pieces(tokenizer.encode("我吃了苹果。"))


def test_bpe_pieces_show_spaces_and_halves_of_characters() -> None:
    tokenizer = trained("bpe", ["the cat the cat"] * 9, vocab_size=270)
    assert tokenizer.pieces(tokenizer.encode("the cat\né")) == ["the", "▁cat", "\\n", "\\xc3", "\\xa9"]


def test_half_a_character_decodes_to_a_replacement_sign() -> None:
    tokenizer = TRAINED["byte"]
    assert tokenizer.decode(tokenizer.encode("é")[:1]) == "\N{REPLACEMENT CHARACTER}"


# The pair.


@pytest.mark.parametrize("kind", KINDS)
def test_a_joint_pair_is_one_tokenizer_in_one_file(kind: str, tmp_path: Path) -> None:
    pair = TokenizerPair.train(TokenizerConfig(kind=kind, vocab_size=300, min_freq=1), TEXTS[1:2], TEXTS[0:1])
    pair.save(tmp_path)
    loaded = TokenizerPair.load(tmp_path)
    assert pair.joint and loaded.joint and loaded.source is loaded.target
    assert loaded.fingerprint() == pair.fingerprint()
    assert {path.name for path in tmp_path.iterdir()} == {"tokenizer.json", "tokenizer_config.json"}
    for text in TEXTS[:2]:
        assert loaded.source.decode(loaded.source.encode(text)) == text


@pytest.mark.parametrize("kind", KINDS)
def test_a_separate_pair_has_a_file_for_each_side(kind: str, tmp_path: Path) -> None:
    config = TokenizerConfig(kind=kind, vocab_size=300, min_freq=1, joint=False)
    pair = TokenizerPair.train(config, iter(TEXTS[1:2]), iter(TEXTS[2:3]))
    pair.save(tmp_path)
    loaded = TokenizerPair.load(tmp_path)
    assert not pair.joint and not loaded.joint
    assert (tmp_path / "target_tokenizer.json").exists()
    assert loaded.fingerprint() == pair.fingerprint()
    assert loaded.source.fingerprint() == pair.source.fingerprint()
    assert loaded.target.fingerprint() == pair.target.fingerprint()
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["joint"] is False
    if kind == "char":
        assert loaded.source.encode("我") == [UNK_ID] != loaded.target.encode("我")


def test_one_tokenizer_reads_both_files_of_a_pair(tmp_path: Path) -> None:
    pair = TokenizerPair.train(TokenizerConfig(kind="char", joint=False), ["ab"], ["xy"])
    pair.save(tmp_path)
    assert Tokenizer.load(tmp_path, "target_tokenizer").fingerprint() == pair.target.fingerprint()


# Mistakes.


def test_an_unknown_kind_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="'kind' = 'bpee': unknown tokenizer kind, did you mean 'bpe'"):
        build(TokenizerConfig, {"kind": "bpee"}, "tokenizer")
    with pytest.raises(ConfigError, match="choose from: bpe, byte, char, word"):
        build(TokenizerConfig, {"kind": "xyz"}, "tokenizer")


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="'vocab_size' = 100: input should be greater than or equal to 260"):
        build(TokenizerConfig, {"vocab_size": 100}, "tokenizer")
    with pytest.raises(ConfigError, match="'min_freq' = 0"):
        build(TokenizerConfig, {"min_freq": 0}, "tokenizer")


def test_training_on_nothing_says_so() -> None:
    with pytest.raises(DataError, match=r"^there is nothing to train a 'char' tokenizer on: no text$"):
        trained("char", [])
    with pytest.raises(DataError, match=r"on: no word occurs 2 times, lower min_freq$"):
        trained("word", ["all are different here"])


def test_a_folder_without_a_tokenizer_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"there is no tokenizer in .*: tokenizer_config.json is missing$"):
        Tokenizer.load(tmp_path)
    TRAINED["bpe"].save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(MissingInputError, match=r"tokenizer.json is missing$"):
        TokenizerPair.load(tmp_path)


@pytest.mark.parametrize("junk", [b"", b"{", b"{}", b"[]", b"\xff\xfe", b'{"version": "1.0"}', b"null", b"3"])
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_damaged_file_is_named_in_one_line(junk: bytes, name: str, tmp_path: Path) -> None:
    TRAINED["bpe"].save(tmp_path)
    (tmp_path / name).write_bytes(junk)
    with pytest.raises(StorageError, match=rf"{name} is damaged: ") as caught:
        Tokenizer.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_every_truncation_of_a_stored_tokenizer_is_noticed(tmp_path: Path) -> None:
    trained("char", ["ab"]).save(tmp_path)
    whole = (tmp_path / "tokenizer.json").read_bytes()
    for size in range(0, len(whole.rstrip()), 7):
        (tmp_path / "tokenizer.json").write_bytes(whole[:size])
        with pytest.raises(StorageError, match="is damaged"):
            Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("note", "message"),
    [
        ({"kind": "os.system"}, "unknown tokenizer kind 'os.system', choose from"),
        ({"kind": ["bpe"]}, "unknown tokenizer kind"),
        ({"format_version": 9}, "has format_version 9, this Clearhead reads 1: update it"),
    ],
)
def test_a_kind_or_version_we_do_not_know_is_refused(note: dict[str, object], message: str, tmp_path: Path) -> None:
    TRAINED["bpe"].save(tmp_path)
    notes = tmp_path / "tokenizer_config.json"
    notes.write_text(json.dumps({**json.loads(notes.read_text()), **note}))
    with pytest.raises(StorageError, match=message):
        Tokenizer.load(tmp_path)


def test_a_tokenizer_with_other_control_tokens_is_refused(tmp_path: Path) -> None:
    TRAINED["char"].save(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(path.read_text().replace("<blank>", "<other>"))
    with pytest.raises(StorageError, match="its first ids are not <s> </s> <blank> <unk>"):
        Tokenizer.load(tmp_path)


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot write .*tokenizer.json: No such file or directory"):
        TRAINED["byte"].save(tmp_path / "absent")


def test_a_folder_in_place_of_a_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").mkdir()
    with pytest.raises(StorageError, match=r"cannot read .*tokenizer_config.json: Is a directory"):
        Tokenizer.load(tmp_path)


def test_a_forked_process_can_tokenise_and_nobody_is_warned() -> None:
    program = (
        "import os, sys; from clearhead.text import *\n"
        "tokenizer = Tokenizer.train(TokenizerConfig(kind='byte'), [])\n"
        "tokenizer.encode_batch(['a'] * 100)\n"
        "pid = os.fork()\n"
        "tokenizer.encode_batch(['a'] * 100)\n"
        "if pid == 0: os._exit(0)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")


def test_torch_is_not_imported() -> None:
    program = "import sys, clearhead.text; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_in_small_letters_great_ones_are_the_same(kind: str, tmp_path: Path) -> None:
    texts = ["ein ärger, der NIE endet", "我 liebe ÄRGER"] * 3
    tokenizer = Tokenizer.train(TokenizerConfig(kind=kind, vocab_size=300, min_freq=1, lowercase=True), texts)
    tokenizer.save(tmp_path)
    for same in (tokenizer, Tokenizer.load(tmp_path), Tokenizer.from_text(tokenizer.as_text())):
        assert same.encode("Ein ÄRGER") == same.encode("ein ärger")
        assert same.decode(same.encode("Ein ÄRGER")) == "ein ärger"


def test_what_is_not_known_is_seen_where_a_text_is_spelt_as_it_is_read() -> None:
    words = Tokenizer.train(TokenizerConfig(kind="word", min_freq=2), ["the (old) dog, the (old) cat."] * 2)
    assert words.spelt(words.encode("the (old) bird, the new new cat.")) == " the (old) <unk>, the <unk> <unk> cat."
    assert words.spelt([]) == ""
    pieces = Tokenizer.train(TokenizerConfig(kind="bpe", vocab_size=300), ["the old dog the old cat"] * 9)
    for text in ("the old bird", " 了 the", "x"):
        assert pieces.spelt(pieces.encode(text)) == text
