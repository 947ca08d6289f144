"""RoBERTa: BERT whose positions count from 2, because the rows before belong to padding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..family import Tensor
from ..fields import Fields
from .bert import BERT

PADDING = 1
SKIPPED = PADDING + 1


def read(fields: Fields, settings: dict[str, Any]) -> dict[str, Any]:
    """Leave out the positions of padding."""
    if settings["context"] <= SKIPPED:
        fields.refuse("max_position_embeddings", f"the first {SKIPPED} are not used")
    if settings["activation"] != "gelu":
        # Its head uses this one whatever the blocks use, and ours uses the same for both.
        fields.only("hidden_act", "gelu")
    return {**settings, "context": settings["context"] - SKIPPED}


ROBERTA = replace(
    BERT,
    name="roberta",
    classes={"RobertaForMaskedLM": "tokens", "RobertaModel": "none"},
    prefix="roberta.",
    table={
        **BERT.table,
        "embedding.positions.table": Tensor("embeddings.position_embeddings.weight", skipped=SKIPPED),
        "head.transform.linear": "lm_head.dense",
        "head.transform.norm": "lm_head.layer_norm",
        "head": "lm_head.decoder",
        "head.b": Tensor("lm_head.decoder.bias", twin="lm_head.bias"),
    },
    only=(*BERT.only, ("pad_token_id", PADDING)),
    written={"pad_token_id": PADDING},
    read=read,
    write=lambda config, fields: {**fields, "max_position_embeddings": config.context + SKIPPED},
    ignored=(*BERT.ignored[:2], r"lm_head\.decoder\.weight"),
)
