"""What a page may send: everything else is refused in a sentence."""

import pytest

from glassformer.core.errors import ConfigError
from glassformer.web.state import WORDS, PageChange, read, read_state


def test_a_state_is_read_as_it_was_sent_and_told_apart_by_its_key():
    change = {"word": "zero", "name": "blocks.0", "where": {"position": 2}}
    found = read_state({"model": "m", "text": "t", "changes": [change], "of": {"kind": "logit", "token": 3}})
    assert (found.model, found.text, found.answer) == ("m", "t", None)
    assert found.changes[0].where == {"position": 2}
    assert (found.of.kind, found.of.token, found.of.position) == ("logit", 3, -1)

    one = {"model": "m", "text": "t", "changes": [{"word": "scale", "name": "a", "value": 2}]}
    assert read_state(one).key() == read_state({**one, "steps": []}).key()
    assert read_state(one).key() != read_state({**one, "text": "u"}).key()
    assert read_state(one).key() != read_state({**one, "changes": []}).key()


@pytest.mark.parametrize("word", WORDS)
def test_every_word_is_known(word):
    assert read(PageChange, {"word": word, "name": "a", "value": 1, "other": "b"}, "a change").word == word


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "a state is None"),
        ([], r"a state is \[\]"),
        ({}, "model is None"),
        ({"model": 3}, "model is 3"),
        ({"model": "m", "txt": "t"}, "unknown part 'txt'"),
        ({"model": "m", "text": "t" * 30_000}, "30,000 characters"),
        ({"model": "m", "changes": {}}, "changes is {}"),
        ({"model": "m", "changes": [1]}, "a part of changes is 1"),
        ({"model": "m", "changes": [{"word": "zer", "name": "a"}]}, "word is 'zer'"),
        ({"model": "m", "changes": [{"word": "zero", "name": "a", "where": {"layer": 1}}]}, "unknown part 'layer'"),
        ({"model": "m", "changes": [{"word": "zero", "name": "a", "where": {"head": 1.5}}]}, "head is 1.5"),
        ({"model": "m", "changes": [{"word": "scale", "name": "a", "value": "2"}]}, "value is '2'"),
        ({"model": "m", "changes": [{"word": "scale", "name": "a", "value": float("nan")}]}, "value is nan"),
        ({"model": "m", "changes": [{"word": "zero", "name": "a"}] * 201}, "at most 200"),
        ({"model": "m", "of": {"kind": "all"}}, "kind is 'all'"),
        ({"model": "m", "of": {"kind": "logit", "token": True}}, "token is True"),
        ({"model": "m", "of": {"kind": "logit", "token": 2**40}}, "token is"),
        ({"model": "m", "of": {"kind": "entry", "name": "a", "index": "0"}}, "index is '0'"),
        ({"model": "m", "steps": [{"optimizer": "sgd"}]}, "lr is None"),
    ],
)
def test_whatever_does_not_fit_is_refused(given, said):
    with pytest.raises(ConfigError, match=said) as refused:
        read_state(given)
    assert refused.value.hint
