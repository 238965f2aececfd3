"""GPT-2 in our language model says what it says in transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.export.hub import TEXTS, changed, read, rewrite, save_bpe, stirred, write

from clearhead.cli import run
from clearhead.errors import DataError, MissingInputError, StorageError
from clearhead.export import gpt2
from clearhead.export.downloaded import read_downloaded
from clearhead.models.gpt import Gpt
from clearhead.run.engines import load as load_any
from clearhead.run.exporting import export
from clearhead.run.importing import import_directory
from clearhead.run.using import load
from clearhead.text.specials import EOS_ID

transformers = pytest.importorskip("transformers", reason="compared with transformers where it is installed")
pytestmark = [pytest.mark.usefixtures("unchecked"), pytest.mark.filterwarnings("ignore")]

SHAPES: dict[str, dict[str, Any]] = {
    "usual": {},
    "other": {
        "n_layer": 3, "n_embd": 24, "n_head": 3, "n_inner": 20, "activation_function": "relu",
        "tie_word_embeddings": False, "layer_norm_epsilon": 1e-2,
    },
    "sharp": {"scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": False, "activation_function": "gelu"},
    "padded": {"more_rows": 7, "pad_token_id": 5, "bos_token_id": 6},
}  # fmt: skip


def gpt2_directory(path: Path, *, more_rows: int = 0, **settings: Any) -> Path:
    """A GPT-2 with random weights, as Hugging Face stores it."""
    path.mkdir()
    size = save_bpe(path)
    config = {
        "vocab_size": size + more_rows, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40,
        "eos_token_id": size - 1, "bos_token_id": size - 1,
    } | settings  # fmt: skip
    stirred(transformers.GPT2LMHeadModel(transformers.GPT2Config(**config))).save_pretrained(path)
    return path


@pytest.fixture(scope="module", params=SHAPES)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gpt2_directory(tmp_path_factory.mktemp("gpt2") / request.param, **SHAPES[request.param])


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gpt2_directory(tmp_path_factory.mktemp("gpt2") / "plain")


def test_scores_are_those_of_transformers(directory: Path) -> None:
    imported = read(directory)
    assert isinstance(imported.model, Gpt)
    assert gpt2.differences(directory, imported) < 1e-4


def test_greedy_outputs_are_those_of_transformers(directory: Path, tmp_path: Path) -> None:
    import_directory(directory, tmp_path / "model", check=False)
    ours, rows = load(tmp_path / "model", "cpu"), read(directory).rows["target"]
    original = transformers.GPT2LMHeadModel.from_pretrained(directory).eval()
    never = sorted({*rows[:4]})
    for text in TEXTS:
        prompt = ours.encode(text)[-20:]
        given = torch.tensor([[rows[index] for index in prompt]])
        said = original.generate(
            given, attention_mask=torch.ones_like(given), do_sample=False, max_new_tokens=16, suppress_tokens=never,
            pad_token_id=rows[EOS_ID],
        )[0, len(prompt) :].tolist()  # fmt: skip
        (found,) = ours.search([prompt], ours.configured(strategy="greedy", loop_guard=False, length=16))[0]
        assert [rows[index] for index in found.ids] == said, text


def test_texts_are_cut_as_transformers_cuts_them(directory: Path) -> None:
    imported = read(directory)
    assert imported.tokenizers is not None
    tokenizer, theirs = imported.tokenizers.source, transformers.AutoTokenizer.from_pretrained(directory)
    for text in TEXTS:
        ours = tokenizer.encode(text)
        assert [imported.rows["target"][index] for index in ours] == theirs(text)["input_ids"], text
        assert tokenizer.decode(ours) == text


def test_an_imported_model_is_a_model_like_any_other(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    assert run(["import", str(plain), "--out", str(model)]) == 0
    said = capsys.readouterr()
    assert said.out == "" and "a gpt from a gpt2 model" in said.err and "differ by at most" in said.err
    assert "left out" not in said.err
    assert run(["generate", "--model", str(model), "A fox", "--length", "8"]) == 0
    assert capsys.readouterr().out.strip("\n")
    (tmp_path / "text.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    assert run(["score", "--model", str(model), "--text", str(tmp_path / "text.txt"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["perplexity"] > 1
    assert run(["inspect", str(model), "A fox 😀", "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").is_file()
    assert "clearhead generate --model ." in (model / "README.md").read_text(encoding="utf-8")


def test_an_imported_model_is_shipped_as_our_own_are(plain: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="needs CTranslate2: pip install 'clearhead[export]'")
    import_directory(plain, tmp_path / "model", check=False)
    parity = export(tmp_path / "model", "ctranslate2", tmp_path / "copy", most=8)
    assert (parity.identical, parity.agreement) == (1.0, 1.0) and parity.logit_difference < 2e-4
    ours, copy = load(tmp_path / "model", "cpu"), load_any(tmp_path / "copy")
    assert copy.generate(TEXTS, length=8, strategy="greedy") == ours.generate(TEXTS, length=8, strategy="greedy")


def test_the_perplexity_of_a_text_is_that_of_transformers(plain: Path, tmp_path: Path) -> None:
    import_directory(plain, tmp_path / "model", check=False)
    ours, rows = load(tmp_path / "model", "cpu"), read(plain).rows["target"]
    original = transformers.GPT2LMHeadModel.from_pretrained(plain).eval()
    text = "A fox jumps over the film."
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    # The first token is asked for too: a text begins after the end of another.
    ids = torch.tensor([[rows[index] for index in (EOS_ID, *ours.encode(text))]])
    expected = original(ids, labels=ids).loss.item()
    assert ours.score(tmp_path / "text.txt").loss == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, {"strategy": "greedy"}),
        (
            {"do_sample": True, "top_k": 50, "temperature": 0.7},
            {"strategy": "sample", "loop_guard": False, "top_k": 50, "temperature": 0.7, "top_p": 1.0},
        ),
        (
            {"do_sample": True, "top_k": -1, "top_p": 2.0},
            {"strategy": "sample", "loop_guard": False, "top_k": 0, "temperature": 1.0, "top_p": 1.0},
        ),
        (None, {"strategy": "greedy"}),
    ],
    ids=["greedy", "sample", "off", "nothing said"],
)
def test_it_is_used_as_its_makers_use_it(
    plain: Path, tmp_path: Path, given: dict[str, Any] | None, wanted: dict[str, Any]
) -> None:
    copy = changed(plain, tmp_path, task_specific_params={"text-generation": given})
    assert read(copy).generation == wanted


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"do_sample": True, "top_p": -0.5}, "'top_p' = -0.5: input should be greater than 0"),
        ({"do_sample": True, "temperature": -1}, "'temperature' = -1.0: input should be greater than or equal to 0"),
        ({"do_sample": True, "temperature": "hot"}, "temperature = 'hot' should be a number"),
        ({"do_sample": True, "top_k": [5]}, "top_k = [5] should be a whole number"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_way_to_draw_that_is_none_is_refused_before_anything_is_written(
    plain: Path, tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    copy = changed(plain, tmp_path)
    rewrite(copy / "generation_config.json", given)
    with pytest.raises(DataError) as error:
        import_directory(copy, tmp_path / "model", check=False)
    assert str(error.value) == f"{copy / 'generation_config.json'}: {said}"
    assert not (tmp_path / "model").exists()


# Older files and others' ---------------------------------------------------------------------------------------------


def test_names_without_their_first_part_and_tensors_that_are_no_weights_are_known(plain: Path, tmp_path: Path) -> None:
    copy = changed(plain, tmp_path, architectures=None)
    tensors = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    old = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    old |= {"h.0.attn.bias": torch.ones(1, 1, 4, 4), "h.0.attn.masked_bias": torch.tensor(-1e4)}
    save_file({name: tensor.half() for name, tensor in old.items()}, copy / "model.safetensors")
    downloaded = read_downloaded(copy)
    found = gpt2.import_gpt2(downloaded).model.state_dict()
    assert downloaded.left_out == []
    for name, tensor in read(plain).model.state_dict().items():
        torch.testing.assert_close(found[name], tensor, atol=2e-3, rtol=0)


def test_what_has_no_place_is_named(plain: Path, tmp_path: Path) -> None:
    copy = changed(plain, tmp_path)
    tensors = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    save_file({**tensors, "multiple_choice_head.summary.weight": torch.ones(1, 16)}, copy / "model.safetensors")
    report = import_directory(copy, tmp_path / "model", check=False)
    note = "left out, for our gpt has no place for it: multiple_choice_head.summary.weight"
    assert report.notes == (note,)
    assert f"- {note}" in (tmp_path / "model" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"architectures": ["GPT2ForSequenceClassification"]}, DataError, "is a GPT2ForSequenceClassification, and no"),
        ({"add_cross_attention": True}, DataError, "add_cross_attention = True is nothing that our model can have"),
        ({"activation_function": "mish"}, DataError, "its activation 'mish' is none of relu, "),
        ({"n_layer": 5}, DataError, "has no tensor transformer.h.2."),
        ({"n_layer": "2"}, DataError, "config.json: n_layer = '2' should be a whole number"),
        ({"n_head": 0}, DataError, "config.json: 'num_heads' = 0: input should be greater than or equal to 1"),
        ({"n_head": 3}, DataError, "config.json: dim 16 cannot be cut into 3 heads"),
        ({"activation_function": ["relu"]}, DataError, "config.json: activation_function = ['relu'] should be a text"),
        ({"task_specific_params": [1]}, DataError, "config.json: task_specific_params = [1] should be an object"),
        ({"eos_token_id": [None]}, DataError, "config.json: eos_token_id = [None] should be a whole number"),
        ({"eos_token_id": 10**6}, DataError, "its eos_token_id 1000000 is not among the "),
        ({"n_positions": 41}, StorageError, "1 of another shape (first: decoder.positions.weight)"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_shape_that_is_not_ours_is_refused(
    plain: Path, tmp_path: Path, settings: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as raised:
        read(changed(plain, tmp_path, **settings))
    assert said in str(raised.value)


def test_a_pickle_is_refused_with_the_way_to_convert_it_and_its_heads(plain: Path, tmp_path: Path) -> None:
    copy = changed(plain, tmp_path)
    (copy / "model.safetensors").unlink()
    (copy / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(DataError, match=r"only as a pickle .* import GPT2LMHeadModel as A; A\.from_pretrained"):
        read(copy)
    write(copy / "config.json", {"model_type": "gpt2", "architectures": ["x; rm -rf /"]})
    with pytest.raises(DataError, match="import AutoModel as A"):
        read(copy)


def test_without_a_tokenizer_there_is_no_model(plain: Path, tmp_path: Path) -> None:
    copy = changed(plain, tmp_path)
    (copy / "tokenizer.json").unlink()
    with pytest.raises(MissingInputError, match=r"neither tokenizer\.json nor vocab\.json and merges\.txt"):
        read(copy)
