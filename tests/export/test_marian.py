"""Marian models in our translator say what they say in transformers."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.export.hub import changed, read

from clearhead.checkpoint import load_model
from clearhead.cli import run
from clearhead.data.numbers import spell
from clearhead.errors import DataError, MissingInputError, ParityError, UnavailableError, WouldOverwriteError
from clearhead.export import marian
from clearhead.export.huggingface import find_family
from clearhead.export.imported import Imported
from clearhead.models.translator import Translator
from clearhead.run import importing
from clearhead.run.engines import load as load_any
from clearhead.run.exporting import export
from clearhead.run.importing import import_directory
from clearhead.run.using import load

spm = pytest.importorskip("sentencepiece", reason="compared with transformers where it is installed")
transformers = pytest.importorskip("transformers", reason="compared with transformers where it is installed")
pytestmark = [pytest.mark.usefixtures("unchecked"), pytest.mark.filterwarnings("ignore")]

SHAPES: dict[str, dict[str, Any]] = {
    "opus": {"activation_function": "swish", "scale_embedding": True},
    "odd": {"activation_function": "relu", "encoder_layers": 1, "decoder_layers": 3, "d_model": 24, "bias": False},
    "separate": {"activation_function": "gelu", "share_encoder_decoder_embeddings": False, "scale_embedding": True},
}
TEXTS = {
    language: [spell(number, language) for number in range(1, 260)] + [f"{spell(n, language)}!" for n in range(9)]
    for language in ("de", "en")
}


def spm_model(path: Path, texts: list[str]) -> list[str]:
    file = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=file, vocab_size=70, hard_vocab_limit=False, minloglevel=2,
        num_threads=1,
    )  # fmt: skip
    path.write_bytes(file.getvalue())
    theirs = spm.SentencePieceProcessor(model_file=str(path))
    return [theirs.id_to_piece(index) for index in range(3, theirs.get_piece_size())]


def marian_directory(path: Path, *, bias: bool = True, **settings: Any) -> Path:
    """A Marian model with random weights, as Hugging Face stores it."""
    path.mkdir()
    source, target = (spm_model(path / f"{side}.spm", TEXTS[language]) for side, language in
                      (("source", "de"), ("target", "en")))  # fmt: skip
    shared = settings.get("share_encoder_decoder_embeddings", True)
    sides = [[*source[:-2], *target], []] if shared else [source, target]
    files = {}
    for file, pieces in zip(("vocab.json", "target_vocab.json"), sides, strict=True):
        tokens = list(dict.fromkeys(["</s>", "<unk>", *pieces, ">>eng<<", "<pad>"]))
        files[file] = {token: index for index, token in enumerate(tokens)}
        (path / file).write_text(json.dumps(files[file]), encoding="utf-8")
    sizes = [len(vocabulary) for vocabulary in files.values()]
    padding = sizes[0] - 1
    config = {
        "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20, "max_position_embeddings": 64,
        "pad_token_id": padding, "decoder_start_token_id": padding, "eos_token_id": 0, "forced_eos_token_id": None,
        "vocab_size": sizes[0],
    } | settings  # fmt: skip
    if not shared:
        # Both sides have the same ids for control tokens, as the config has only one of each.
        size = max(sizes)
        for file, vocabulary in files.items():
            extended = {token: index for token, index in vocabulary.items() if token != "<pad>"}
            extended |= {f"unused{index}": index for index in range(len(extended), size - 1)} | {"<pad>": size - 1}
            (path / file).write_text(json.dumps(extended), encoding="utf-8")
        config |= {"vocab_size": size, "decoder_vocab_size": size}
        config |= {"pad_token_id": size - 1, "decoder_start_token_id": size - 1}
    torch.manual_seed(4)
    model = transformers.MarianMTModel(transformers.MarianConfig(**config)).eval()
    for name, tensor in model.named_parameters():
        if "embed_positions" not in name:
            tensor.data.normal_(1.0 if "norm.weight" in name else 0.0, 0.4)
    if bias:
        model.final_logits_bias.normal_()
    model.generation_config.num_beams = 3
    model.save_pretrained(path)
    return path


@pytest.fixture(scope="module", params=SHAPES)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return marian_directory(tmp_path_factory.mktemp("marian") / request.param, **SHAPES[request.param])


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return marian_directory(tmp_path_factory.mktemp("marian") / "plain", activation_function="swish")


def test_scores_are_those_of_transformers(directory: Path) -> None:
    imported = read(directory)
    assert isinstance(imported.model, Translator)
    assert imported.model.config.residual == "post"
    assert marian.differences(directory, imported) < 1e-4


def test_greedy_outputs_are_those_of_transformers(directory: Path, tmp_path: Path) -> None:
    import_directory(directory, tmp_path / "model", check=False)
    ours = load(tmp_path / "model", "cpu")
    tokenizer = transformers.MarianTokenizer(
        *(str(directory / f"{side}.spm") for side in ("source", "target")), str(directory / "vocab.json")
    )
    original = transformers.MarianMTModel.from_pretrained(directory).eval()
    rows = read(directory).rows["target"]
    unknown, padding = rows[3], rows[2]
    for text in ["zwei", "dreiundzwanzig", "hunderteins!", "zweihundert zwei", "acht"]:
        inputs = tokenizer([text], return_tensors="pt")
        said = original.generate(
            **inputs, num_beams=1, do_sample=False, max_new_tokens=20, suppress_tokens=[unknown, padding]
        )[0, 1:].tolist()
        (ids,) = ours.encode([text], 0)
        config = ours.configured(strategy="greedy", loop_guard=False, min_len=0, max_len=20)
        (found,) = ours.search([ids], config)[0]
        expected = [rows[index] for index in found.ids] + ([0] if found.finished else [])
        assert expected[:20] == said[:20]


def test_texts_are_cut_as_transformers_cuts_them(directory: Path, tmp_path: Path) -> None:
    imported = read(directory)
    assert imported.tokenizers is not None
    separate = {"separate_vocabs": True} if "separate" in directory.name else {}
    tokenizer = transformers.MarianTokenizer(
        *(str(directory / f"{side}.spm") for side in ("source", "target")),
        str(directory / "vocab.json"),
        str(directory / "target_vocab.json"),
        **separate,
    )
    texts = ["zwei", "einhundertdreiundzwanzig", "acht  acht", "twenty-three", "unbekannt Ж", "neun!", ">>eng<< zwei"]
    for text in [*texts, *TEXTS["de"][::20]]:
        ours = imported.tokenizers.source.encode(text)
        assert [imported.rows["source"][index] for index in ours] == tokenizer(text)["input_ids"][:-1], text
    for text in TEXTS["en"][::20]:
        ours = imported.tokenizers.target.encode(text)
        theirs = tokenizer(text_target=text)["input_ids"][:-1]
        assert [imported.rows["target"][index] for index in ours] == theirs, text
        assert imported.tokenizers.target.decode(ours).strip() == text


def test_an_imported_model_is_a_model_like_any_other(plain: Path, tmp_path: Path) -> None:
    report = import_directory(plain, tmp_path / "model")
    assert (report.kind, report.family) == ("translator", "marian")
    assert report.difference is not None and report.difference < 1e-4
    stored = load_model(tmp_path / "model")
    assert stored.generation == {"strategy": "beam", "beam_size": 3, "length_penalty": 1.0}
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert "a marian model" in card and f"at most {report.difference:.2g}" in card
    translator = load(tmp_path / "model", "cpu")
    assert isinstance(translator.translate("dreiundzwanzig"), str)
    assert len(translator.inspect("zwei").view["heads"]) == 12


def test_an_imported_model_is_shipped_as_our_own_are(plain: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="needs CTranslate2: pip install 'clearhead[export]'")
    import_directory(plain, tmp_path / "model", check=False)
    parity = export(tmp_path / "model", "ctranslate2", tmp_path / "copy")
    # Also the entries that only we have, which score far below all others, are the same to the last digits.
    assert (parity.identical, parity.agreement) == (1.0, 1.0) and parity.logit_difference < 2e-4
    copy = load_any(tmp_path / "copy")
    sources = TEXTS["de"][::40]
    assert copy.translate(sources, beam_size=1) == load(tmp_path / "model", "cpu").translate(sources, beam_size=1)


def test_the_command_says_what_it_did(plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", str(plain), "--out", str(tmp_path / "model")]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert f"{tmp_path / 'model'}: a translator from a marian model" in said.err
    assert "its scores differ by at most" in said.err
    assert run(["import", str(plain), "--out", str(tmp_path / "model")]) == WouldOverwriteError.exit_code


# What is refused -----------------------------------------------------------------------------------------------------


def test_a_pickle_is_refused_with_the_way_to_convert_it(plain: Path, tmp_path: Path) -> None:
    copy = changed(plain, tmp_path)
    (copy / "model.safetensors").unlink()
    with pytest.raises(MissingInputError, match=r"has no model\.safetensors$"):
        find_family(copy)
    (copy / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(DataError) as error:
        find_family(copy)
    assert str(error.value) == (
        f"{copy} has its weights only as a pickle (pytorch_model.bin), which can run code when read: if you trust it, "
        f'convert it once with `python -c "from transformers import MarianMTModel as A; '
        f"A.from_pretrained('{copy}').save_pretrained('{copy}')\"`"
    )


def test_a_file_that_is_a_pickle_is_refused_in_the_same_way(plain: Path, tmp_path: Path) -> None:
    copy = changed(plain, tmp_path)
    for name in ("pytorch_model.bin", "model.pt"):
        (copy / name).write_bytes(b"\x80\x04.")
        with pytest.raises(DataError) as error:
            find_family(copy / name)
        assert str(error.value) == (
            f"{copy / name} is a pickle, which can run code when read: import {copy}, which has model.safetensors"
        )
    (copy / "model.safetensors").unlink()
    with pytest.raises(
        DataError, match=r"only as a pickle \(model\.pt\), .* import MarianMTModel as A; A\.from_pretrained"
    ):
        find_family(copy / "model.pt")
    (copy / "config.json").unlink()
    with pytest.raises(DataError, match=r"with transformers, into a directory with its config\.json$"):
        find_family(copy / "model.pt")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"decoder_attention_heads": 4}, "its encoder and decoder have different attention_heads"),
        ({"decoder_ffn_dim": 7}, "its encoder and decoder have different ffn_dim"),
        ({"activation_function": "tanh"}, "its activation 'tanh' is none of relu, gelu, "),
        ({"decoder_layers": 5}, "has no tensor model.decoder.layers.2.self_attn.q_proj.weight"),
        ({"pad_token_id": 10**6}, "does not go with its config.json"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_shape_that_is_not_ours_is_refused(plain: Path, tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError) as error:
        read(changed(plain, tmp_path, **settings))
    assert said in str(error.value)


def test_another_family_is_refused_with_those_that_there_are(plain: Path, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"is a model of the family 't5'; what can be imported: .*marian"):
        read(changed(plain, tmp_path, model_type="t5"))
    with pytest.raises(MissingInputError, match=r"it has no config\.json"):
        read(tmp_path)


def test_a_model_that_says_something_else_is_not_written(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family, downloaded = find_family(plain)

    def wrong(downloaded: Any) -> Imported:
        imported = family.read(downloaded)
        imported.model.get_parameter("encoder.blocks.0.attention.query.weight").data.mul_(1.1)
        return imported

    monkeypatch.setattr(importing, "find_family", lambda path: (family._replace(read=wrong), downloaded))
    with pytest.raises(ParityError, match="was not written, for it is not the same: its scores differ by up to"):
        import_directory(plain, tmp_path / "model")
    assert not (tmp_path / "model").exists()
