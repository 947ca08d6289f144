"""The tokenizer of a GGUF file, out of its settings and back: a list of tokens and how to join them.

tokenizer.ggml.model    gpt2: bytes joined by a list of merges; llama: characters joined by the scores of the results
tokenizer.ggml.pre      gpt2: the rule by which text is first cut into words, by the name llama.cpp has for it

Our tokenizers of bytes and pairs are written as gpt2, that of characters as llama, without any joins.
"""

import json
from collections import Counter
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.errors import ConfigError, WeightsError
from ..text import CharTokenizer, PublishedTokenizer, Tokenizer
from ..text.learned import WORDS
from ..text.symbols import flat_steps
from .export import published_form
from .fields import Fields
from .loaded_model import LoadedModel

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
LONGEST_PIECE = 256
SPACE = "▁"

_SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
_REMEDY = "write a folder instead, with --format hf"

KEY = "tokenizer.ggml."
TEMPLATE = "tokenizer.chat_template"
_ROLES = {"bos": "bos_token_id", "eos": "eos_token_id", "unk": "unknown_token_id", "pad": "padding_token_id"}
# Tokens that end an answer whatever the file says, by the names under which models were published.
_ENDS = {
    "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>",
    "<|end_of_turn|>", "<EOT>",
}  # fmt: skip

_EXACTLY = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|%s| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LETTERS: dict[str, Any] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
_GPT2 = {**_LETTERS, "use_regex": True}


def _split(numbers: str) -> dict[str, Any]:
    words = {"type": "Split", "pattern": {"Regex": _WORDS % numbers}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [words, _LETTERS]}


_DIGITS = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, _GPT2]}
RULES: dict[str, dict[str, Any]] = {
    "gpt-2": _GPT2,
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
    "refact": _DIGITS,
    "llama-bpe": _split(r"\p{N}{1,3}"),
    "qwen2": _split(r"\p{N}"),
}
_SAME = {"llama3": "llama-bpe", "llama-v3": "llama-bpe", "falcon3": "llama-bpe", "deepseek-r1-qwen": "qwen2"}


def read_tokenizer(settings: dict[str, Any], *, vocab: int) -> tuple[PublishedTokenizer, int | None, tuple[int, ...]]:
    """Return the tokenizer, the id to put before a prompt or None, and the ids that end an answer."""
    values = {key.removeprefix(KEY): value for key, value in settings.items() if key.startswith(KEY)}
    fields, template = Fields(values, KEY.rstrip(".")), settings.get(TEMPLATE)
    tokens = _tokens(fields, vocab)
    types = _numbers(fields, "token_type", tokens) if "token_type" in values else np.full(len(tokens), NORMAL)
    ids = {role: _id(fields, key, tokens) for role, key in _ROLES.items() if key in values}
    rule = _rule(fields)
    starts = fields.flag("add_bos_token", rule in (None, "llama-bpe")) and "bos" in ids
    described = _word_pieces(fields, tokens, types) if rule is None else _byte_pieces(fields, tokens, rule)
    added = np.flatnonzero((types == CONTROL) | (types == USER_DEFINED)).tolist()
    described["added_tokens"] = [
        {**_EXACTLY, "id": i, "content": tokens[i], "special": bool(types[i] == CONTROL)} for i in added
    ]
    if starts:
        described["post_processor"] = _beginning(tokens[ids["bos"]], ids["bos"])
    try:
        tokenizer = PublishedTokenizer(
            {"version": "1.0", "truncation": None, "padding": None, **described},
            roles={role: tokens[i] for role, i in ids.items()},
            chat_template=template if isinstance(template, str) else None,
        )
    except ConfigError as error:
        _check_merges(described["model"])
        raise WeightsError(f"its tokenizer cannot be built: {error.fact}", hint=error.hint) from error
    ends = [ids["eos"]] if "eos" in ids else []
    ends += [_id(fields, key, tokens) for key in ("eot_token_id", "eom_token_id") if key in values]
    ends += [i for i in added if types[i] == CONTROL and tokens[i] in _ENDS]
    return tokenizer, ids["bos"] if starts else None, tuple(dict.fromkeys(ends))


def _tokens(fields: Fields, vocab: int) -> list[str]:
    tokens = fields.get("tokens")
    if not isinstance(tokens, list) or set(map(type, tokens)) != {str}:
        fields.refuse("tokens", "a list of tokens is needed")
    if len(tokens) > vocab:
        raise WeightsError(f"the tokenizer has {len(tokens):,} tokens, the model {vocab:,}", hint="the file is damaged")
    if "" in tokens:
        tokens = [token or f"[EMPTY_{i}]" for i, token in enumerate(tokens)]
    if len(set(tokens)) < len(tokens):
        [(twice, _)] = Counter(tokens).most_common(1)
        raise WeightsError(f"the token {twice!r:.80} is there twice", hint="the file is damaged")
    return tokens


