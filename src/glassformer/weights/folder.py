"""Folders as Hugging Face publishes them.

config.json                     the settings of the model
model.safetensors               its weights, or several such files and model.safetensors.index.json
tokenizer.json                  its tokenizer; older ones are built from vocab.json and merges.txt, or vocab.txt
tokenizer_config.json           the roles of special tokens, the chat template
generation_config.json          which tokens end an answer
modules.json, 1_Pooling/        how a sentence encoder makes one vector of a text
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..config import DecoderConfig, EncoderConfig, EncoderDecoderConfig, TransformerConfig
from ..core.errors import TokenError, WeightsError
from ..core.files import explained
from ..models.model import Pooling
from ..text import PublishedTokenizer
from ..text.published import TOKENIZER
from .families import FAMILIES
from .family import Family, read_params
from .fields import UNNAMED, Fields, class_names, inside, parse_json, read_json
from .loaded_model import LoadedModel
from .tensors import INDEX, SINGLE, open_tensors

CONFIG = "config.json"
GENERATION = "generation_config.json"
MODULES = "modules.json"
_MODES = {"mean": "mean", "cls": "first", "pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "first"}
_BERT = {"unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]"}
_ROBERTA = {"bos": "<s>", "eos": "</s>", "cls": "<s>", "sep": "</s>", "pad": "<pad>", "unk": "<unk>", "mask": "<mask>"}
_GPT2 = dict.fromkeys(("bos", "eos", "unk"), "<|endoftext|>")
_ROLES = {"gpt2": _GPT2, "roberta": _ROBERTA, "bert": _BERT, "distilbert": _BERT}
"""The special tokens of tokenizers that are published as vocabulary files, without a tokenizer.json."""


def is_published(path: Path) -> bool:
    """Return whether a folder is one of these, and not a run of our own."""
    if any((path / name).is_file() for name in (SINGLE, INDEX)):
        return True
    try:
        values = read_json(path / CONFIG)
    except WeightsError:
        return False
    return "model_type" in values or "architectures" in values


def open_folder(path: str | Path, dtype: Any = np.float32) -> LoadedModel:
    """Read a model from a folder; weights that are stored in `dtype` stay in their files, mapped into memory."""
    folder = Path(path)
    values, family = _described(folder)
    if np.dtype(dtype).kind != "f":
        raise WeightsError(f"weights cannot be read as {np.dtype(dtype)}", hint="use float32, float64 or float16")
    tensors = open_tensors(folder)
    config = family.config(values, family.head_of(values, iter(tensors.stored)))
    config, params, extras = read_params(family, config, tensors, dtype)
    tokenizer = open_tokenizer(folder, family.name)
    start, ends = _start_and_ends(folder, values, config, tokenizer)
    return LoadedModel(
        config=config,
        params=params,
        family=family.name,
        tokenizer=tokenizer,
        start_id=start,
        end_ids=ends,
        chat_template=None if tokenizer is None else tokenizer.chat_template,
        pooling=read_pooling(folder),
        labels=_labels(values, config),
        source=str(folder),
        extras=extras,
    )


def read_config(path: str | Path) -> TransformerConfig:
    """Return the config of a model from its config.json alone."""
    values, family = _described(Path(path))
    return family.config(values, family.head_of(values))


def _described(folder: Path) -> tuple[Fields, Family]:
    """Return the fields of config.json, and the family they belong to."""
    if not (folder / CONFIG).is_file():
        fact = f"{folder} has no {CONFIG}" if folder.is_dir() else f"there is no folder {folder}"
        raise WeightsError(fact, hint=f"pass a folder with {CONFIG} and {SINGLE}")
    fields = Fields(read_json(folder / CONFIG), str(folder / CONFIG))
    model_type = fields.values.get("model_type")
    if model_type is None:  # the oldest files have the class alone
        classes = fields.values.get("architectures") or [""]
        first = str(classes[0] if isinstance(classes, list) else classes)
        model_type = next((name for name, family in FAMILIES.items() if first in family.classes), first)
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        fact = f"{fields.source} describes a model of the kind {str(model_type)[:80]!r}, which is not supported"
        raise WeightsError(fact, hint=f"use a model of these families: {', '.join(FAMILIES)}")
    return fields, FAMILIES[model_type]


def _labels(values: Fields, config: TransformerConfig) -> tuple[str, ...]:
    """Return the names of a classifier's classes; none where they are numbered."""
    if not isinstance(config, EncoderConfig) or config.head != "classes":
        return ()
    names = class_names(values)
    return () if all(name == f"{UNNAMED}{i}" for i, name in enumerate(names)) else names


