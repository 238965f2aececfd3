"""Number words against a hand-made list, and there and back again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.data.numbers import LANGUAGES, LARGEST, read, spell
from clearhead.errors import ConfigError, DataError

KNOWN = [
    (0, "null", "zero", "零"),
    (1, "eins", "one", "一"),
    (7, "sieben", "seven", "七"),
    (10, "zehn", "ten", "十"),
    (11, "elf", "eleven", "十一"),
    (12, "zwölf", "twelve", "十二"),
    (16, "sechzehn", "sixteen", "十六"),
    (17, "siebzehn", "seventeen", "十七"),
    (20, "zwanzig", "twenty", "二十"),
    (21, "einundzwanzig", "twenty-one", "二十一"),
    (23, "dreiundzwanzig", "twenty-three", "二十三"),
    (30, "dreißig", "thirty", "三十"),
    (44, "vierundvierzig", "forty-four", "四十四"),
    (60, "sechzig", "sixty", "六十"),
    (67, "siebenundsechzig", "sixty-seven", "六十七"),
    (71, "einundsiebzig", "seventy-one", "七十一"),
    (99, "neunundneunzig", "ninety-nine", "九十九"),
    (100, "einhundert", "one hundred", "一百"),
    (101, "einhunderteins", "one hundred one", "一百零一"),
    (105, "einhundertfünf", "one hundred five", "一百零五"),
    (110, "einhundertzehn", "one hundred ten", "一百一十"),
    (112, "einhundertzwölf", "one hundred twelve", "一百一十二"),
    (121, "einhunderteinundzwanzig", "one hundred twenty-one", "一百二十一"),
    (200, "zweihundert", "two hundred", "二百"),
    (999, "neunhundertneunundneunzig", "nine hundred ninety-nine", "九百九十九"),
    (1_000, "eintausend", "one thousand", "一千"),
    (1_001, "eintausendeins", "one thousand one", "一千零一"),
    (1_010, "eintausendzehn", "one thousand ten", "一千零一十"),
    (1_100, "eintausendeinhundert", "one thousand one hundred", "一千一百"),
    (1_200, "eintausendzweihundert", "one thousand two hundred", "一千二百"),
    (2_001, "zweitausendeins", "two thousand one", "二千零一"),
    (10_000, "zehntausend", "ten thousand", "一万"),
    (10_001, "zehntausendeins", "ten thousand one", "一万零一"),
    (10_010, "zehntausendzehn", "ten thousand ten", "一万零一十"),
    (12_345, "zwölftausenddreihundertfünfundvierzig", "twelve thousand three hundred forty-five", "一万二千三百四十五"),
    (21_000, "einundzwanzigtausend", "twenty-one thousand", "二万一千"),
    (100_000, "einhunderttausend", "one hundred thousand", "十万"),
    (100_300, "einhunderttausenddreihundert", "one hundred thousand three hundred", "十万零三百"),
    (101_000, "einhunderteintausend", "one hundred one thousand", "十万一千"),
    (110_000, "einhundertzehntausend", "one hundred ten thousand", "十一万"),
    (120_012, "einhundertzwanzigtausendzwölf", "one hundred twenty thousand twelve", "十二万零一十二"),
    (1_000_000, "eine Million", "one million", "一百万"),
    (1_000_001, "eine Million eins", "one million one", "一百万零一"),
    (1_200_003, "eine Million zweihunderttausenddrei", "one million two hundred thousand three", "一百二十万零三"),
    (2_000_000, "zwei Millionen", "two million", "二百万"),
    (10_000_000, "zehn Millionen", "ten million", "一千万"),
    (21_000_000, "einundzwanzig Millionen", "twenty-one million", "二千一百万"),
    (100_000_000, "einhundert Millionen", "one hundred million", "一亿"),
    (100_000_001, "einhundert Millionen eins", "one hundred million one", "一亿零一"),
    (100_001_000, "einhundert Millionen eintausend", "one hundred million one thousand", "一亿零一千"),
    (100_010_000, "einhundert Millionen zehntausend", "one hundred million ten thousand", "一亿零一万"),
    (101_000_000, "einhunderteine Millionen", "one hundred one million", "一亿零一百万"),
    (110_000_000, "einhundertzehn Millionen", "one hundred ten million", "一亿一千万"),
    (
        999_999_999,
        "neunhundertneunundneunzig Millionen neunhundertneunundneunzigtausendneunhundertneunundneunzig",
        "nine hundred ninety-nine million nine hundred ninety-nine thousand nine hundred ninety-nine",
        "九亿九千九百九十九万九千九百九十九",
    ),
]
PIECES = ["eins", "ein", "eine", "zwei", "zehn", "zwanzig", "und", "hundert", "tausend", " Million", " Millionen", " "]
PIECES += ["one", "two", "ten", "twenty", "hundred", "thousand", "million", "-", " "]


@pytest.mark.parametrize(("number", "german", "english", "chinese"), KNOWN, ids=[str(row[0]) for row in KNOWN])
def test_words_are_those_people_write(number: int, german: str, english: str, chinese: str) -> None:
    assert (spell(number, "de"), spell(number, "en"), spell(number, "zh")) == (german, english, chinese)
    assert read(german, "de") == read(english, "en") == read(chinese, "zh") == number


@pytest.mark.parametrize("language", LANGUAGES)
def test_small_numbers_come_back_and_no_two_share_their_words(language: str) -> None:
    words = [spell(number, language) for number in range(20_001)]
    assert len(set(words)) == len(words)
    assert [read(word, language) for word in words] == list(range(20_001))


@pytest.mark.parametrize("language", LANGUAGES)
@settings(deadline=None)
@given(number=st.integers(0, LARGEST))
def test_every_number_comes_back(language: str, number: int) -> None:
    assert read(spell(number, language), language) == number


@pytest.mark.parametrize("language", LANGUAGES)
@settings(deadline=None)
@given(words=st.text("零一二三十百千万亿") | st.lists(st.sampled_from(PIECES), max_size=6).map("".join))
def test_words_are_read_only_if_they_are_spelled_so(language: str, words: str) -> None:
    try:
        number = read(words, language)
    except DataError as error:
        assert "is not a number from 0 to 999,999,999" in str(error)
    else:
        assert spell(number, language) == words


@pytest.mark.parametrize(
    ("words", "language"),
    [
        ("", "de"),
        ("", "en"),
        ("", "zh"),
        ("one hundred and five", "en"),
        ("two-twenty", "en"),
        ("hundert", "de"),
        ("zwei Million", "de"),
        ("eins Million", "de"),
        ("zwanzigunddrei", "de"),
        ("一十", "zh"),
        ("两百", "zh"),
        ("一万一", "zh"),
        ("九九", "zh"),
        ("two thousand million", "en"),
    ],
)
def test_other_spellings_are_refused(words: str, language: str) -> None:
    with pytest.raises(DataError, match=f"'{words}' is not a number from 0 to 999,999,999 in '{language}' words"):
        read(words, language)


@pytest.mark.parametrize("number", [-1, LARGEST + 1])
def test_numbers_out_of_range_are_refused(number: int) -> None:
    with pytest.raises(DataError, match=f"{number} cannot be spelled: numbers go from 0 to 999,999,999"):
        spell(number, "en")


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown number language 'fr': choose from: de, en, zh"):
        spell(1, "fr")
