"""A translator or a language model in, the files of a CTranslate2 model out.

What CTranslate2's specification can say, is said exactly.

Heads that share keys, and heads that were pruned, are written out in full (the pruned ones as zeros): CTranslate2 wants
the same heads in every layer. What ALiBi and a window add to a score of a translator depends on distance only, and is
written as a table with one entry for each distance.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from clearhead.engines.extras import needed
from clearhead.errors import UnavailableError
from clearhead.export.graphs import blocks_of
from clearhead.models.gpt import Gpt, GptConfig
from clearhead.models.translator import Translator, TranslatorConfig
from clearhead.nn.attention import Attention
from clearhead.nn.feedforward import FeedForward, SwiGlu
from clearhead.nn.norms import Norm
from clearhead.nn.positions import Alibi, Learned, Rotary, Sinusoidal
from clearhead.nn.stacks import Block, Stack
from clearhead.text.specials import BOS, EOS, UNK
from clearhead.text.tokenizer import TokenizerPair

Array = NDArray[np.float32]
Config: TypeAlias = TranslatorConfig | GptConfig

NORMS = ("layer", "rms")
RESIDUALS = ("pre", "post")
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH", "swiglu": "SWISH"}
"""Our feed-forwards, and the bend in each by CTranslate2's name."""
HIDDEN = -1e9
"""What is added to the score of a key that may not be seen."""
LARGEST = 63
"""Of an int8 weight. With 127, a CPU that adds two products up in 16 bits (AVX2 without VNNI) would cut off the sum."""


def check_expressible(config: Config) -> None:
    """Refuse what CTranslate2's specification cannot say, with the reason."""
    reasons = []
    for norm in dict.fromkeys((config.norm, _decoder_norm(config))):
        if norm not in NORMS:
            reasons.append(f"it has no norm '{norm}' (only {', '.join(NORMS)})")
    if config.residual not in RESIDUALS:
        reasons.append(f"it always has a way around a sublayer, and residual is '{config.residual}'")
    if config.feedforward not in ACTIVATIONS:
        reasons.append(f"it has no feed-forward '{config.feedforward}' (only {', '.join(ACTIVATIONS)})")
    if config.window is not None and config.positions in ("sinusoidal", "learned"):
        reasons.append(f"it cannot combine a window with {config.positions} positions")
    elif config.window is not None and isinstance(config, GptConfig):
        reasons.append("it has no window in language models")
    if reasons:
        raise UnavailableError(f"CTranslate2 cannot express this model: {'; '.join(reasons)}; --to onnx can")


def write_translator(model: Translator, tokenizers: TokenizerPair, directory: Path, quantize: str | None) -> None:
    """Write `model.bin`, its config.json and its vocabularies; int8 keeps matrices in a quarter of the space."""
    needed("ctranslate2")
    from ctranslate2.specs import TransformerSpec

    config = model.config
    check_expressible(config)
    encoder, decoder = _encoder_spec(config, model.encoder), _decoder_spec(config, model.decoder, config.decoder_layers)
    spec = TransformerSpec(encoder, decoder)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = UNK, BOS, EOS
    spec.config.decoder_start_token, spec.config.add_source_eos = BOS, True
    encoder.scale_embeddings = decoder.scale_embeddings = config.scale_embeddings
    encoder.embeddings[0].weight = _array(model.source_embedding.weight)
    decoder.embeddings.weight = _array(model.target_embedding.weight)
    decoder.projection.weight = _array(model.output.weight)
    if model.output.bias is not None:
        decoder.projection.bias = _array(model.output.bias)
    _fill_stack(encoder, model.encoder, config)
    _fill_stack(decoder, model.decoder, config)
    spec.register_source_vocabulary(tokenizers.source.tokens())
    spec.register_target_vocabulary(tokenizers.target.tokens())
    _save(spec, directory, quantize)