def _numbers(fields: Fields, key: str, tokens: list[str]) -> Any:
    numbers = fields.get(key)
    fits = isinstance(numbers, np.ndarray) and numbers.dtype.kind in "iuf" and numbers.shape == (len(tokens),)
    if not fits or not np.isfinite(numbers).all():
        fields.refuse(key, "one number for each token is needed")
    return numbers


def _id(fields: Fields, key: str, tokens: list[str]) -> int:
    value = fields.get(key)
    if type(value) is not int or not 0 <= value < len(tokens):
        fields.refuse(key, f"there are {len(tokens):,} tokens")
    return value


def _rule(fields: Fields) -> str | None:
    """Return the name of the rule that cuts text into words; None for a tokenizer that does not."""
    model, name = fields.get("model"), fields.get("pre", "gpt-2")
    if not isinstance(model, str) or model not in ("gpt2", "llama"):
        fields.refuse("model", "only gpt2 and llama are supported")
    if model == "llama":
        return None
    rule = _SAME.get(name, name) if isinstance(name, str) else ""
    if rule not in RULES:
        fields.refuse("pre", f"supported: {', '.join([*RULES, *_SAME])}")
    return rule


def _byte_pieces(fields: Fields, tokens: list[str], rule: str) -> dict[str, Any]:
    """Describe a tokenizer whose pieces are bytes, joined by merges in their order."""
    merges = fields.get("merges", [])
    if not isinstance(merges, list) or not set(map(type, merges)) <= {str}:
        fields.refuse("merges", "a list of texts is needed")
    return {
        # Qwen's own tokenizer composes characters first: é is one character, however it was typed.
        "normalizer": {"type": "NFC"} if rule == "qwen2" else None,
        "pre_tokenizer": RULES[rule],
        "decoder": _GPT2,
        "model": {
            "type": "BPE",
            "vocab": dict(zip(tokens, range(len(tokens)), strict=True)),
            "merges": [tuple(merge.split(" ")) for merge in merges],
            "ignore_merges": rule == "llama-bpe",
        },
    }


def _check_merges(model: dict[str, Any]) -> None:
    """Name the merge for which the library refuses a tokenizer, if that is why."""
    for pair in model["merges"]:
        if len(pair) != 2 or not {*pair, "".join(pair)} <= model["vocab"].keys():
            fact = f"the merge {' '.join(pair)!r:.80} joins no two tokens to a third"
            raise WeightsError(fact, hint="use another file")


def _word_pieces(fields: Fields, tokens: list[str], types: Array) -> dict[str, Any]:
    """Describe a tokenizer of SentencePiece: characters, joined into the pieces of the highest score first."""
    scores = _numbers(fields, "scores", tokens)
    prefix = fields.flag("add_space_prefix", True)
    vocabulary = dict(zip(tokens, range(len(tokens)), strict=True))
    first = [{"type": "Prepend", "prepend": SPACE}] if prefix else []
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []
    back = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*first, _SPACES]},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]},
        "model": {
            "type": "BPE",
            "vocab": vocabulary,
            "merges": _merges(tokens, types, scores),
            "unk_token": next((tokens[i] for i in np.flatnonzero(types == UNKNOWN).tolist()), None),
            "fuse_unk": True,
            "byte_fallback": all(f"<0x{byte:02X}>" in vocabulary for byte in range(256)),
        },
    }


def _merges(tokens: list[str], types: Array, scores: Array) -> list[tuple[str, str]]:
    """Return the merges that scores stand for: every way to join two pieces to a third, by its score."""
    pieces = {tokens[i] for i in np.flatnonzero((types == NORMAL) | (types == USER_DEFINED)).tolist()}
    merges: list[tuple[str, str]] = []
    for i in np.argsort(-scores, kind="stable").tolist():
        piece = tokens[i]
        if piece not in pieces:
            continue
        if len(piece) > LONGEST_PIECE:
            raise WeightsError(f"the token {piece[:40]!r}… has {len(piece):,} characters", hint="the file is damaged")
        pairs = ((piece[:cut], piece[cut:]) for cut in range(1, len(piece)))
        merges += [pair for pair in pairs if pair[0] in pieces and pair[1] in pieces]
    return merges


def _beginning(token: str, i: int) -> dict[str, Any]:
    """Describe how a text gets its first token."""
    first = {"SpecialToken": {"id": token, "type_id": 0}}
    one, two = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
    return {
        "type": "TemplateProcessing",
        "single": [first, one],
        "pair": [first, one, first, two],
        "special_tokens": {token: {"id": token, "ids": [i], "tokens": [token]}},
    }


# --- the way back ----------------------------------------------------------------------------------------------------


