"""Readers that remember: the logits of a sequence that is read from its beginning, whatever was asked before."""

import numpy as np
import pytest

from glassformer.config import DecoderConfig
from glassformer.core.errors import LengthError
from glassformer.generation.reader import PlainReader
from glassformer.models import build
from glassformer.web import writer

pytestmark = pytest.mark.usefixtures("numpy_engine")
MODEL = build(DecoderConfig(vocab=11, context=8, width=8, heads=2, feed_forward=16, layers=1))
PARAMS = MODEL.init(0, np.float64)


def plain(ids):
    return PlainReader(MODEL, PARAMS, [np.array(ids)], None).logits[0]


def test_going_on_and_back_gives_what_reading_anew_gives():
    own = writer.PageWriter(MODEL, PARAMS)
    for ids in [(1, 2), (1, 2, 3), (1, 2, 3, 4), (1, 2, 5), (1, 2, 5, 6), (1, 2, 3), (1, 2, 3, 7), (1, 2)]:
        np.testing.assert_allclose(own.logits(ids, None), plain(ids), atol=1e-12)


def test_going_on_reads_one_token_and_going_back_none(monkeypatch):
    read = []
    original = type(MODEL).read

    def noted(model, params, tokens, *others, **settings):
        read.append(tokens.shape[1])
        return original(model, params, tokens, *others, **settings)

    monkeypatch.setattr(type(MODEL), "read", noted)
    own = writer.PageWriter(MODEL, PARAMS)
    for ids in [(1, 2, 3), (1, 2, 3, 4), (1, 2, 3), (1, 2, 3, 4, 5)]:
        own.logits(ids, None)
    assert read == [3, 1, 1]


def test_only_the_last_few_are_kept(monkeypatch):
    monkeypatch.setattr(writer, "LOGITS", 2)
    own = writer.PageWriter(MODEL, PARAMS)
    for number in range(5):
        own.logits((number,), None)
    assert len(own._readers) == writer.READERS
    assert list(own._logits) == [((3,), None), ((4,), None)]


def test_more_than_the_context_is_refused():
    with pytest.raises(LengthError, match="reads at most 8"):
        writer.PageWriter(MODEL, PARAMS).logits((1,) * 9, None)
