"""RoBERTa: BERT whose positions count from 2, because the rows before belong to padding."""

from __future__ import annotations

from typing import Any

from ...config import EncoderConfig, TransformerConfig
from ..family import Family, Tensor, linear, norm
from ..fields import Fields
from . import bert

PADDING = 1
SKIPPED = PADDING + 1


def table(config: TransformerConfig) -> dict[str, Tensor]:
    """Return our names to those of RoBERTa."""
    return {
        **bert.body(config, "roberta.", skipped=SKIPPED),
        **linear("head.transform.linear", "lm_head.dense"),
        **norm("head.transform.norm", "lm_head.layer_norm"),
        "head.w": Tensor("lm_head.decoder.weight", transposed=True),
        "head.b": Tensor("lm_head.decoder.bias", twin="lm_head.bias"),
    }


def read(fields: Fields) -> dict[str, Any]:
    """Return our settings for those of RoBERTa."""
    fields.only("pad_token_id", PADDING)
    settings = bert.read(fields)
    if settings["context"] <= SKIPPED:
        fields.refuse("max_position_embeddings", f"the first {SKIPPED} are not used")
    if settings["activation"] != "gelu":
        # Its head uses this one whatever the blocks use, and ours uses the same for both.
        fields.only("hidden_act", "gelu")
    return {**settings, "context": settings["context"] - SKIPPED}


def write(config: EncoderConfig) -> dict[str, Any]:
    """Return the fields of RoBERTa for our settings."""
    fields = bert.write(config)
    return {**fields, "max_position_embeddings": config.context + SKIPPED, "pad_token_id": PADDING}


ROBERTA = Family(
    name="roberta",
    architecture="encoder",
    classes={"RobertaForMaskedLM": "tokens", "RobertaModel": "none"},
    prefix="roberta.",
    table=table,
    read=read,
    write=write,
    kept=bert.pooler,
    ignored=(
        r"embeddings\.(position_ids|token_type_ids)",
        r"pooler\.dense\.(weight|bias)",
        r"lm_head\.decoder\.weight",
    ),
    renamed=bert.BERT.renamed,
)
