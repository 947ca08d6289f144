"""Tokenizers that others published as a `tokenizer.json`: BPE, WordPiece and Unigram, through the `tokenizers` library.

tokenizer.json           the vocabulary and every step from text to ids and back
tokenizer_config.json    beside it: which special token begins, ends or pads a text, and the chat template
special_tokens_map.json  beside it: the same about special tokens, where the other says nothing
chat_template.jinja      beside it: the chat template where it has a file of its own
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..core.arrays import Array
from ..core.errors import CheckpointError, ConfigError, TokenError
from ..core.files import explained
from .symbols import Comparable, check_characters, check_decodable, field, flat_steps, vocabulary_ids

TOKENIZER = "tokenizer.json"
CONFIG = "tokenizer_config.json"
SPECIALS = "special_tokens_map.json"
TEMPLATE = "chat_template.jinja"
ROLES = ("bos", "eos", "pad", "unk", "cls", "sep", "mask")
"""The roles of special tokens."""

SPARSEST, MOST_UNUSED = 4, 1 << 16
"""Ids may be as large as four times the number of tokens, and 65,536 more."""
_LAST_PRIVATE = 0x10FFFD
_STEADY = {"ByteLevel", "WordPiece", "Metaspace", "BPEDecoder", "ByteFallback", "Fuse", "Replace", "Strip"}

# What a byte is called in the vocabulary of a byte-level BPE: itself where it prints, else the next free letter.
_PRINTING = [*range(33, 127), *range(161, 173), *range(174, 256)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTING]
BYTE_LETTERS = {chr(byte): byte for byte in _PRINTING} | {chr(256 + i): byte for i, byte in enumerate(_OTHERS)}


class PublishedTokenizer(Comparable):
    """A `tokenizer.json`, with the roles of its special tokens and its chat template.

    content          of the file; or a BPE described likewise, its merges as pairs, which is taken over without JSON
    roles            the names of special tokens by what they are for: bos, eos, pad, unk, cls, sep, mask
    chat_template    how a conversation becomes text, or None; see `render_chat`

    What people type never becomes a special token: `encode` spells their names out like any other text, unless
    `parse_special` asks to read them. Truncation and padding that the file asks for are left out: text is never cut.
    Characters outside the vocabulary become the unknown token where there is one, and are refused where there is none.
    """

    kind: ClassVar[str] = "tokenizer.json"

    def __init__(
        self,
        content: str | Mapping[str, Any],
        *,
        roles: Mapping[str, str] | None = None,
        chat_template: str | None = None,
    ) -> None:
        described = _checked_model(content)
        self._inner = _open(content, tuple((roles or {}).values()))
        decoder, model = self._inner.decoder, self._inner.model
        steps = [] if decoder is None else flat_steps(json.loads(decoder.__getstate__()), "decoders")
        added = self._inner.get_added_tokens_decoder()
        self.specials: dict[str, int] = {token.content: i for i, token in sorted(added.items()) if token.special}
        self.roles = {role: name for role, name in (roles or {}).items() if self._inner.token_to_id(name) is not None}
        self.chat_template = chat_template
        self.size = max((*vocabulary_ids(described.get("vocab")), *added), default=-1) + 1
        if not self.size:
            raise ConfigError("the tokenizer has an empty vocabulary", hint="restore the file")
        self._holds_all = rewrites_earlier_text(steps)
        self._holds_bytes = any(step["type"] == "ByteFallback" for step in steps)
        self._byte_level = any(step["type"] == "ByteLevel" for step in steps)
        self._model_type = type(model).__name__
        i = described.get("unk_id") if self._model_type == "Unigram" else None
        self._unknown: str | None = getattr(model, "unk_token", None) if i is None else model.id_to_token(i)
        self._drops_unknown = self._model_type == "BPE" and not (
            self._unknown or model.byte_fallback or self._byte_level
        )
        # Special tokens that are words of the model as well: these could come out of plain text.
        words = {i: name for name, i in self.specials.items() if model.token_to_id(name) is not None}
        self._lookalikes = {i: name for i, name in words.items() if name != self._unknown}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PublishedTokenizer:
        """Read a `tokenizer.json`, or the one in a folder, with what `tokenizer_config.json` beside it says."""
        file = Path(path) / TOKENIZER if Path(path).is_dir() else Path(path)
        if not file.is_file():
            raise CheckpointError(f"there is no {file}", hint=f"pass a {TOKENIZER}, or a folder that holds one")
        config, jinja = _read_object(file.with_name(CONFIG)), file.with_name(TEMPLATE)
        roles = {**_roles(_read_object(file.with_name(SPECIALS))), **_roles(config)}
        template = _read(jinja) if jinja.is_file() else _template(config.get("chat_template"))
        try:
            return cls(_read(file), roles=roles, chat_template=template)
        except ConfigError as error:
            raise CheckpointError(f"{path}: {error.fact}", hint=error.hint) from error

    def save(self, folder: str | os.PathLike[str], **more: Any) -> None:
        """Write `tokenizer.json` and, with `more` fields, `tokenizer_config.json`, as other libraries read them."""
        config: dict[str, Any] = {f"{role}_token": name for role, name in self.roles.items()}
        if self.chat_template is not None:
            config["chat_template"] = self.chat_template
        # Without a class, `AutoTokenizer` of transformers does not know how to open the file.
        config |= {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **more}
        folder = Path(folder)
        with explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in ((TOKENIZER, json.loads(self._inner.to_str())), (CONFIG, config)):
                text = json.dumps(content, ensure_ascii=False, indent=2)
                (folder / name).write_text(text + "\n", encoding="utf-8")

    def encode(self, text: str, *, specials: bool = False, parse_special: bool = False) -> Array:
        """Return the ids of `text`: int64 (T,).

        specials         put the special tokens around it that the model was trained with, such as [CLS] … [SEP]
        parse_special    read the names of special tokens in the text as those tokens; only for text you wrote yourself
        """
        return self.encode_all([text], specials=specials, parse_special=parse_special)[0]

    def encode_all(self, texts: Sequence[str], *, specials: bool = False, parse_special: bool = False) -> list[Array]:
        """Return the ids of each text, as `encode` does, on all cores."""
        for text in texts:
            check_characters(text)
            if self._drops_unknown and not parse_special:
                self._refuse_unknown(text)
        return self._encoded(self._parsing if parse_special else self._inner, texts, specials=specials)

    def encode_marked(self, text: str) -> Array:
        """Return the ids of `text`, in which each character of `marks` stands for its special token: int64 (T,).

        All else is plain text, whatever it says and whatever a normalizer makes of it.
        """
        check_characters(text)
        if self._drops_unknown:
            self._refuse_unknown(text.translate({ord(mark): None for mark in self.marks.values()}))
        reader, specials = self._marked
        [ids] = self._encoded(reader, [text], specials=False)
        return np.array([specials.get(i, i) for i in ids.tolist()], dtype=np.int64)

    @cached_property
    def marks(self) -> dict[str, str]:
        """One private character for each special token, by its name."""
        if len(self.specials) > 1 << 15:
            fact = f"the tokenizer has {len(self.specials):,} special tokens"
            raise ConfigError(fact, hint=f"use one with at most {1 << 15:,}")
        return {name: chr(_LAST_PRIVATE - i) for i, name in enumerate(self.specials)}

    def decode(self, ids: Sequence[int] | Array, *, skip_specials: bool = False) -> str:
        """Return the text of `ids`; special tokens appear by name unless they are skipped."""
        return self._inner.decode(check_decodable(ids, self.size).tolist(), skip_special_tokens=skip_specials)

    def pieces(self, text: str, *, specials: bool = False, parse_special: bool = False) -> list[tuple[str, int]]:
        """Return what `text` is cut into, to look at: the spelling of each piece and its id."""
        ids = self.encode(text, specials=specials, parse_special=parse_special).tolist()
        return [(self.piece(i), i) for i in ids]

    def spans(self, text: str, *, specials: bool = False) -> list[tuple[int, int]]:
        """Return for each id of `text` where its characters begin and end; nowhere for special tokens around it."""
        found = self._inner.encode(text, add_special_tokens=specials)
        spans = []
        for number, span, is_added in zip(found.ids, found.offsets, found.special_tokens_mask, strict=True):
            is_spelled_out = number in self._lookalikes and not is_added
            spans += [span] * (len(self._letters(number)) if is_spelled_out else 1)
        return spans

    def piece(self, id: int) -> str:  # noqa: A002
        """Return how the vocabulary spells one id, with spaces as spaces and half characters as \\x escapes."""
        token = self._inner.id_to_token(int(id)) or ""
        if token in self.specials:
            return token
        if not self._byte_level:
            return token.replace("▁", " ")
        if any(letter not in BYTE_LETTERS for letter in token):
            return token
        return bytes(BYTE_LETTERS[letter] for letter in token).decode("utf-8", "backslashreplace")

    def holds(self, id: int) -> bool:  # noqa: A002
        """Return whether the text up to this id can still change; `StreamDecoder` asks.

        Tokens that stand for one byte each are read as a run: a single wrong byte makes the whole run unreadable.
        """
        token = self._inner.id_to_token(int(id)) or ""
        return self._holds_all or (self._holds_bytes and len(token) == 6 and token.startswith("<0x"))

    def role_id(self, role: str) -> int | None:
        """Return the id of the token for a role: bos, eos, pad, unk, cls, sep or mask; None without one."""
        if role not in ROLES:
            raise ConfigError(f"there is no role {role!r} of a special token", hint=f"known: {', '.join(ROLES)}")
        return None if role not in self.roles else self._inner.token_to_id(self.roles[role])

    def to_dict(self) -> dict[str, Any]:
        content = json.dumps(json.loads(self._inner.to_str()), ensure_ascii=False, separators=(",", ":"))
        return {"kind": self.kind, "json": content, "roles": dict(self.roles), "chat_template": self.chat_template}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PublishedTokenizer:
        """Build the tokenizer that `to_dict` described."""
        content, roles = field(data, "json", cls.kind), field(data, "roles", cls.kind)
        if not isinstance(roles, dict):
            raise ConfigError(f"the roles of a stored tokenizer are {roles!r:.80}", hint="store it with to_dict()")
        return cls(content, roles=roles, chat_template=field(data, "chat_template", cls.kind))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._model_type}, {self.size:,} ids, specials={list(self.specials)})"

    def _encoded(self, reader: Any, texts: Sequence[str], *, specials: bool) -> list[Array]:
        """Return the ids of each text that one of the library's tokenizers gives."""
        try:
            encodings = reader.encode_batch_fast(texts, add_special_tokens=specials)
        except BaseException as error:
            if not is_refusal(error):
                raise
            if len(texts) > 1:  # find the text
                return [ids for text in texts for ids in self._encoded(reader, [text], specials=specials)]
            fact = f"the tokenizer cannot encode {texts[0][:40]!r}: {error}"
            raise TokenError(fact, hint="leave out what it does not know") from error
        every = [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]
        if reader.encode_special_tokens and self._lookalikes:
            masks = [np.array(encoding.special_tokens_mask, dtype=bool) for encoding in encodings]
            every = [self._spelled_out(ids, mask) for ids, mask in zip(every, masks, strict=True)]
        return every

    @cached_property
    def _marked(self) -> tuple[Any, dict[int, int]]:
        """The library's tokenizer that knows the characters of `marks` as words, and the special token of each word.

        One reading of the whole text, so that spaces around special tokens are treated as they always are.
        """
        from tokenizers import AddedToken

        reader = _open(self._inner.to_str(), ())
        stored = self._inner.get_added_tokens_decoder()
        for name, mark in self.marks.items():
            like = stored[self.specials[name]]
            normalizer = self._inner.normalizer
            # A normalizer that changes the mark must not see it.
            normalized = like.normalized and (normalizer is None or normalizer.normalize_str(mark) == mark)
            reader.add_tokens([AddedToken(mark, lstrip=like.lstrip, rstrip=like.rstrip, normalized=normalized)])
        return reader, {reader.token_to_id(mark): self.specials[name] for name, mark in self.marks.items()}

    @cached_property
    def _parsing(self) -> Any:
        """The library's tokenizer that reads names of special tokens.

        A second object, because the choice is a switch on the object, which threads would flip under each other.
        """
        parsing = _open(self._inner.to_str(), ())
        parsing.encode_special_tokens = False
        return parsing

    def _spelled_out(self, ids: Array, added: Array) -> Array:
        """Replace special tokens that came out of plain text by the letters of their names."""
        wrong = np.isin(ids, list(self._lookalikes)) & ~added
        if not wrong.any():
            return ids
        pairs = zip(ids.tolist(), wrong.tolist(), strict=True)
        return np.array([j for i, is_wrong in pairs for j in (self._letters(i) if is_wrong else [i])], dtype=np.int64)

    def _letters(self, special: int) -> list[int]:
        """Return the ids that spell the name of a special token out."""
        name = self._lookalikes[special]
        unknown: Any = None if self._unknown is None else self._inner.token_to_id(self._unknown)
        # A word that is not in the vocabulary is one unknown token to the models of whole words.
        parts = list(name) if self._model_type in ("BPE", "Unigram") else [name]
        letters = [None if part == name else self._inner.token_to_id(part) for part in parts]
        if None in letters and unknown is None:
            fact = f"the text holds {name!r}, which this tokenizer knows as a special token only"
            raise TokenError(fact, hint="leave it out, or pass parse_special=True if it is meant to be one")
        return [unknown if letter is None else letter for letter in letters]

    def _refuse_unknown(self, text: str) -> None:
        """Refuse characters that a BPE without an unknown token would leave out without a word."""
        normalizer, splitter = self._inner.normalizer, self._inner.pre_tokenizer
        normal = text if normalizer is None else normalizer.normalize_str(text)
        words = [normal] if splitter is None else [word for word, _ in splitter.pre_tokenize_str(normal)]
        added = {token.content for token in self._inner.get_added_tokens_decoder().values() if not token.special}
        model = self._inner.model
        prefix, suffix = model.continuing_subword_prefix or "", model.end_of_word_suffix or ""
        for letter in sorted(set("".join(words)) - set("".join(added))):
            spellings = (letter, prefix + letter, letter + suffix, prefix + letter + suffix)
            if all(self._inner.token_to_id(spelling) is None for spelling in spellings):
                fact = f"character {letter!r} (U+{ord(letter):04X}) is unknown, and this tokenizer has no unknown token"
                raise TokenError(fact, hint="leave it out")


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}", hint="restore it from a copy") from None


