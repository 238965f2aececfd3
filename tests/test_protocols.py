"""Published protocols: what they do to text is what their papers did, and the signature says so."""

from __future__ import annotations

import builtins
from typing import Any

import pytest
import sacrebleu

from clearhead.errors import ConfigError, UnavailableError
from clearhead.protocols import PROTOCOLS, score_like, tokenizer_of, words

HYPOTHESES = ["A man is riding a bike .", "Two dogs run through the snow, fast."]
REFERENCES = ["A man is riding a bike.", "Two dogs are running through the snow."]


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pretend that a package is not installed."""

    def hide(package: str) -> None:
        real = builtins.__import__

        def absent(name: str, *arguments: Any, **keywords: Any) -> Any:
            if name.split(".")[0] == package:
                raise ImportError(name)
            return real(name, *arguments, **keywords)

        monkeypatch.setattr(builtins, "__import__", absent)

    return hide


def installed(protocol: str) -> None:
    if protocol == "wu2021":
        pytest.importorskip("sacremoses", reason="needs Moses' tokenizer: pip install sacremoses")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_identical_text_scores_a_hundred_whatever_its_case(protocol: str) -> None:
    installed(protocol)
    found = score_like(protocol, [text.upper() for text in REFERENCES], REFERENCES)
    assert found.bleu == pytest.approx(100)
    assert found.signature.endswith(f"like:{protocol}")
    assert "case:lc" in found.signature


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_spaces_before_punctuation_do_not_matter(protocol: str) -> None:
    installed(protocol)
    assert score_like(protocol, HYPOTHESES[:1] * 2, REFERENCES[:1] * 2).bleu == pytest.approx(100)


@pytest.mark.parametrize("code", ["EN", "en-GB", "en_US"])
def test_a_language_is_the_same_however_its_code_is_written(code: str) -> None:
    installed("wu2021")
    assert tokenizer_of("wu2021", code)[0]("he can't") == tokenizer_of("wu2021", "en")[0]("he can't") == "he can 't"


def test_the_score_is_corpus_bleu_of_lower_cased_tokens(without: Any) -> None:
    without("spacy")
    found = score_like("bentrevett", HYPOTHESES, REFERENCES)
    oracle = sacrebleu.corpus_bleu(
        [words(text.lower()) for text in HYPOTHESES],
        [[words(text.lower()) for text in REFERENCES]],
        tokenize="none",
        smooth_method="none",
        force=True,
    )
    assert found.bleu == pytest.approx(oracle.score)
    assert "tok:words" in found.signature


def test_without_moses_one_line_says_what_to_install(without: Any) -> None:
    without("sacremoses")
    with pytest.raises(UnavailableError, match="pip install sacremoses"):
        score_like("wu2021", HYPOTHESES, REFERENCES)


def test_an_unknown_protocol_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown protocol 'wu2020': did you mean 'wu2021'"):
        score_like("wu2020", HYPOTHESES, REFERENCES)


CAPTIONS = {
    "a man's dog.": "a man 's dog .",
    "they don't look, do they?": "they do n't look , do they ?",
    "a t-shirt and well-known hat": "a t - shirt and well - known hat",
    "ein mann fährt rad.": "ein mann fährt rad .",
}


@pytest.mark.parametrize("text", CAPTIONS)
def test_captions_are_cut_into_words_and_marks(text: str) -> None:
    assert words(text) == CAPTIONS[text]


def test_words_are_cut_as_spacy_cuts_captions() -> None:
    spacy = pytest.importorskip("spacy", reason="compared with spaCy where it is installed")
    for text, tokens in CAPTIONS.items():
        assert " ".join(token.text for token in spacy.blank("en")(text)) == tokens