def vocabulary_settings(loaded: LoadedModel) -> dict[str, Any]:
    """Return the settings of a model's tokenizer; refuse one that has none."""
    tokenizer = loaded.tokenizer
    if tokenizer is None:
        raise WeightsError("the model has no tokenizer, and a GGUF file must hold one", hint=_REMEDY)
    settings = _described(tokenizer)
    for i in range(len(settings["tokens"]), loaded.config.vocab):
        settings["tokens"].append(f"[PAD{i}]")
        settings["token_type"].append(UNUSED)
        if "scores" in settings:
            settings["scores"].append(0.0)
    role_id = tokenizer.role_id if isinstance(tokenizer, PublishedTokenizer) else lambda role: None
    ids = {key: role_id(role) for role, key in _ROLES.items() if role != "eos"}
    ids |= {} if loaded.start_id is None else {"bos_token_id": loaded.start_id}
    ids |= dict(zip(("eos_token_id", "eot_token_id"), loaded.end_ids, strict=False))
    settings |= {key: i for key, i in ids.items() if i is not None}
    return {KEY + key: value for key, value in {**settings, "add_bos_token": loaded.start_id is not None}.items()}


def _described(tokenizer: Tokenizer) -> dict[str, Any]:
    form = published_form(tokenizer)
    if form is None:
        raise WeightsError(f"the {tokenizer.kind} tokenizer has no form in a GGUF file", hint=_REMEDY)
    described = json.loads(form.to_dict()["json"])
    model = described["model"]
    if model["type"] != "BPE":
        raise WeightsError(f"tokenizers of the kind {model['type']} are not written into GGUF files", hint=_REMEDY)
    merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    names, types = _names_and_types(form, described)
    if any(step["type"] == "ByteLevel" for step in flat_steps(described["decoder"], "decoders")):
        pairs = [" ".join(pair) for pair in merges]
        pre = _name_of_rule(described, merges)
        return {"model": "gpt2", "pre": pre, "tokens": names, "token_type": types, "merges": pairs}
    steps = flat_steps(described.get("normalizer"), "normalizers")
    if isinstance(tokenizer, CharTokenizer):
        if SPACE in names:
            fact = f"the vocabulary holds {SPACE!r}, which stands for a space in GGUF files"
            raise WeightsError(fact, hint="train on a text without it, or with --set tokenizer=bytes")
        names, steps = [name.replace(" ", SPACE) for name in names], [_SPACES]
    others = [step for step in steps if step["type"] != "Prepend"]
    if described.get("pre_tokenizer") is not None or others != [_SPACES]:
        raise WeightsError("this tokenizer prepares text in a way that GGUF files have no word for", hint=_REMEDY)
    scores = dict.fromkeys(names, 0.0)
    for rank, (left, right) in reversed(list(enumerate(merges))):
        scores[left + right] = -1.0 - rank  # a piece that several pairs make counts by the first of them
    settings = {"model": "llama", "tokens": names, "token_type": types, "scores": list(scores.values())}
    return {**settings, "add_space_prefix": len(steps) > len(others)}


def _names_and_types(tokenizer: PublishedTokenizer, described: dict[str, Any]) -> tuple[list[str], list[int]]:
    """Return the names of all ids and their types; ids without a token are unused."""
    names = [f"[PAD{i}]" for i in range(tokenizer.size)]
    types = [UNUSED] * tokenizer.size
    fallback, unknown = described["model"].get("byte_fallback", False), described["model"].get("unk_token")
    for name, i in described["model"]["vocab"].items():
        is_byte = fallback and len(name) == 6 and name.startswith("<0x")
        names[i], types[i] = name, BYTE if is_byte else UNKNOWN if name == unknown else NORMAL
    for token in described.get("added_tokens", []):
        i = token["id"]
        names[i] = token["content"]
        if types[i] != UNKNOWN:
            types[i] = CONTROL if token["special"] or token["content"] in tokenizer.specials else USER_DEFINED
    return names, types


def _name_of_rule(described: dict[str, Any], merges: list[Any]) -> str:
    """Return llama.cpp's name of the rule by which text is cut into words."""
    cut = _plain(described["pre_tokenizer"])
    normalizer = described.get("normalizer")
    rule = next((name for name, rule in RULES.items() if _plain(rule) == cut), None)
    if rule is None and (not merges or WORDS in json.dumps(cut, ensure_ascii=False).replace("\\\\", "\\")):
        # Where nothing is joined, cuts change nothing; our own rule is GPT-2's with a bound on the length of words.
        rule = "gpt-2"
    if rule is None or (normalizer is not None and (rule, normalizer) != ("qwen2", {"type": "NFC"})):
        fact = "llama.cpp has no name for the rule by which this tokenizer cuts text"
        raise WeightsError(fact, hint=_REMEDY)
    return rule


def _plain(step: Any) -> Any:
    """Return the description of a step without what does not change ids."""
    if isinstance(step, dict):
        return {name: _plain(value) for name, value in step.items() if name != "trim_offsets"}
    return [_plain(part) for part in step] if isinstance(step, list) else step
