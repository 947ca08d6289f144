"""Tokenizers: text comes back unchanged, and what cannot be encoded or decoded is named."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import glassformer as gf
from glassformer.core import registry
from glassformer.core.errors import ConfigError, DTypeError, TokenError
from glassformer.data import build_task
from glassformer.text import (
    TOKENIZERS,
    BPETokenizer,
    ByteTokenizer,
    CharTokenizer,
    PublishedTokenizer,
    WordPieceTokenizer,
    WordTokenizer,
    printable,
    tokenizer_from_dict,
)
from tokenizer_files import word_piece

ANY_TEXT = st.text(alphabet=st.characters(), max_size=60)  # lone surrogates are left out by default
EXAMPLES = {
    "chars": CharTokenizer("hello wörld\n\\ 日本", specials=("<pad>", "<bos>")),
    "bytes": ByteTokenizer(specials=("<eos>",)),
    "words": WordTokenizer(["one", "two", "three"], specials=("<eos>",)),
    "bpe": BPETokenizer.train("hello hello wörld", size=264, specials=("<bos>", "<eos>")),
    "wordpiece": WordPieceTokenizer.train("hello hello wörld, hello", size=40, specials=("<pad>", "<eos>")),
    "tokenizer.json": PublishedTokenizer(word_piece().to_str(), roles={"cls": "[CLS]"}, chat_template="{{ messages }}"),
}


def test_every_kind_has_a_case_here():
    assert EXAMPLES.keys() == TOKENIZERS.keys()


@pytest.mark.parametrize("kind", EXAMPLES)
def test_every_id_decodes_and_a_tokenizer_comes_back_from_json(kind):
    tokenizer = EXAMPLES[kind]
    for i in range(tokenizer.size):
        assert tokenizer.decode([i, i])
    for name, i in tokenizer.specials.items():
        assert tokenizer.decode(np.array([i])) == name
    assert tokenizer.decode([]) == ""
    assert tokenizer.encode("").shape == (0,)

    again = tokenizer_from_dict(json.loads(json.dumps(tokenizer.to_dict())))
    assert again == tokenizer
    assert hash(again) == hash(tokenizer)
    assert again.specials == tokenizer.specials
    assert [again.decode([i]) for i in range(again.size)] == [tokenizer.decode([i]) for i in range(tokenizer.size)]


@pytest.mark.parametrize("kind", EXAMPLES)
def test_ids_outside_the_vocabulary_are_refused(kind):
    tokenizer = EXAMPLES[kind]
    with pytest.raises(TokenError, match=f"hold {tokenizer.size} at index"):
        tokenizer.decode([0, tokenizer.size])
    with pytest.raises(TokenError, match="-1"):
        tokenizer.decode([-1])
    with pytest.raises(DTypeError, match=r"shape \(1, 1\)"):
        tokenizer.decode([[0]])
    with pytest.raises(DTypeError, match="integers"):
        tokenizer.decode([0.5])


@pytest.mark.parametrize("specials", [("",), ("<a>", "<a>"), None, "<a>", (3,)])
def test_special_tokens_need_distinct_names(specials):
    with pytest.raises(ConfigError, match="special tokens"):
        CharTokenizer("ab", specials=specials)
    with pytest.raises(ConfigError, match="special tokens"):
        ByteTokenizer(specials=specials)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"kind": "char", "characters": "ab", "specials": []}, "did you mean 'chars'"),
        ({"kind": "chars", "specials": []}, "without its 'characters'"),
        ({"kind": "chars", "characters": "\\x", "specials": []}, "cannot be read"),
        ({"kind": "chars", "characters": 5, "specials": []}, "cannot be read"),
        ({"kind": "bytes"}, "without its 'specials'"),
        ({"kind": "words", "words": ["a", "a"], "specials": []}, "distinct"),
        ({"kind": "bpe"}, "without its 'json'"),
        ({"kind": "tokenizer.json", "json": "{}", "roles": {}, "chat_template": None}, "cannot be read"),
        ({"kind": "tokenizer.json", "json": "{}", "roles": [], "chat_template": None}, r"roles .* are \[\]"),
        ({}, "with its kind"),
        (None, "with its kind"),
    ],
)
def test_a_damaged_description_is_refused(data, message):
    with pytest.raises(ConfigError, match=message):
        tokenizer_from_dict(data)


@given(ANY_TEXT)
def test_characters_survive_the_round_trip(text):
    tokenizer = CharTokenizer(text + "x", specials=("<bos>",))
    ids = tokenizer.encode(text)
    assert ids.dtype == np.int64
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.size == len(set(text + "x")) + 1
    assert tokenizer_from_dict(json.loads(json.dumps(tokenizer.to_dict()))) == tokenizer


def test_characters_are_sorted_after_the_special_tokens():
    tokenizer = CharTokenizer("banana", specials=("<pad>",))
    assert tokenizer.characters == "abn"
    assert tokenizer.specials == {"<pad>": 0}
    assert tokenizer.encode("nab").tolist() == [3, 1, 2]


@pytest.mark.parametrize(
    ("text", "character", "position"), [("abz", "'z'", 2), ("a\ud800", r"U\+D800", 1), ("日", "日", 0)]
)
def test_an_unknown_character_is_named_with_its_position(text, character, position):
    with pytest.raises(TokenError, match=rf"{character}.* at position {position}, .* is unknown") as caught:
        CharTokenizer("abc").encode(text)
    assert "'abc'" in caught.value.hint


def test_special_tokens_are_never_read_from_text_and_single_characters_alone_are_a_vocabulary():
    with pytest.raises(TokenError, match="'<'"):
        CharTokenizer("abpd", specials=("<pad>",)).encode("a<pad>")
    with pytest.raises(ConfigError, match="'ab' is not one character"):
        CharTokenizer(["ab", "c"])
    with pytest.raises(ConfigError, match="at least one"):
        CharTokenizer("")


@given(ANY_TEXT)
def test_bytes_encode_every_text(text):
    tokenizer = ByteTokenizer()
    assert tokenizer.encode(text).tolist() == list(text.encode())
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(st.lists(st.integers(0, 255), max_size=40))
def test_every_sequence_of_bytes_survives_decoding(ids):
    tokenizer = ByteTokenizer()
    assert tokenizer.encode(tokenizer.decode(ids)).tolist() == ids


def test_lone_bytes_survive_by_name_and_what_has_no_bytes_is_refused():
    tokenizer = ByteTokenizer(specials=("<eos>",))
    assert tokenizer.size == 257
    assert tokenizer.decode([0xC3, 256, 0xA9, 65, 256]) == "\udcc3<eos>\udca9A<eos>"
    with pytest.raises(TokenError, match=r"U\+D800 at position 1"):
        ByteTokenizer().encode("a\ud800")
    assert printable("aé日\udcc3b") == "aé日\ufffdb"
    assert printable(ByteTokenizer().decode(range(256))).encode("utf-8")


def test_words_are_split_at_white_space():
    tokenizer = WordTokenizer([str(i) for i in range(20)])
    assert tokenizer.encode(" 1 12\n3 ").tolist() == [1, 12, 3]
    assert tokenizer.decode([1, 12, 3]) == "1 12 3"
    with pytest.raises(TokenError, match="word '20' at position 1"):
        tokenizer.encode("1 20")
    with pytest.raises(ConfigError, match="white space"):
        WordTokenizer(["a b"])


class Upper:
    """One token for each letter, whatever its case."""

    kind = "upper"

    def __init__(self, letters):
        self.letters, self.specials = letters, {}
        self.size = len(letters)

    def encode(self, text):
        return np.array([self.letters.index(letter) for letter in text.upper()], dtype=np.int64)

    def decode(self, ids):
        return "".join(self.letters[i] for i in ids)

    def to_dict(self):
        return {"kind": self.kind, "letters": self.letters}

    @classmethod
    def from_dict(cls, data):
        return cls(data["letters"])


def test_a_registered_tokenizer_comes_back_from_its_dict_and_others_are_refused():
    assert set(registry.BUILT_IN["tokenizer"]) == set(TOKENIZERS)
    for kind in ("chars", "bpe"):
        with pytest.raises(ConfigError, match=f"'{kind}' is the name of a built-in tokenizer"):
            gf.register_tokenizer(type("Mine", (Upper,), {"kind": kind}))

    with pytest.raises(ConfigError, match="no tokenizer of kind 'upper'"):
        tokenizer_from_dict(Upper("AB").to_dict())
    assert gf.register_tokenizer(Upper) is Upper
    back = tokenizer_from_dict(Upper("ABC").to_dict())
    assert back.decode(back.encode("abcA")) == "ABCA"

    with pytest.raises(
        ConfigError, match=r"it has no decode, to_dict, from_dict(.|\n)*hint: a tokenizer is a class with"
    ):
        gf.register_tokenizer(type("Half", (), {"kind": "half", "encode": None}))
    with pytest.raises(ConfigError, match="it has no kind"):
        gf.register_tokenizer("upper")


def test_the_task_text_takes_it_by_name_if_it_can_be_made_from_a_text(tmp_path):
    (tmp_path / "t.txt").write_text("aBcAbC" * 40)
    options = {"data": tmp_path / "t.txt", "tokenizer": "upper", "context": 8}
    gf.register_tokenizer(Upper)
    with pytest.raises(ConfigError, match=r"'upper' cannot be made from a text(.|\n)*from_text"):
        build_task("text", **options)
    Upper.from_text = classmethod(lambda cls, text: cls("".join(sorted(set(text.upper())))))
    try:
        task = build_task("text", **options)
    finally:
        del Upper.from_text
    assert task.tokenizer.decode(task.train.tokens[:6]) == "ABCABC"
    with pytest.raises(ConfigError, match="did you mean 'upper'"):
        build_task("text", **{**options, "tokenizer": "uper"})