def write_gpt(model: Gpt, tokenizers: TokenizerPair, directory: Path, quantize: str | None) -> None:
    """Write `model.bin`, its config.json and its vocabulary; int8 keeps matrices in a quarter of the space."""
    needed("ctranslate2")
    from ctranslate2.specs import TransformerDecoderModelSpec

    config = model.config
    check_expressible(config)
    decoder = _decoder_spec(config, model.decoder, config.num_layers, looks_across=False)
    spec = TransformerDecoderModelSpec(decoder)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = UNK, BOS, EOS
    spec.config.layer_norm_epsilon = blocks_of(model.decoder)[0].around_attention.norm.eps
    decoder.scale_embeddings = config.scale_embeddings
    decoder.embeddings.weight = _array(model.embedding.weight)
    decoder.projection.weight = _array(model.output.weight)
    if model.output.bias is not None:
        decoder.projection.bias = _array(model.output.bias)
    _fill_stack(decoder, model.decoder, config)
    spec.register_vocabulary(tokenizers.source.tokens())
    _save(spec, directory, quantize)


def _save(spec: Any, directory: Path, quantize: str | None) -> None:
    if quantize == "int8":
        _shrink(spec)
    spec.validate()
    spec.optimize()
    spec.save(str(directory))


def _shrink(spec: Any) -> None:
    """Store every matrix as bytes and one scale for each of its rows."""
    from ctranslate2.specs.model_spec import visit_spec

    def shrink(layer: Any, name: str, value: Any) -> None:
        if name.endswith("/weight") and hasattr(layer, "weight_scale"):
            highest = np.abs(value).max(1)
            layer.weight_scale = (LARGEST / np.where(highest > 0, highest, LARGEST)).astype(np.float32)
            layer.weight = np.rint(value * layer.weight_scale[:, None]).astype(np.int8)

    visit_spec(spec, shrink)


def _encoder_spec(config: TranslatorConfig, stack: Stack) -> Any:
    from ctranslate2.specs import TransformerEncoderSpec

    return TransformerEncoderSpec(config.encoder_layers, config.num_heads, **_stack_options(config, stack, config.norm))


def _decoder_spec(config: Config, stack: Stack, num_layers: int, *, looks_across: bool = True) -> Any:
    from ctranslate2.specs import TransformerDecoderSpec

    options = _stack_options(config, stack, _decoder_norm(config))
    options["alibi"] = isinstance(config, GptConfig) and isinstance(stack.positions, Alibi)
    return TransformerDecoderSpec(num_layers, config.num_heads, with_encoder_attention=looks_across, **options)


def _decoder_norm(config: Config) -> str:
    return (config.decoder_norm if isinstance(config, TranslatorConfig) else None) or config.norm


def _stack_options(config: Config, stack: Stack, norm: str) -> dict[str, Any]:
    from ctranslate2.specs import Activation

    head_dim = config.dim // config.num_heads
    is_rotary = isinstance(stack.positions, Rotary)
    return {
        "pre_norm": config.residual == "pre",
        "activation": Activation[ACTIVATIONS[config.feedforward]],
        "ffn_glu": config.feedforward == "swiglu",
        "rms_norm": norm == "rms",
        "relative_attention_bias": _bias_by_distance(config, stack) is not None,
        "rotary_dim": head_dim - head_dim % 2 if is_rotary else None,
        "rotary_interleave": False,
    }


def _fill_stack(spec: Any, stack: Stack, config: Config) -> None:
    if (table := _position_table(stack, config)) is not None:
        spec.position_encodings.encodings = table
    if stack.final_norm is not None:
        _fill_norm(spec.layer_norm, stack.final_norm)
    by_distance = _bias_by_distance(config, stack)
    for layer, block in zip(spec.layer, stack.blocks, strict=True):
        assert isinstance(block, Block)
        _fill_norm(layer.self_attention.layer_norm, block.around_attention.norm)
        _fill_attention(layer.self_attention, block.attention, config.num_heads)
        if by_distance is not None:
            layer.self_attention.relative_attention_bias = _buckets(by_distance, both_ways=not stack.causal)
            layer.self_attention.relative_attention_max_distance = np.int32(2 * config.max_len)
        if block.cross is not None and block.around_cross is not None:
            _fill_norm(layer.attention.layer_norm, block.around_cross.norm)
            _fill_attention(layer.attention, block.cross, config.num_heads)
        _fill_norm(layer.ffn.layer_norm, block.around_feedforward.norm)
        _fill_feedforward(layer.ffn, block.feedforward)


