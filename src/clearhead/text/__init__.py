"""Strings in, token ids out, and back: word, bpe, char and byte tokenizers on Hugging Face `tokenizers`."""

from clearhead.text.kinds import TOKENIZERS, TokenizerConfig
from clearhead.text.specials import BOS_ID, EOS_ID, PAD_ID, SPECIALS, UNK_ID
from clearhead.text.tokenizer import Tokenizer, TokenizerPair

__all__ = [
    "BOS_ID",
    "EOS_ID",
    "PAD_ID",
    "SPECIALS",
    "TOKENIZERS",
    "UNK_ID",
    "Tokenizer",
    "TokenizerConfig",
    "TokenizerPair",
]
