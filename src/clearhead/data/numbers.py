"""A whole number comes in, its German, English or Chinese words go out, and back; a language is one class and one line.

Conventions: English has no "and" and no commas (one hundred five); German is one word below a million and says
einhundert, eintausend, eine Million; Chinese says 二, never 两, and 十 for 一十 only at the start (十二, 一百一十二).
"""

from __future__ import annotations

import re
from typing import Protocol

from clearhead.errors import DataError, choose

LARGEST = 999_999_999


def spell(number: int, language: str) -> str:
    """Write a number from 0 to 999,999,999 in words.

    >>> spell(23, "de"), spell(23, "en"), spell(23, "zh")
    ('dreiundzwanzig', 'twenty-three', '二十三')
    """
    speller = choose(LANGUAGES, language, "number language")
    if not 0 <= number <= LARGEST:
        raise DataError(f"{number} cannot be spelled: numbers go from 0 to {LARGEST:,}")
    return speller.spell(number)


def read(words: str, language: str) -> int:
    """The number that `spell` writes as exactly these words.

    >>> read("eine Million zweihunderttausenddrei", "de")
    1200003
    """
    speller = choose(LANGUAGES, language, "number language")
    try:
        number = speller.read(words)
        if number <= LARGEST and speller.spell(number) == words:
            return number
    except (ValueError, KeyError):
        pass
    raise DataError(f"'{words}' is not a number from 0 to {LARGEST:,} in '{language}' words")


class Speller(Protocol):
    """What a language knows; `read` may raise ValueError or accept too much: its answer is spelled and compared."""

    def spell(self, number: int) -> str: ...

    def read(self, words: str) -> int: ...


class English:
    """twenty-three; one million two hundred thousand three."""

    def spell(self, number: int) -> str:
        if number < 20:
            return _ENGLISH[number]
        if number < 100:
            tens, ones = divmod(number, 10)
            return f"{_ENGLISH_TENS[tens - 2]}-{_ENGLISH[ones]}" if ones else _ENGLISH_TENS[tens - 2]
        scale, name = next((scale, name) for name, scale in _ENGLISH_SCALES.items() if number >= scale)
        count, rest = divmod(number, scale)
        return f"{self.spell(count)} {name}" + (f" {self.spell(rest)}" if rest else "")

    def read(self, words: str) -> int:
        values = {word: value for value, word in enumerate(_ENGLISH)}
        values.update({word: 10 * value for value, word in enumerate(_ENGLISH_TENS, start=2)})
        total = below = 0
        for word in re.split("[ -]", words):
            if word == "hundred":
                below *= 100
            elif word in _ENGLISH_SCALES:
                total, below = total + below * _ENGLISH_SCALES[word], 0
            else:
                below += values[word]
        return total + below


class German:
    """dreiundzwanzig; eine Million zweihunderttausenddrei; einhunderteine Millionen."""

    def spell(self, number: int) -> str:
        millions, rest = divmod(number, 1_000_000)
        if not millions:
            return self._word(rest, "eins")
        noun = "Million" if millions == 1 else "Millionen"
        return f"{self._word(millions, 'eine')} {noun}" + (f" {self._word(rest, 'eins')}" if rest else "")

    def _word(self, number: int, one: str) -> str:
        """A number below a million; `one` is what a final 1 is called here."""
        for scale, name in ((1_000, "tausend"), (100, "hundert")):
            count, rest = divmod(number, scale)
            if count:
                return f"{self._word(count, 'ein')}{name}" + (self._word(rest, one) if rest else "")
        if number < 20:
            return one if number == 1 else _GERMAN[number]
        tens, ones = divmod(number, 10)
        return f"{self._word(ones, 'ein')}und{_GERMAN_TENS[tens - 2]}" if ones else _GERMAN_TENS[tens - 2]

    def read(self, words: str) -> int:
        if " Million" not in words:
            return self._read_word(words)
        millions, _, rest = words.replace(" Millionen", " Million").partition(" Million")
        return 1_000_000 * self._read_word(millions) + (self._read_word(rest.strip()) if rest else 0)

    def _read_word(self, word: str) -> int:
        """What stands before tausend or hundert multiplies, what stands before und adds."""
        for scale, name in ((1_000, "tausend"), (100, "hundert")):
            count, found, rest = word.partition(name)
            if found:
                return scale * self._read_word(count) + (self._read_word(rest) if rest else 0)
        ones, found, tens = word.partition("und")
        if found:
            return self._read_word(ones) + self._read_word(tens)
        if word in _GERMAN_TENS:
            return 10 * _GERMAN_TENS.index(word) + 20
        return 1 if word in ("ein", "eine") else _GERMAN.index(word)


class Chinese:
    """二十三; 一千零一十; 十万零三百; 一亿零一."""

    def spell(self, number: int) -> str:
        words, needs_zero = "", False
        for scale, name in ((100_000_000, "亿"), (10_000, "万"), (1, "")):
            group = number // scale % 10_000
            if group:
                has_gap = bool(words) and (needs_zero or group < 1_000)
                words += ("零" if has_gap else "") + self._group(group) + name
            needs_zero = bool(words) and not group
        return (words.removeprefix("一") if words.startswith("一十") else words) or "零"

    def _group(self, group: int) -> str:
        """One to four digits: a run of zeros between digits is said once, zeros at the end are not said."""
        words, needs_zero = "", False
        for unit, name in ((1_000, "千"), (100, "百"), (10, "十"), (1, "")):
            digit = group // unit % 10
            if digit:
                words += ("零" if needs_zero else "") + _CHINESE[digit] + name
            needs_zero = bool(words) and not digit
        return words

    def read(self, words: str) -> int:
        units = {"千": 1_000, "百": 100, "十": 10}
        groups = {"亿": 100_000_000, "万": 10_000}
        total = group = digit = 0
        for sign in words:
            if sign in units:
                group, digit = group + (digit or 1) * units[sign], 0
            elif sign in groups:
                total, group, digit = total + (group + digit) * groups[sign], 0, 0
            else:
                digit = _CHINESE.index(sign)
        return total + group + digit


_ENGLISH = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
]
_ENGLISH_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_ENGLISH_SCALES = {"million": 1_000_000, "thousand": 1_000, "hundred": 100}
_GERMAN = [
    *("null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf"),
    *("dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn"),
]
_GERMAN_TENS = ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]
_CHINESE = "零一二三四五六七八九"

LANGUAGES: dict[str, Speller] = {"de": German(), "en": English(), "zh": Chinese()}
