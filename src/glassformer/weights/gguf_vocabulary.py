"""A tokenizer as the settings of a GGUF file: the way back of `gguf_tokenizer`.

bytes, BPE, and what was read from such a file   model gpt2: bytes joined by merges, after a rule that cuts words
characters                                       model llama: pieces of text with scores, none of which are joined
SentencePiece's pairs                            model llama: the earlier a pair is joined, the higher its score
"""

import json
from collections.abc import Iterable
from typing import Any

from ..errors import WeightsError
from ..text import CharTokenizer, PublishedTokenizer, Tokenizer
from ..text.bpe import WORDS
from ..trained_model import TrainedModel
from .export import published_form
from .gguf_tokenizer import BYTE, CONTROL, NORMAL, RULES, SPACE, UNKNOWN, UNUSED, USER_DEFINED

_ROLES = {"unk": "unknown_token_id", "pad": "padding_token_id"}
_REMEDY = "write a folder instead, with --format hf"


def vocabulary_settings(loaded: TrainedModel) -> dict[str, Any]:
    """Return the settings of a model's tokenizer, without the prefix of their names; refuse one that has none."""
    tokenizer = loaded.tokenizer
    if tokenizer is None:
        raise WeightsError("the model has no tokenizer, and a GGUF file must hold one", hint=_REMEDY)
    if isinstance(tokenizer, CharTokenizer):
        settings = _of_characters(tokenizer)
    else:
        settings = _of_published(tokenizer)
    missing = loaded.config.vocab - len(settings["tokens"])
    settings["tokens"] += [f"[PAD{loaded.config.vocab - missing + i}]" for i in range(missing)]
    settings["token_type"] += [UNUSED] * missing
    if "scores" in settings:
        settings["scores"] += [0.0] * missing
    return {**settings, **_special_ids(loaded)}


def _of_characters(tokenizer: CharTokenizer) -> dict[str, Any]:
    if SPACE in tokenizer.characters or any(0xD800 <= ord(letter) < 0xE000 for letter in tokenizer.characters):
        raise WeightsError(
            f"the vocabulary holds {SPACE!r}, which stands for a space in GGUF files, or halves of characters",
            hint="train on a text without it, or with --set tokenizer=bytes",
        )
    names = [*tokenizer.specials, *tokenizer.characters.replace(" ", SPACE)]
    types = [CONTROL] * len(tokenizer.specials) + [NORMAL] * len(tokenizer.characters)
    return {
        "model": "llama",
        "tokens": names,
        "token_type": types,
        "scores": [0.0] * len(names),
        "add_space_prefix": False,
    }


def _of_published(tokenizer: Tokenizer) -> dict[str, Any]:
    form = published_form(tokenizer)
    if form is None:
        raise WeightsError(f"the {tokenizer.kind} tokenizer has no form in a GGUF file", hint=_REMEDY)
    described = json.loads(form.to_dict()["json"])
    model = described["model"]
    if model["type"] != "BPE":
        raise WeightsError(f"tokenizers of the kind {model['type']} are not written into GGUF files", hint=_REMEDY)
    merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    names, types = _tokens(form, described)
    if any(step["type"] == "ByteLevel" for step in _flat(described["decoder"], "decoders")):
        rule = _rule(described, merges)
        pairs = [" ".join(pair) for pair in merges]
        return {"model": "gpt2", "pre": rule, "tokens": names, "token_type": types, "merges": pairs}
    scores = dict.fromkeys(names, 0.0)
    for rank, (left, right) in reversed(list(enumerate(merges))):
        scores[left + right] = -1.0 - rank  # a piece that several pairs make counts by the first of them
    settings = {"model": "llama", "tokens": names, "token_type": types, "scores": list(scores.values())}
    return {**settings, "add_space_prefix": _space_prefix(described)}


def _tokens(tokenizer: PublishedTokenizer, described: dict[str, Any]) -> tuple[list[str], list[int]]:
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


def _rule(described: dict[str, Any], merges: list[Any]) -> str:
    """Return llama.cpp's name of the rule by which text is cut into words."""
    cut = _plain(described["pre_tokenizer"])
    normalizer = described.get("normalizer")
    found = next((name for name, rule in RULES.items() if _plain(rule) == cut), None)
    if found is None and (not merges or WORDS in json.dumps(cut, ensure_ascii=False).replace("\\\\", "\\")):
        # Where nothing is joined, cuts change nothing; our own rule is GPT-2's with a bound on the length of words.
        found = "gpt-2"
    if found is None or (normalizer is not None and (found, normalizer) != ("qwen2", {"type": "NFC"})):
        fact = "llama.cpp has no name for the rule by which this tokenizer cuts text"
        raise WeightsError(fact, hint=_REMEDY)
    return found


def _plain(step: Any) -> Any:
    """Return the description of a step without what does not change ids."""
    if isinstance(step, dict):
        return {name: _plain(value) for name, value in step.items() if name != "trim_offsets"}
    return [_plain(part) for part in step] if isinstance(step, list) else step


def _space_prefix(described: dict[str, Any]) -> bool:
    """Return whether a space is put before every text; refuse what else may be done to it."""
    every = _flat(described.get("normalizer"), "normalizers")
    steps = [step for step in every if step["type"] != "Prepend"]
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    if described.get("pre_tokenizer") is not None or steps != [spaces]:
        raise WeightsError("this tokenizer prepares text in a way that GGUF files have no word for", hint=_REMEDY)
    return len(every) > len(steps)


def _flat(step: Any, inside: str) -> list[Any]:
    """Return the steps of a description, one after the other; those of a sequence are `inside` it by that name."""
    if step is None:
        return []
    return step[inside] if step["type"] == "Sequence" else [step]


def _special_ids(loaded: TrainedModel) -> dict[str, Any]:
    """Return which tokens begin and end what the model writes."""
    roles = loaded.tokenizer.role_id if isinstance(loaded.tokenizer, PublishedTokenizer) else lambda role: None
    start = roles("bos") if loaded.start_id is None else loaded.start_id
    found = {"bos_token_id": start, **dict(zip(("eos_token_id", "eot_token_id"), loaded.end_ids, strict=False))}
    found |= {key: roles(role) for role, key in _ROLES.items()}
    known: Iterable[tuple[str, int | None]] = found.items()
    return {**{key: i for key, i in known if i is not None}, "add_bos_token": loaded.start_id is not None}
