"""Two hundred random texts in many scripts: what is recorded is what the projections say, and nothing else changes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import pytest
import torch
from tests.inspection.made_up_views import small_view
from tests.inspection.test_page import Elements, stored_view
from torch import Tensor, nn

from clearhead.inspection.page import page_html
from clearhead.inspection.record import Tape, kind_and_layer, recording
from clearhead.models.translator import Translator
from clearhead.nn.attention import Attention
from clearhead.nn.masks import real_tokens
from clearhead.text.specials import BOS_ID, EOS_ID, PAD_ID
from clearhead.text.tokenizer import TokenizerPair

pytestmark = pytest.mark.usefixtures("unchecked")

SCRAPS = [
    "Ein Mann ",
    "我吃了苹果。",
    "👩‍🚀🚀",
    "שלום ",
    "مرحبا ",
    "<script>alert(1)</script>",
    "</s>",
    "<s> ",
    "&amp;",
    "a",
]
ROWS, BATCHES = 10, 20


def texts(chance: random.Random) -> list[list[int]]:
    """Rows of one batch, each from 1 to 100 tokens with its control token, as lengths of bytes."""
    rows = []
    for _ in range(ROWS):
        text = "".join(chance.choices(SCRAPS, k=40)).encode()
        rows.append([4 + byte for byte in text[: chance.choice([0, 1, 5, 20, chance.randrange(99), 99])]])
    return rows


def padded(rows: list[list[int]]) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[PAD_ID] * (width - len(row))] for row in rows])


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    chance = random.Random(7)
    for _ in range(BATCHES):
        source = padded([[*row, EOS_ID] for row in texts(chance)])
        yield source, padded([[BOS_ID, *row] for row in texts(chance)])


def recomputed(query: Tensor, key: Tensor, num_heads: int, allowed: Tensor) -> Tensor:
    """Softmax over what may be seen, in double precision, from the outputs of the two projections."""
    heads = [side.double().view(*side.shape[:2], num_heads, -1).permute(0, 2, 1, 3) for side in (query, key)]
    scores = torch.einsum("bhqd,bhkd->bhqk", *heads) / math.sqrt(heads[0].shape[-1])
    powers = (scores - scores.amax(-1, keepdim=True)).exp() * allowed
    return powers / powers.sum(-1, keepdim=True).clamp(min=1e-300)


def projections(model: Translator) -> dict[str, Tensor]:
    heard: dict[str, Tensor] = {}
    for path, module in model.named_modules():
        if isinstance(module, nn.Linear) and path.endswith((".query", ".key")):
            module.register_forward_hook(lambda _, inputs, output, path=path: heard.update({path: output}))
    return heard


def check(model: Translator, tape: Tape, heard: dict[str, Tensor], source: Tensor, target: Tensor) -> None:
    source_real, target_real = real_tokens(source, PAD_ID), real_tokens(target, PAD_ID)
    past = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).tril()
    allowed = {"encoder": source_real[:, None, None], "cross": source_real[:, None, None], "decoder": past[None, None]}
    looking = {"encoder": source_real, "cross": target_real, "decoder": target_real}
    paths = [path for path, module in model.named_modules() if isinstance(module, Attention)]
    assert len(tape.looks) == len(paths)
    for path in paths:
        kind, layer = kind_and_layer(path)
        weights = tape.of(kind)[layer].weights
        assert float(weights.masked_fill(allowed[kind], 0.0).abs().max()) == 0.0, "what is hidden gets nothing"
        sums = weights.sum(-1).transpose(1, 2)[looking[kind]]
        torch.testing.assert_close(sums, torch.ones_like(sums), atol=1e-5, rtol=0)
        expected = recomputed(heard[f"{path}.query"], heard[f"{path}.key"], 4, allowed[kind])
        assert float((weights - expected).abs().max()) < 1e-5


def test_recorded_weights_are_those_of_the_projections(make: Callable[..., Translator]) -> None:
    model = make()
    heard = projections(model)
    count = 0
    with torch.no_grad():
        for source, target in batches():
            real = real_tokens(source, PAD_ID), real_tokens(target, PAD_ID)
            outside = model(source, target, *real)
            with recording(model) as tape:
                inside = model(source, target, *real)
            check(model, tape, heard, source, target)
            seen = real[1]
            torch.testing.assert_close(inside[seen], outside[seen], atol=2e-5, rtol=1e-5)
            count += len(source)
    assert count == 200


def test_the_page_holds_random_texts_as_text() -> None:
    """Two hundred texts, ten in a page: the page has the same elements whatever the tokens say, and says just that."""
    chance = random.Random(8)
    plain = [tag for tag, _, _ in Elements(page_html(small_view())).found]
    for _ in range(BATCHES):
        view = small_view()
        tokens = [token for side in view["tokens"].values() for token in side]
        for token in tokens[:ROWS]:
            token["text"] = "".join(chance.choices(SCRAPS, k=chance.randint(1, 40)))
        document = page_html(view)
        assert [tag for tag, _, _ in Elements(document).found] == plain
        assert stored_view(document) == view


def test_typed_markup_and_control_tokens_are_text(tokenizers: TokenizerPair) -> None:
    from clearhead.inspection.tokens import tokens_of

    ids = tokenizers.source.encode("</s><script>")
    assert "".join(token.text for token in tokens_of(tokenizers.source, ids)) == "</s><script>"
    assert not any(token.special for token in tokens_of(tokenizers.source, ids))
    assert [token.special for token in tokens_of(tokenizers.source, [0, 1, 2, 3])] == [True, True, True, False]
