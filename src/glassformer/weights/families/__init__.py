"""The families of published models, by their `model_type`."""

from ..family import Family
from .bert import BERT, DISTILBERT, ROBERTA
from .gpt2 import GPT2
from .gpt_neox import GPT_NEOX
from .llama import LLAMA, MISTRAL, QWEN2
from .t5 import T5

FAMILIES: dict[str, Family] = {
    family.name: family for family in (GPT2, GPT_NEOX, BERT, DISTILBERT, ROBERTA, T5, LLAMA, MISTRAL, QWEN2)
}

__all__ = ["FAMILIES"]