def _read_object(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file; an empty one where there is no file."""
    try:
        value = json.loads(_read(file)) if file.is_file() else {}
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file} is no JSON: {error}", hint="restore it from a copy") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{file} holds no JSON object", hint="restore it from a copy")
    return value


def _roles(config: dict[str, Any]) -> dict[str, str]:
    """Return the special tokens by role; each is given by name, or as an object that holds the name."""
    tokens = {role: config.get(f"{role}_token") for role in ROLES}
    names = {role: token.get("content") if isinstance(token, dict) else token for role, token in tokens.items()}
    return {role: name for role, name in names.items() if isinstance(name, str) and name}


def roles_of(names: Collection[str]) -> dict[str, str]:
    """Return the roles of special tokens that are called by them, such as <bos>."""
    return {role: f"<{role}>" for role in ROLES if f"<{role}>" in names}


def _template(value: Any) -> str | None:
    """Return the chat template; of several with names, the one called default."""
    if isinstance(value, list):
        named = [entry for entry in value if isinstance(entry, dict) and entry.get("name") == "default"]
        value = named[-1].get("template") if named else None
    return value if isinstance(value, str) else None


def rewrites_earlier_text(steps: list[dict[str, Any]]) -> bool:
    """Return whether a decoder's steps may change text of earlier tokens, so that it is certain only at the end.

    The usual ones do not, except for the ends of texts; a step that is not known here might.
    """
    fused = False
    for step in steps:
        name = step["type"]
        strips = name == "Strip" and (step["start"] > 1 or (fused and step["stop"] > 0))
        replaces = name == "Replace" and fused and len(step["pattern"].get("String", "")) != 1
        if strips or replaces or name not in _STEADY:
            return True
        fused = fused or name in ("Fuse", "ByteLevel")
    return False


def _checked_model(content: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the model that is described; refuse ids far beyond the number of tokens: the library makes room for all.

    Of what is no tokenizer nothing is returned: the library says what is wrong with it.
    """
    try:
        described = json.loads(content) if isinstance(content, str) else content
        model = described["model"]
        ids = [*(token["id"] for token in described.get("added_tokens") or ()), *vocabulary_ids(model.get("vocab"))]
        largest = max(ids, default=0)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return {}
    if largest > SPARSEST * len(ids) + MOST_UNUSED:
        fact = f"the tokenizer has {len(ids):,} tokens, but an id of {largest:,}"
        raise ConfigError(fact, hint="the file is damaged: get it again")
    return model


def _open(content: str | Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """Return the library's tokenizer; `names` become special tokens where the file has them as plain ones."""
    from tokenizers import AddedToken, Tokenizer

    try:
        tokenizer = Tokenizer.from_str(content) if isinstance(content, str) else _assembled(content)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        special = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
        missing = [name for name in names if name not in special and tokenizer.token_to_id(name) is not None]
        tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in missing])
    except BaseException as error:
        if not is_refusal(error):
            raise
        hint = "restore the file; if it is whole, a newer version of `tokenizers` may read it"
        raise ConfigError(f"the content of a tokenizer.json cannot be read: {error}", hint=hint) from error
    tokenizer.encode_special_tokens = True
    return tokenizer


def _assembled(described: Mapping[str, Any]) -> Any:
    """Return the library's tokenizer for a BPE; writing JSON of its vocabulary and reading it takes twice as long."""
    from tokenizers import AddedToken, Tokenizer, models

    model = {name: value for name, value in described["model"].items() if name != "type"}
    empty = {"type": "BPE", "vocab": {}, "merges": []}
    tokenizer = Tokenizer.from_str(json.dumps({**described, "model": empty, "added_tokens": []}))
    tokenizer.model = models.BPE(**model)
    added = described["added_tokens"]
    tokenizer.add_tokens([AddedToken(**{key: token[key] for key in token.keys() - {"id"}}) for token in added])
    return tokenizer


def is_refusal(error: BaseException) -> bool:
    """Return whether an error is the library's own: it has no class for them, and its panics are no `Exception`s."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"
