"""The tokenizer of a GGUF file, out of its settings: a list of tokens and how to join them, as a `tokenizer.json`.

tokenizer.ggml.model    gpt2: bytes joined by a list of merges; llama: characters joined by the scores of the results
tokenizer.ggml.pre      gpt2: the rule by which text is first cut into words, by the name llama.cpp has for it
"""

import json
from collections import Counter
from typing import Any

import numpy as np

from ..errors import ConfigError, WeightsError, did_you_mean
from ..text import PublishedTokenizer
from .gguf_header import Header

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
LONGEST_PIECE = 256
SPACE = "▁"

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


def read_tokenizer(header: Header, *, vocab: int) -> tuple[PublishedTokenizer, int | None, tuple[int, ...]]:
    """Return the tokenizer, the id to put before a prompt or None, and the ids that end an answer."""
    settings = {key.removeprefix(KEY): value for key, value in header.settings.items() if key.startswith(KEY)}
    template = header.settings.get(TEMPLATE)
    return build_tokenizer(settings, vocab=vocab, chat_template=template if isinstance(template, str) else None)


def build_tokenizer(
    settings: dict[str, Any], *, vocab: int, chat_template: str | None = None
) -> tuple[PublishedTokenizer, int | None, tuple[int, ...]]:
    """Return what `read_tokenizer` does, from settings whose names have no prefix."""
    tokens = _tokens(settings, vocab)
    types = _numbers(settings, "token_type", tokens).tolist() if "token_type" in settings else [NORMAL] * len(tokens)
    ids = {role: _id(settings, key, tokens) for role, key in _ROLES.items() if key in settings}
    rule = _rule(settings)
    starts = _flag(settings, "add_bos_token", rule in (None, "llama-bpe")) and "bos" in ids
    described = _word_pieces(settings, tokens, types) if rule is None else _byte_pieces(settings, tokens, rule)
    described["added_tokens"] = [
        {**_EXACTLY, "id": i, "content": token, "special": type_ == CONTROL}
        for i, (token, type_) in enumerate(zip(tokens, types, strict=True))
        if type_ in (CONTROL, USER_DEFINED)
    ]
    if starts:
        described["post_processor"] = _beginning(tokens[ids["bos"]], ids["bos"])
    try:
        tokenizer = PublishedTokenizer(
            json.dumps({"version": "1.0", "truncation": None, "padding": None, **described}),
            roles={role: tokens[i] for role, i in ids.items()},
            chat_template=chat_template,
        )
    except ConfigError as error:
        raise WeightsError(f"its tokenizer cannot be built: {error.fact}", hint=error.hint) from error
    return tokenizer, ids["bos"] if starts else None, _end_ids(settings, tokens, types, ids)


def _tokens(settings: dict[str, Any], vocab: int) -> list[str]:
    tokens = settings.get("tokens")
    if not isinstance(tokens, list) or not tokens or not all(isinstance(token, str) for token in tokens):
        raise WeightsError(f"the file holds no {KEY}tokens", hint="it has no tokenizer: use a complete file")
    if len(tokens) > vocab:
        raise WeightsError(f"the tokenizer has {len(tokens):,} tokens, the model {vocab:,}", hint="the file is damaged")
    tokens = [token or f"[EMPTY_{i}]" for i, token in enumerate(tokens)]
    if len(set(tokens)) < len(tokens):
        [(twice, _)] = Counter(tokens).most_common(1)
        raise WeightsError(f"the token {twice!r:.80} is there twice", hint="the file is damaged")
    return tokens


def _numbers(settings: dict[str, Any], key: str, tokens: list[str]) -> Any:
    """Return a setting that must hold one number for each token."""
    numbers: Any = settings.get(key)
    fits = isinstance(numbers, np.ndarray) and numbers.dtype.kind in "iuf" and numbers.shape == (len(tokens),)
    if not fits or not np.isfinite(numbers).all():
        raise WeightsError(f"{KEY}{key} does not hold one number for each token", hint="the file is damaged")
    return numbers


def _flag(settings: dict[str, Any], key: str, default: bool) -> bool:
    value = settings.get(key, default)
    if not isinstance(value, bool):
        raise WeightsError(f"{KEY}{key} is {value!r:.40}, expected true or false", hint="the file is damaged")
    return value


