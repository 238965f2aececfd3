"""BERT in our BERT and classifier says what it says in transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.export.hub import TEXTS, changed, read, save_wordpiece, stirred

from clearhead.checkpoint import load_model
from clearhead.cli import run
from clearhead.errors import ConfigError, DataError
from clearhead.export import bert
from clearhead.models.bert import Bert
from clearhead.models.classifier import Classifier
from clearhead.run.importing import import_directory
from clearhead.run.using import load

transformers = pytest.importorskip("transformers", reason="compared with transformers where it is installed")
pytestmark = [pytest.mark.usefixtures("unchecked"), pytest.mark.filterwarnings("ignore")]

SHAPES: dict[str, dict[str, Any]] = {
    "BertForPreTraining": {},
    "BertForMaskedLM": {"num_hidden_layers": 3, "hidden_size": 24, "num_attention_heads": 3, "layer_norm_eps": 1e-2},
    "BertForNextSentencePrediction": {"intermediate_size": 9, "hidden_act": "gelu_new", "lower": False},
    "BertModel": {"hidden_act": "relu", "type_vocab_size": 1},
    "BertForSequenceClassification": {"num_labels": 3, "more_rows": 5},
}


def bert_directory(path: Path, kind: str, *, lower: bool = True, more_rows: int = 0, **settings: Any) -> Path:
    """A BERT with random weights, as Hugging Face stores it."""
    path.mkdir()
    size = save_wordpiece(path, lower=lower)
    config = {
        "vocab_size": size + more_rows, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 20, "max_position_embeddings": 40,
    } | settings  # fmt: skip
    stirred(getattr(transformers, kind)(transformers.BertConfig(**config))).save_pretrained(path)
    return path


@pytest.fixture(scope="module", params=SHAPES)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert_directory(tmp_path_factory.mktemp("bert") / request.param, request.param, **SHAPES[request.param])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert_directory(tmp_path_factory.mktemp("bert") / "whole", "BertForPreTraining")


@pytest.fixture(scope="module")
def headless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert_directory(tmp_path_factory.mktemp("bert") / "headless", "BertModel")


@pytest.fixture(scope="module")
def labelling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    labels = {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}}
    return bert_directory(tmp_path_factory.mktemp("bert") / "labels", "BertForSequenceClassification", **labels)


def test_scores_are_those_of_transformers(directory: Path) -> None:
    imported = read(directory)
    assert isinstance(imported.model, Classifier if "Classification" in directory.name else Bert)
    assert bert.differences(directory, imported) < 1e-4


def test_texts_are_cut_as_transformers_cuts_them(directory: Path) -> None:
    imported = read(directory)
    assert imported.tokenizers is not None
    theirs = transformers.AutoTokenizer.from_pretrained(directory)
    for text in TEXTS:
        ours = imported.tokenizers.source.encode(text)
        expected = theirs(text, add_special_tokens=False, truncation=False)["input_ids"]
        assert [imported.rows["source"][index] for index in ours] == expected, text


@torch.inference_mode()
def test_what_it_fills_in_is_what_transformers_fills_in(whole: Path, tmp_path: Path) -> None:
    import_directory(whole, tmp_path / "model", check=False)
    ours, rows = load(tmp_path / "model", "cpu"), read(whole).rows["source"]
    theirs = transformers.AutoTokenizer.from_pretrained(whole)
    original = transformers.BertForPreTraining.from_pretrained(whole).eval()
    never = [*rows[:4]]
    for text in ["The [MASK] film.", "我[MASK]了一个[MASK]。", "[MASK] fox [MASK] over 😀", "A film to [MASK]"]:
        given = theirs(text, return_tensors="pt", truncation=False)
        gaps = given["input_ids"][0] == theirs.mask_token_id
        scores = original(**given).prediction_logits[0, gaps].index_fill(-1, torch.tensor(never), -torch.inf)
        found = torch.as_tensor(ours.log_probs(ours.encode(text)))
        assert [rows[index] for index in found.argmax(-1).tolist()] == scores.argmax(-1).tolist(), text
        torch.testing.assert_close(found, scores.log_softmax(-1)[:, rows], atol=1e-4, rtol=0)


@torch.inference_mode()
def test_padding_and_segments_are_those_of_transformers(whole: Path) -> None:
    imported, original = read(whole), transformers.BertModel.from_pretrained(whole).eval()
    assert isinstance(imported.model, Bert)
    ids = torch.randint(4, len(imported.rows["source"]), (3, 7), generator=torch.Generator().manual_seed(0))
    real, segments = torch.arange(7) < torch.tensor([[7], [4], [2]]), (torch.arange(7) > 2).long().expand(3, 7)
    theirs = original(
        input_ids=torch.tensor(imported.rows["source"])[ids], attention_mask=real.long(), token_type_ids=segments
    ).last_hidden_state
    found = imported.model.encode(ids, None, segments, real=real)
    torch.testing.assert_close(found[real], theirs[real], atol=1e-4, rtol=0)


def test_a_whole_bert_fills_gaps_and_is_looked_into(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    assert run(["import", str(whole), "--out", str(model)]) == 0
    said = capsys.readouterr()
    assert said.out == "" and "a bert from a bert model" in said.err and "no head" not in said.err
    assert run(["fill", "--model", str(model), "The [MASK] film.", "--json"]) == 0
    (gap,) = json.loads(capsys.readouterr().out)["gaps"]
    assert len(gap) == 5
    assert run(["inspect", str(model), "The [MASK] film.", "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").is_file()


def test_an_encoder_without_heads_is_looked_into_and_says_what_it_cannot_do(
    headless: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    assert run(["import", str(headless), "--out", str(model)]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "it has no head that names hidden words, so it fills no gaps" in said
    assert "it has no head that tells whether one sentence follows another" in said
    assert "left out, for our bert has no place for it: pooler.dense.bias, pooler.dense.weight" in said
    card = (model / "README.md").read_text(encoding="utf-8")
    assert "Use it: `clearhead inspect .`" in card and "- it has no head that names hidden words" in card
    assert run(["inspect", str(model), "The quick film.", "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").is_file()
    capsys.readouterr()
    assert run(["fill", "--model", str(model), "The [MASK] film."]) == ConfigError.exit_code
    assert "this BERT has no head that names hidden words (fills_gaps = false)" in capsys.readouterr().err


def test_a_classifier_can_be_trained_on_an_encoder_without_heads(
    headless: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import_directory(headless, tmp_path / "model", check=False)
    known = {"good": "The fox jumps", "bad": "the worst film"}
    rows = [f"{text} {number}\t{label}" for number in range(20) for label, text in known.items()]
    (tmp_path / "data.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n", encoding="utf-8")
    out = tmp_path / "run"
    command = [
        "train", "classifier", "--tsv", str(tmp_path / "data.tsv"), "--out", str(out), "--set", "train.steps=2",
        "--set", f"init={tmp_path / 'model'}", "--set", "train.warmup=1",
    ]  # fmt: skip
    assert run(command) == 0, capsys.readouterr().err
    config = load_model(out).model.config
    assert (config.embedding_norm, config.norm_eps, config.num_segments, config.residual) == (True, 1e-12, 2, "post")


def test_what_was_trained_to_label_is_a_classifier(
    labelling: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    assert run(["import", str(labelling), "--out", str(model)]) == 0
    assert "a classifier from a bert model" in capsys.readouterr().err
    original = transformers.BertForSequenceClassification.from_pretrained(labelling).eval()
    theirs = transformers.AutoTokenizer.from_pretrained(labelling)
    expected = []
    for text in TEXTS:
        with torch.inference_mode():
            logits = original(**theirs(text, return_tensors="pt", truncation=False)).logits[0]
        expected.append(logits.softmax(-1).tolist())
    assert run(["classify", "--model", str(model), "--json", *TEXTS]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["label"] for row in found] == [("bad", "good")[bad < good] for bad, good in expected]
    for row, (bad, good) in zip(found, expected, strict=True):
        assert row["probabilities"] == pytest.approx({"bad": bad, "good": good}, abs=1e-4)
    lines = [f"{text}\tgood" for text in TEXTS]
    (tmp_path / "test.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n", encoding="utf-8")
    assert run(["score", "--model", str(model), "--tsv", str(tmp_path / "test.tsv"), "--json"]) == 0
    right = sum(row["label"] == "good" for row in found)
    assert json.loads(capsys.readouterr().out)["accuracy"] == pytest.approx(right / len(TEXTS))
    assert run(["inspect", str(model), "A fox.", "--out", str(tmp_path / "page.html")]) == 0


def test_old_names_of_norms_are_known(whole: Path, tmp_path: Path) -> None:
    copy = changed(whole, tmp_path)
    tensors = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in tensors.items()
    }
    assert len(old.keys() - tensors.keys()) == 12
    save_file({**old, "bert.embeddings.position_ids": torch.arange(40)[None]}, copy / "model.safetensors")
    found = read(copy).model.state_dict()
    for name, tensor in read(whole).model.state_dict().items():
        assert torch.equal(found[name], tensor), name


def test_letters_stay_large_where_the_tokenizer_says_so(tmp_path: Path) -> None:
    path = bert_directory(tmp_path / "cased", "BertModel", lower=False)
    imported = read(path)
    assert imported.tokenizers is not None
    tokenizer = imported.tokenizers.source
    assert tokenizer.encode("The fox") != tokenizer.encode("the fox")
    assert tokenizer.decode(tokenizer.encode("The fox")) == "The fox"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"is_decoder": True}, "is_decoder = True is nothing that our model can have, only False"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type = 'relative_key' is nothing"),
        ({"hidden_act": "relu"}, "its head bends by relu, and ours by gelu"),
        ({"hidden_act": "tanh"}, "its activation 'tanh' is none of"),
        ({"num_hidden_layers": 4}, "has no tensor bert.encoder.layer.2."),
        ({"model_type": "t5"}, "what can be imported: marian, gpt2, bert, vit"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_shape_that_is_not_ours_is_refused(whole: Path, tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(Exception) as error:
        read(changed(whole, tmp_path, **settings))
    assert said in str(error.value)


@pytest.mark.parametrize("settings", [{"problem_type": "multi_label_classification"}, {"problem_type": "regression"}])
def test_answers_that_are_not_one_of_several_labels_are_refused(
    labelling: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    with pytest.raises(DataError, match="does not answer with one of several labels"):
        read(changed(labelling, tmp_path, **settings))


def test_an_output_layer_with_a_table_of_its_own_is_refused(whole: Path, tmp_path: Path) -> None:
    copy = changed(whole, tmp_path)
    tensors = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    table = tensors["bert.embeddings.word_embeddings.weight"]
    save_file({**tensors, "cls.predictions.decoder.weight": table + 1}, copy / "model.safetensors")
    with pytest.raises(DataError, match="its output layer has a table of its own"):
        read(copy)
