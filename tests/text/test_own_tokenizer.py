"""A tokenizer of one's own is stored and comes back by its kind, and the task `text` takes it by name."""

import numpy as np
import pytest

import glassformer as gf
from glassformer.core import registry
from glassformer.core.errors import ConfigError
from glassformer.data import build_task
from glassformer.text import TOKENIZERS, tokenizer_from_dict


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


def test_a_registered_tokenizer_comes_back_from_its_dict_and_takes_no_built_in_name():
    assert set(registry.BUILT_IN["tokenizer"]) == set(TOKENIZERS)
    for kind in ("chars", "bpe"):
        with pytest.raises(ConfigError, match=f"'{kind}' is the name of a built-in tokenizer"):
            gf.register_tokenizer(type("Mine", (Upper,), {"kind": kind}))

    with pytest.raises(ConfigError, match="no tokenizer of kind 'upper'"):
        tokenizer_from_dict(Upper("AB").to_dict())
    assert gf.register_tokenizer(Upper) is Upper
    back = tokenizer_from_dict(Upper("ABC").to_dict())
    assert back.decode(back.encode("abcA")) == "ABCA"


def test_what_is_no_tokenizer_is_refused():
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
