"""The tokenizer of a published folder: its tokenizer.json, or one put together from the older files."""

from pathlib import Path
from typing import Any

from ..errors import WeightsError
from ..text import PublishedTokenizer
from ..text.published import TOKENIZER
from .json_file import read_json

_GPT2 = {"bos": "<|endoftext|>", "eos": "<|endoftext|>", "unk": "<|endoftext|>"}
_ROBERTA = {"bos": "<s>", "eos": "</s>", "cls": "<s>", "sep": "</s>", "pad": "<pad>", "unk": "<unk>", "mask": "<mask>"}
_BERT = {"unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]"}


def open_tokenizer(folder: Path, family: str) -> PublishedTokenizer | None:
    """Return the tokenizer of a folder; None where it has none that can be read."""
    if (folder / TOKENIZER).is_file():
        return PublishedTokenizer.load(folder)
    try:
        if family in ("gpt2", "roberta") and (folder / "merges.txt").is_file():
            return _byte_level(folder, family)
        if family in ("bert", "distilbert") and (folder / "vocab.txt").is_file():
            return _word_piece(folder)
    except WeightsError:
        raise
    except Exception as error:  # the library has no class of its own
        raise WeightsError(f"the vocabulary in {folder} cannot be read: {error}", hint="get the files again") from error
    return None


def _byte_level(folder: Path, family: str) -> PublishedTokenizer:
    """As GPT-2: pairs of bytes, merged in the order of merges.txt."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    vocabulary = {name: _id(folder, name, i) for name, i in read_json(folder / "vocab.json", most=1 << 24).items()}
    lines = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.partition(" ") for line in lines if line and not line.startswith("#version")]
    merges = [(left, right) for left, _, right in pairs]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, continuing_subword_prefix="", end_of_word_suffix=""))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=_flag(folder, "add_prefix_space", False))
    tokenizer.decoder = decoders.ByteLevel()
    roles = _GPT2
    if family == "roberta":
        roles = _ROBERTA
        last, first = ((name, _needed(folder, vocabulary, name)) for name in (roles["sep"], roles["cls"]))
        tokenizer.post_processor = processors.RobertaProcessing(last, first)
    return _with_roles(tokenizer, roles)


def _word_piece(folder: Path) -> PublishedTokenizer:
    """As BERT: the longest pieces of the vocabulary, each word from its start."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    lines = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    vocabulary = {word: i for i, word in enumerate(lines[:-1] if lines[-1] == "" else lines)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=_BERT["unk"]))
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=_flag(folder, "do_lower_case", True),
        strip_accents=_settings(folder).get("strip_accents"),
        handle_chinese_chars=_flag(folder, "tokenize_chinese_chars", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    ends = [(name, _needed(folder, vocabulary, name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    return _with_roles(tokenizer, _BERT)


def _with_roles(tokenizer: Any, roles: dict[str, str]) -> PublishedTokenizer:
    known = {role: name for role, name in roles.items() if tokenizer.token_to_id(name) is not None}
    return PublishedTokenizer(tokenizer.to_str(), roles=known)


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    return read_json(path) if path.is_file() else {}


def _flag(folder: Path, name: str, default: bool) -> bool:
    value = _settings(folder).get(name, default)
    return value if isinstance(value, bool) else default


def _id(folder: Path, name: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise WeightsError(f"{folder / 'vocab.json'} gives {name[:40]!r} the id {value!r}", hint="get the file again")
    return value


def _needed(folder: Path, vocabulary: dict[str, int], name: str) -> int:
    if name not in vocabulary:
        raise WeightsError(f"the vocabulary in {folder} has no {name}", hint="get the files again")
    return vocabulary[name]
