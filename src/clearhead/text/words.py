"""Text in, words and punctuation out and back: the regular expressions of the `word` tokenizer.

A punctuation mark that touched its neighbour says so with a joiner: `well-known, he said` becomes the words
`well ￭-￭ known ￭, he said`, so the way back is exact and no word exists twice (the convention of OpenNMT's tokenizer).
Chinese characters, kana and their punctuation stand one by one and need no joiner: no space is ever put beside them.
"""

from __future__ import annotations

from tokenizers import Regex, decoders, normalizers, pre_tokenizers

JOINER = "￭"

# Han, kana, CJK punctuation and full-width forms; neither the ideographic space U+3000 nor the joiner U+FFED.
CJK = r"\p{Han}\u3001-\u303f\u3041-\u30ff\uff01-\uff60"
_WORD = rf"\p{{L}}\p{{M}}\p{{N}}\p{{Cf}}_&&[^{CJK}]"
_MARK = rf"^\s{CJK}{JOINER}\p{{L}}\p{{M}}\p{{N}}\p{{Cf}}_"

# What looks like punctuation and is not: 3.14, 10:30, O'Brien, and the inside of an ellipsis.
_NOT_BEFORE_A_MARK = r"(?!(?<=\p{N})[.,:]\p{N})(?!(?<=\p{L})['’]\p{L})(?!(?<=\.)\.)"
_NOT_AFTER_A_MARK = r"(?!(?<=\p{N}[.,:])\p{N})(?!(?<=\p{L}['’])\p{L})"

_ENDING = r"(?<=\p{L})(?=(?i:n['’]t|['’](?:s|re|ve|ll|d|m))(?![\p{L}\p{N}]))"
_BEFORE_A_MARK = rf"(?<=[^\s{CJK}{JOINER}]){_NOT_BEFORE_A_MARK}(?=[{_MARK}])"
_AFTER_A_MARK = rf"(?<=[{_MARK}]){_NOT_AFTER_A_MARK}(?=[{_WORD}&&[^\p{{M}}]])"
_BESIDE_CJK = rf"(?<=[{CJK}])(?=\S)|(?<=\S)(?=[{CJK}])"


def joiner_marks() -> normalizers.Normalizer:
    """Put spaces where a word ends, and joiners on marks and endings that touched a word."""
    return normalizers.Sequence(
        [
            normalizers.Replace(JOINER, "■"),
            normalizers.Replace(Regex(_BEFORE_A_MARK), f" {JOINER}"),
            normalizers.Replace(Regex(_AFTER_A_MARK), f"{JOINER} "),
            normalizers.Replace(Regex(_ENDING), f" {JOINER}"),
            normalizers.Replace(Regex(_BESIDE_CJK), " "),
        ]
    )


def spaces() -> pre_tokenizers.PreTokenizer:
    """Split at white space and drop it."""
    return pre_tokenizers.Split(Regex(r"\s+"), "removed")


def joined_words() -> decoders.Decoder:
    """Join words with spaces, except where a joiner or a Chinese character says otherwise."""
    return decoders.Sequence(
        [
            decoders.WordPiece(prefix=JOINER, cleanup=False),
            decoders.Fuse(),
            decoders.Replace(f"{JOINER} ", ""),
            decoders.Replace(JOINER, ""),
            decoders.Replace(Regex(rf"(?<=[{CJK}]) | (?=[{CJK}])"), ""),
        ]
    )