def _position_table(stack: Stack, config: Config) -> Array | None:
    """One row for each position, zeros where there are none; None where positions do not stand in the embeddings."""
    if isinstance(stack.positions, Sinusoidal):
        return _array(stack.positions.table)
    if isinstance(stack.positions, Learned):
        return _array(stack.positions.weight)
    if config.positions == "none" and config.window is None:
        # Left out, CTranslate2 would add waves of its own.
        return np.zeros((config.max_len, config.dim), np.float32)
    return None


def _bias_by_distance(config: Config, stack: Stack) -> Array | None:
    """What is added to the scores of each head at each distance, (distances, heads); None where that is nothing."""
    if isinstance(config, GptConfig):
        # It reads a prompt at once, and such a table only one token after the other; ALiBi it knows by itself.
        return None
    bias = stack.positions.bias(1, config.max_len)
    if bias is None and config.window is None:
        return None
    added = np.zeros((config.max_len, config.num_heads), np.float32)
    if bias is not None:
        # The one query stands at the last key, so the nearest come last.
        added += _array(bias[:, 0]).T[::-1]
    if config.window is not None:
        added[config.window :] = HIDDEN
    return added


def _buckets(by_distance: Array, *, both_ways: bool) -> Array:
    """The table of T5's relative attention, made so large that every distance has an entry of its own."""
    longest, heads = by_distance.shape
    table = np.zeros((4 * longest if both_ways else 2 * longest, heads), np.float32)
    table[:longest] = by_distance
    if both_ways:
        table[2 * longest : 3 * longest] = by_distance
    return table


def _fill_attention(spec: Any, attention: Attention, num_heads: int) -> None:
    query, key, value = (
        _all_heads(linear, attention, num_heads, sharing)
        for linear, sharing in ((attention.query, False), (attention.key, True), (attention.value, True))
    )
    is_self = len(spec.linear) == 2
    for linear, parts in zip(spec.linear, [[query, key, value]] if is_self else [[query], [key, value]], strict=False):
        linear.weight = np.concatenate([weight for weight, _ in parts])
        linear.bias = np.concatenate([bias for _, bias in parts])
    head_dim, places = attention.head_dim, list(attention.heads)
    output = np.zeros((attention.output.out_features, num_heads, head_dim), np.float32)
    output[:, places] = _array(attention.output.weight).reshape(len(output), -1, head_dim)
    spec.linear[-1].weight = output.reshape(len(output), -1)
    spec.linear[-1].bias = _bias(attention.output)


def _all_heads(linear: nn.Linear, attention: Attention, num_heads: int, sharing: bool) -> tuple[Array, Array]:
    """Weight and bias of a projection with every head of `num_heads` written out."""
    head_dim = attention.head_dim
    group = attention.num_heads // attention.num_kv_heads if sharing else 1
    weight = _array(linear.weight).reshape(-1, head_dim, linear.in_features).repeat(group, axis=0)
    bias = _bias(linear).reshape(-1, head_dim).repeat(group, axis=0)
    full_weight = np.zeros((num_heads, *weight.shape[1:]), np.float32)
    full_bias = np.zeros((num_heads, head_dim), np.float32)
    full_weight[list(attention.heads)], full_bias[list(attention.heads)] = weight, bias
    return full_weight.reshape(num_heads * head_dim, -1), full_bias.reshape(-1)


def _fill_feedforward(spec: Any, feedforward: FeedForward) -> None:
    if isinstance(feedforward, SwiGlu):
        _fill_linear(spec.linear_0, feedforward.gate)
        _fill_linear(spec.linear_0_noact, feedforward.inner)
    else:
        _fill_linear(spec.linear_0, feedforward.inner)
    _fill_linear(spec.linear_1, feedforward.outer)


def _fill_linear(spec: Any, linear: nn.Linear) -> None:
    spec.weight, spec.bias = _array(linear.weight), _bias(linear)


def _fill_norm(spec: Any, norm: Norm) -> None:
    spec.gamma = _array(norm.weight)
    if hasattr(norm, "bias"):
        spec.beta = _array(norm.bias)


def _bias(linear: nn.Linear) -> Array:
    return np.zeros(linear.out_features, np.float32) if linear.bias is None else _array(linear.bias)


def _array(tensor: Tensor) -> Array:
    # A copy, for CTranslate2 may change what it is given.
    return tensor.detach().float().cpu().numpy().copy()
