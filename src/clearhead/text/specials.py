"""The four control tokens, which have the same names and the same ids in every tokenizer."""

from __future__ import annotations

SPECIALS = ("<s>", "</s>", "<blank>", "<unk>")
BOS_ID, EOS_ID, PAD_ID, UNK_ID = range(4)
BOS, EOS, PAD, UNK = SPECIALS
