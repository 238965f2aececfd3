"""A Clearhead translator in, the same weights in a peer's model out."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from clearhead.errors import UnavailableError
from clearhead.export.marian import marian_name
from clearhead.models.translator import Translator, TranslatorConfig
from clearhead.nn.positions import waves
from clearhead.text.specials import BOS_ID, EOS_ID, PAD_ID

TABLES = ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")


def hugging_face(model: Translator) -> Any:
    """Marian where the norm stands after the sum, Pegasus (the same code but for that) where it stands before."""
    import transformers

    config = model.config
    check_possible(config)
    family = "Marian" if config.residual == "post" else "Pegasus"
    kind = transformers.MarianMTModel if family == "Marian" else transformers.PegasusForConditionalGeneration
    settings = getattr(transformers, f"{family}Config")(
        vocab_size=config.target_vocab_size,
        d_model=config.dim,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        encoder_attention_heads=config.num_heads,
        decoder_attention_heads=config.num_heads,
        encoder_ffn_dim=config.ff_dim,
        decoder_ffn_dim=config.ff_dim,
        activation_function=config.feedforward,
        max_position_embeddings=config.max_len,
        scale_embedding=config.scale_embeddings,
        tie_word_embeddings=True,
        pad_token_id=PAD_ID,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        decoder_start_token_id=BOS_ID,
        forced_eos_token_id=None,
    )
    peer = kind(settings).eval()
    peer.load_state_dict(_renamed(model) | {"final_logits_bias": peer.final_logits_bias.zero_()})
    return peer


def check_possible(config: TranslatorConfig) -> None:
    """Refuse a model that they have no twin of."""
    given = {
        "norm": config.decoder_norm or config.norm,
        "positions": config.positions,
        "tie": config.tie,
        "num_kv_heads": config.num_kv_heads or config.num_heads,
        "window": config.window,
        "output_bias": config.output_bias,
    }
    needed = {
        "norm": "layer",
        "positions": "sinusoidal",
        "tie": "all",
        "num_kv_heads": config.num_heads,
        "window": None,
        "output_bias": False,
    }
    if given != needed or config.residual == "none" or config.feedforward == "swiglu":
        different = next(name for name in needed if given[name] != needed[name]) if given != needed else "residual"
        raise UnavailableError(f"Marian and Pegasus have no such model: its {different} is another")


def _renamed(model: Translator) -> dict[str, Tensor]:
    tensors = {
        marian_name(name): tensor
        for name, tensor in model.state_dict().items()
        if name.startswith(("encoder.", "decoder."))
    }
    tensors |= {f"{table}.weight": model.output.weight for table in TABLES}
    for stack in ("encoder", "decoder"):
        tensors[f"model.{stack}.embed_positions.weight"] = waves(model.config.max_len, model.config.dim)
    return tensors