def _start_and_ends(
    folder: Path, values: Fields, config: TransformerConfig, tokenizer: PublishedTokenizer | None
) -> tuple[int | None, tuple[int, ...]]:
    """Return the token that answers or prompts start with, and those that end an answer."""
    if not isinstance(config, DecoderConfig | EncoderDecoderConfig):
        return None, ()
    asked = read_json(folder / GENERATION) if (folder / GENERATION).is_file() else {}
    known = {**values.values, **{name: value for name, value in asked.items() if value is not None}}
    ends = known.get("eos_token_id")
    ends = ends if isinstance(ends, list) else [ends]
    known_ends = tuple(i for i in ends if type(i) is int and 0 <= i < config.vocab)
    if not known_ends and tokenizer is not None and (end := tokenizer.role_id("eos")) is not None:
        known_ends = (end,)
    if isinstance(config, DecoderConfig):
        return (None if tokenizer is None else first_special(tokenizer)), known_ends
    starts = (known.get(name) for name in ("decoder_start_token_id", "pad_token_id"))
    return next((i for i in starts if type(i) is int and 0 <= i < config.vocab), 0), known_ends


def read_pooling(folder: Path) -> Pooling | None:
    """Return the pooling of a sentence encoder, None for other models; refuse steps that are not supported."""
    path = folder / MODULES
    if not path.is_file():
        return None
    with explained(path, WeightsError, "check the path", "read"):
        content = path.read_bytes()[: 1 << 20]
    steps = parse_json(b'{"steps":' + content + b"}", str(path))["steps"]
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise WeightsError(f"{path} is damaged: it holds no list of steps", hint="get the file again")
    names = [str(step.get("type")).rsplit(".", 1)[-1] for step in steps]
    mode = "mean"
    for name, step in zip(names, steps, strict=True):
        if name not in ("Transformer", "Pooling", "Normalize"):
            raise WeightsError(f"{path} has a step {name[:80]!r}, which is not supported", hint="use another model")
        if name == "Pooling":
            mode = _mode(inside(folder, step.get("path"), path) / "config.json")
    return Pooling(mode, normalize="Normalize" in names)


def _mode(path: Path) -> str:
    values = read_json(path)
    chosen = [name for name, value in values.items() if name.startswith("pooling_mode_") and value is True]
    named = values.get("pooling_mode", [])
    chosen += named if isinstance(named, list) else [named]
    if len(chosen) != 1 or chosen[0] not in _MODES:
        fact = f"{path} pools by {', '.join(map(str, chosen))[:80] or 'nothing'}, which is not supported"
        raise WeightsError(fact, hint=f"supported: one of {', '.join(_MODES)}")
    return _MODES[chosen[0]]


def first_special(tokenizer: PublishedTokenizer) -> int | None:
    """Return the token that a tokenizer puts before every text; None if it puts none."""
    # Around some text, because a token around none may stand before or after it.
    for text in ("a", "0", " ", ""):
        with suppress(TokenError):
            ids, plain = tokenizer.encode(text, specials=True).tolist(), tokenizer.encode(text).tolist()
            return ids[0] if ids[:1] != plain[:1] and ids[0] in tokenizer.specials.values() else None
    return None


def open_tokenizer(folder: Path, family: str) -> PublishedTokenizer | None:
    """Return the tokenizer of a folder; None where it has none that can be read."""
    if (folder / TOKENIZER).is_file():
        return PublishedTokenizer.load(folder)
    words, merges = folder / "vocab.txt", folder / "merges.txt"
    if family not in _ROLES or not (words if _ROLES[family] is _BERT else merges).is_file():
        return None
    from tokenizers import BertWordPieceTokenizer, ByteLevelBPETokenizer, processors

    settings = read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    roles = _ROLES[family]
    try:
        if roles is _BERT:
            names = {"do_lower_case": "lowercase", "tokenize_chinese_chars": "handle_chinese_chars"}
            names["strip_accents"] = "strip_accents"
            options = {ours: settings[theirs] for theirs, ours in names.items() if theirs in settings}
            inner: Any = BertWordPieceTokenizer.from_file(str(words), **options)
        else:
            prefix = settings.get("add_prefix_space", False)
            vocabulary = str(folder / "vocab.json")
            inner = ByteLevelBPETokenizer.from_file(vocabulary, str(merges), add_prefix_space=prefix)
        if family == "roberta":
            last, first = ((name, inner.token_to_id(name)) for name in (roles["sep"], roles["cls"]))
            inner.post_processor = processors.RobertaProcessing(last, first)
        known = {role: name for role, name in roles.items() if inner.token_to_id(name) is not None}
        return PublishedTokenizer(inner.to_str(), roles=known)
    except Exception as error:  # the library has no class of its own
        raise WeightsError(f"the vocabulary in {folder} cannot be read: {error}", hint="get the files again") from error