def _id(settings: dict[str, Any], key: str, tokens: list[str]) -> int:
    value = settings[key]
    if type(value) is not int or not 0 <= value < len(tokens):
        fact = f"{KEY}{key} is {value!r:.40}, but there are {len(tokens):,} tokens"
        raise WeightsError(fact, hint="use another file")
    return value


def _rule(settings: dict[str, Any]) -> str | None:
    """Return the name of the rule that cuts text into words; None for a tokenizer that does not."""
    model = settings.get("model")
    model = model if isinstance(model, str) else str(model)
    if model == "llama":
        return None
    if model != "gpt2":
        raise WeightsError(f"{KEY}model is {model!r:.40}, which is not supported", hint="known: gpt2, llama")
    name = settings.get("pre", "gpt-2")
    rule = _SAME.get(name, name) if isinstance(name, str) else ""
    if rule not in RULES:
        hint = did_you_mean(str(name)[:80], {*RULES, *_SAME})
        raise WeightsError(f"{KEY}pre is {name!r:.40}, a rule that is not supported", hint=hint)
    return rule


def _byte_pieces(settings: dict[str, Any], tokens: list[str], rule: str) -> dict[str, Any]:
    """Describe a tokenizer whose pieces are bytes, joined by merges in their order."""
    merges = settings.get("merges", [])
    known = set(tokens)
    if not isinstance(merges, list) or not all(isinstance(merge, str) for merge in merges):
        raise WeightsError(f"{KEY}merges is no list of strings", hint="the file is damaged")
    pairs = [merge.split(" ") for merge in merges]
    for pair in pairs:
        if len(pair) != 2 or not {*pair, "".join(pair)} <= known:
            fact = f"the merge {' '.join(pair)!r:.80} joins no two tokens to a third"
            raise WeightsError(fact, hint="use another file")
    return {
        # Qwen's own tokenizer composes characters first: é is one character, however it was typed.
        "normalizer": {"type": "NFC"} if rule == "qwen2" else None,
        "pre_tokenizer": RULES[rule],
        "decoder": _GPT2,
        "model": _bpe(tokens, pairs, ignore_merges=rule == "llama-bpe"),
    }


def _word_pieces(settings: dict[str, Any], tokens: list[str], types: list[int]) -> dict[str, Any]:
    """Describe a tokenizer of SentencePiece: characters, joined into the pieces of the highest score first."""
    scores = _numbers(settings, "scores", tokens)
    prefix = _flag(settings, "add_space_prefix", True)
    bytes_ = all(f"<0x{byte:02X}>" in set(tokens) for byte in range(256))
    unknown = next((token for token, type_ in zip(tokens, types, strict=True) if type_ == UNKNOWN), None)
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    first = [{"type": "Prepend", "prepend": "▁"}] if prefix else []
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []
    back = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*first, spaces]},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]},
        "model": _bpe(tokens, _merges(tokens, types, scores), unk_token=unknown, fuse_unk=True, byte_fallback=bytes_),
    }


def _merges(tokens: list[str], types: list[int], scores: Any) -> list[list[str]]:
    """Return the merges that scores stand for: every way to join two pieces to a third, by its score."""
    pieces = {token for token, type_ in zip(tokens, types, strict=True) if type_ in (NORMAL, USER_DEFINED)}
    merges = []
    for i in np.argsort(-scores, kind="stable").tolist():
        piece = tokens[i]
        if piece not in pieces:
            continue
        if len(piece) > LONGEST_PIECE:
            raise WeightsError(f"the token {piece[:40]!r}… has {len(piece):,} characters", hint="the file is damaged")
        pairs = ([piece[:cut], piece[cut:]] for cut in range(1, len(piece)))
        merges += [pair for pair in pairs if pair[0] in pieces and pair[1] in pieces]
    return merges


def _bpe(tokens: list[str], merges: list[list[str]], **settings: Any) -> dict[str, Any]:
    vocabulary = {token: i for i, token in enumerate(tokens)}
    return {"type": "BPE", "vocab": vocabulary, "merges": merges, **settings}


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


def _end_ids(settings: dict[str, Any], tokens: list[str], types: list[int], ids: dict[str, int]) -> tuple[int, ...]:
    found = [ids["eos"]] if "eos" in ids else []
    found += [_id(settings, key, tokens) for key in ("eot_token_id", "eom_token_id") if key in settings]
    found += [i for i, token in enumerate(tokens) if types[i] == CONTROL and token in _ENDS]
    return tuple(dict.fromkeys(found))
