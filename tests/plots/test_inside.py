"""Sections of the methods of looking inside: those that a model allows, about the example that is asked for."""

import numpy as np
import pytest

from glassformer import Batch, Decoder, DecoderConfig, Encoder, EncoderConfig, EncoderDecoder, EncoderDecoderConfig
from glassformer.interpret import Labels
from glassformer.plots import inside
from glassformer.plots.inside import method_sections

pytestmark = pytest.mark.usefixtures("numpy_engine")

SIZES = {"vocab": 7, "width": 8, "heads": 2, "layers": 2, "context": 8}
TOKENS = np.array([[1, 2, 3, 4], [5, 6, 0, 0]])
MASK = np.array([[True] * 4, [True, True, False, False]])
LABELS = Labels(lambda i: f"t{i}", classes=lambda i: f"class {i}")


def sections(model, *, example=0, **batch):
    found = method_sections(model, model.init(0, np.float64), Batch(TOKENS, **batch), example, LABELS)
    return {section.heading: section for section in found}


def test_a_decoder_shows_words_parts_and_kinds_without_padding():
    found = sections(Decoder(DecoderConfig(**SIZES)), example=1, mask=MASK)
    assert list(found) == ["What it would have said before", "What adds to the answer", "Kinds of heads"]
    drawn = found["What it would have said before"].pictures[0].draw()
    assert [label.get_text() for label in drawn.axes[0].get_xticklabels()] == ["t5", "t6"]
    bars = found["What adds to the answer"].pictures[0].draw()
    assert "What adds to the logit of “t" in bars.get_suptitle()
    assert any("head=0" in label.get_text() for label in bars.axes[0].get_yticklabels())
    (kinds,) = found["Kinds of heads"].pictures
    assert kinds.name == "decoder-kinds"
    assert "induction" in kinds.draw().get_label()


def test_a_classifier_speaks_of_the_sequence():
    found = sections(Encoder(EncoderConfig(**SIZES, classes=3)))
    assert "class" in found["What it would have said before"].pictures[0].draw().get_label()
    assert [picture.name for picture in found["Kinds of heads"].pictures] == ["encoder-kinds"]


def test_an_encoder_decoder_has_three_kinds_of_attention():
    found = sections(EncoderDecoder(EncoderDecoderConfig(**SIZES)), source=TOKENS)
    assert [picture.name for picture in found["Kinds of heads"].pictures] == [
        "encoder-kinds", "decoder-kinds", "cross-kinds",
    ]  # fmt: skip


def test_what_a_model_does_not_allow_is_left_out(monkeypatch):
    assert sections(Encoder(EncoderConfig(**SIZES, head="none"))) == {}
    bent = sections(Encoder(EncoderConfig(**SIZES, head="tokens", activation="gelu")))
    assert "What adds to the answer" not in bent
    monkeypatch.setattr(inside, "LONGEST", 3)
    assert list(sections(Decoder(DecoderConfig(**SIZES)))) == ["Kinds of heads"]
    monkeypatch.setattr(inside, "SHORTEST", 9)
    assert sections(Decoder(DecoderConfig(**SIZES))) == {}
