"""A BERT as Hugging Face stores it in, our BERT or classifier with the same weights and tokenizer out.

Its vocabulary is reordered, for our control tokens come first: [CLS], [SEP], [PAD] and [UNK] are <s>, </s>, <blank> and
<unk>. [MASK] is the vector that stands in a gap, and stays an entry, for it has a score like all others. One without
the heads that a BERT of ours may have is an encoder: to be looked into, and to train a classifier on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.checkpoint import named_tensors, restore_model
from clearhead.config import build
from clearhead.errors import DataError
from clearhead.export.downloaded import WEIGHTS, Downloaded
from clearhead.export.imported import Imported
from clearhead.export.names import encoder_sizes, in_block, labels_of
from clearhead.export.original import LENGTHS, load_original
from clearhead.export.vocabulary import NEVER, Vocabulary, reordered
from clearhead.models.bert import SEGMENTS, Bert, BertConfig
from clearhead.models.classifier import Classifier, ClassifierConfig
from clearhead.text.renumbered import read_tokenizer, renumbered
from clearhead.text.specials import BOS_ID, EOS_ID, SPECIALS
from clearhead.text.tokenizer import Tokenizer, TokenizerPair

PARTS = {
    "attention.query": "attention.self.query",
    "attention.key": "attention.self.key",
    "attention.value": "attention.self.value",
    "attention.output": "attention.output.dense",
    "around_attention.norm": "attention.output.LayerNorm",
    "around_feedforward.norm": "output.LayerNorm",
    "feedforward.inner": "intermediate.dense",
    "feedforward.outer": "output.dense",
}
OUTSIDE = {
    "encoder.positions.weight": "embeddings.position_embeddings.weight",
    "encoder.first_norm.weight": "embeddings.LayerNorm.weight",
    "encoder.first_norm.bias": "embeddings.LayerNorm.bias",
}
CONTROLS = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
"""In the order of ours."""
OLD_NORMS = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
"""What the first BERTs call the two parts of a norm."""
GUESSES = "cls.predictions.transform"
FOLLOWS = "cls.seq_relationship"
TURNED = [1, 0]
"""With it, the first of two scores means that what follows follows; with us, the second."""
DEFAULTS: dict[str, Any] = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
    "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "max_position_embeddings": 512,
    "type_vocab_size": 2, "layer_norm_eps": 1e-12,
}  # fmt: skip
"""What transformers take where a config says nothing."""


def import_bert(downloaded: Downloaded) -> Imported:
    """Read a BERT, or what was trained on one to label texts, and its WordPiece tokenizer."""
    downloaded.refuse({"is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute"})
    get = {name: downloaded.setting(name, default) for name, default in DEFAULTS.items()}
    theirs = read_tokenizer(downloaded.path, "wordpiece")
    controls = [theirs.control(name, usual) for name, usual in CONTROLS.items()]
    mask = theirs.control("mask_token", "[MASK]")
    size = len(_tensor(downloaded, "embeddings.word_embeddings.weight"))
    vocabulary = reordered(theirs.ids, size, controls, downloaded.path)
    tokenizer = Tokenizer("wordpiece", renumbered(theirs, vocabulary.entries))
    shape = _shape(downloaded, get, len(vocabulary.entries))
    if downloaded.architecture.endswith("ForSequenceClassification"):
        model: Bert | Classifier = _classifier(downloaded, shape, vocabulary)
        notes = []
    else:
        model = _bert(downloaded, shape, vocabulary, mask)
        notes = _missing(model.config)
    pair = TokenizerPair(tokenizer, tokenizer)
    rows: dict[str, Sequence[int]] = {"source": vocabulary.rows, "mask": [mask]}
    verb = "inspect" if isinstance(model, Bert) and not model.config.fills_gaps else None
    return Imported(model.eval(), pair, None, rows, notes, verb)


def _missing(config: BertConfig) -> list[str]:
    notes = []
    if not config.fills_gaps:
        notes.append("it has no head that names hidden words, so it fills no gaps: look inside it, or train on it")
    if not config.next_sentence:
        notes.append("it has no head that tells whether one sentence follows another")
    return notes


def _shape(downloaded: Downloaded, get: dict[str, Any], size: int) -> dict[str, Any]:
    """What both kinds have in common."""
    return {
        "vocab_size": size,
        **encoder_sizes(get),
        "embedding_norm": True,
        "residual": "post",
        "feedforward": downloaded.feedforward("hidden_act", "gelu"),
        "positions": "learned",
        "scale_embeddings": False,
        "max_len": get["max_position_embeddings"],
        "num_segments": get["type_vocab_size"],
    }


def _classifier(downloaded: Downloaded, shape: dict[str, Any], vocabulary: Vocabulary) -> Classifier:
    weight, bias = (downloaded.tensor(f"classifier.{leaf}") for leaf in ("weight", "bias"))
    if len(weight) < 2 or downloaded.config.get("problem_type") not in (None, "single_label_classification"):
        raise DataError(f"{downloaded.path} does not answer with one of several labels, as our classifier does")
    tree = {**shape, "labels": labels_of(downloaded.setting("id2label", {}), len(weight)), "pooling": "first_tanh"}
    model = Classifier(build(ClassifierConfig, tree, str(downloaded.path / "config.json")))
    found = {
        **_encoder(model, downloaded, vocabulary),
        "pooling.dense.weight": _tensor(downloaded, "pooler.dense.weight"),
        "pooling.dense.bias": _tensor(downloaded, "pooler.dense.bias"),
        "output.weight": weight,
        "output.bias": bias,
    }
    restore_model(model, found, downloaded.path / WEIGHTS)
    return model


def _bert(downloaded: Downloaded, shape: dict[str, Any], vocabulary: Vocabulary, mask: int) -> Bert:
    fills_gaps = downloaded.has(f"{GUESSES}.dense.weight")
    heads = {"fills_gaps": fills_gaps, "output_bias": fills_gaps, "next_sentence": downloaded.has(f"{FOLLOWS}.weight")}
    if fills_gaps and shape["feedforward"] != "gelu":
        raise DataError(f"{downloaded.path}: its head bends by {downloaded.config['hidden_act']}, and ours by gelu")
    model = Bert(build(BertConfig, {**shape, **heads}, str(downloaded.path / "config.json")))
    table = _tensor(downloaded, "embeddings.word_embeddings.weight")
    found = {**_encoder(model, downloaded, vocabulary), "mask.weight": table[[mask]]}
    if fills_gaps:
        found |= _guesses(downloaded, table, vocabulary)
    if model.config.next_sentence:
        for leaf in ("weight", "bias"):
            found[f"pooler.{leaf}"] = _tensor(downloaded, f"pooler.dense.{leaf}")
            found[f"next.{leaf}"] = downloaded.tensor(f"{FOLLOWS}.{leaf}")[TURNED]
    restore_model(model, found, downloaded.path / WEIGHTS)
    return model


def _guesses(downloaded: Downloaded, table: Tensor, vocabulary: Vocabulary) -> dict[str, Tensor]:
    """The head that names hidden words."""
    decoder = "cls.predictions.decoder"
    if downloaded.has(f"{decoder}.weight") and not torch.equal(downloaded.tensor(f"{decoder}.weight"), table):
        raise DataError(f"{downloaded.path}: its output layer has a table of its own, and ours the embedding's")
    bias = downloaded.tensor("cls.predictions.bias", f"{decoder}.bias")[vocabulary.rows]
    found = {"output.bias": bias.index_fill(0, torch.tensor(vocabulary.extra, dtype=torch.long), NEVER)}
    for leaf in ("weight", "bias"):
        found[f"transform.{leaf}"] = downloaded.tensor(f"{GUESSES}.dense.{leaf}")
        found[f"norm.{leaf}"] = _tensor(downloaded, f"{GUESSES}.LayerNorm.{leaf}")
    return found


def _encoder(model: Bert | Classifier, downloaded: Downloaded, vocabulary: Vocabulary) -> dict[str, Tensor]:
    """All that reads."""
    found = {"embedding.weight": _tensor(downloaded, "embeddings.word_embeddings.weight")[vocabulary.rows]}
    if model.segments is not None:
        found["segments.weight"] = _tensor(downloaded, "embeddings.token_type_embeddings.weight")
    for name in named_tensors(model):
        if name.startswith("encoder."):
            found[name] = _tensor(downloaded, in_block(name, "encoder.layer", PARTS) or OUTSIDE[name])
    return found


def _tensor(downloaded: Downloaded, name: str) -> Tensor:
    """A tensor by any of its names: a model without heads leaves the first part out."""
    names = [f"bert.{name}", name]
    for new, old in OLD_NORMS.items():
        names += [one.replace(new, old) for one in names if new in one]
    return downloaded.tensor(*names)


# Beside the original -------------------------------------------------------------------------------------------------


@torch.inference_mode()
def differences(path: Path, imported: Imported) -> float:
    """The largest difference of a score on random ids, or of a feature where there are none, beside transformers."""
    model = imported.model
    assert isinstance(model, Bert | Classifier)
    original = load_original(
        path, _original_kind(model), **({} if _has_scores(model) else {"add_pooling_layer": False})
    )
    rows, (mask,) = torch.tensor(imported.rows["source"]), imported.rows["mask"]
    chance = torch.Generator().manual_seed(1)
    largest = 0.0
    for length in LENGTHS:
        ids = torch.randint(len(SPECIALS), len(rows), (4, length), generator=chance)
        ids[:, 0], ids[:, -1] = BOS_ID, EOS_ID
        ids = ids[:, : model.config.max_len]
        if isinstance(model, Classifier):
            pairs = [(original(input_ids=rows[ids]).logits, model(ids))]
        else:
            hidden = torch.rand(ids.shape, generator=chance) < 0.3
            entries = min(SEGMENTS, model.config.segment_entries)
            segments = torch.randint(max(1, entries), ids.shape, generator=chance)
            given = {"input_ids": rows[ids].masked_fill(hidden, mask), "token_type_ids": segments}
            pairs = _asked(model, original(**given, output_hidden_states=True), ids, hidden, segments, rows)
        largest = max([largest, *(float((theirs - ours).abs().max()) for theirs, ours in pairs)])
    return largest


def _asked(
    model: Bert, said: Any, ids: Tensor, hidden: Tensor, segments: Tensor, rows: Tensor
) -> list[tuple[Tensor, Tensor]]:
    """What a BERT can be asked: the original's answers beside ours."""
    x = model.encode(ids, hidden, segments if model.segments is not None else None)
    pairs = [(said.hidden_states[-1], x)]
    if model.config.fills_gaps:
        scores = model.named(x.flatten(0, 1)).unflatten(0, ids.shape)
        theirs = said.prediction_logits if model.config.next_sentence else said.logits
        is_common = scores > NEVER / 2
        pairs.append((theirs[..., rows][is_common], scores[is_common]))
    if model.config.next_sentence:
        theirs = said.seq_relationship_logits if model.config.fills_gaps else said.logits
        pairs.append((theirs[:, TURNED], model.follows(x[:, 0])))
    return pairs


def _has_scores(model: Bert | Classifier) -> bool:
    return isinstance(model, Classifier) or model.config.fills_gaps or model.config.next_sentence


def _original_kind(model: Bert | Classifier) -> str:
    """The class of transformers that has the heads that were found."""
    if isinstance(model, Classifier):
        return "BertForSequenceClassification"
    heads = (model.config.fills_gaps, model.config.next_sentence)
    return {
        (True, True): "BertForPreTraining",
        (True, False): "BertForMaskedLM",
        (False, True): "BertForNextSentencePrediction",
        (False, False): "BertModel",
    }[heads]
