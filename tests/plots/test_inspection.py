"""Everything about one example of any architecture, on one page."""

import numpy as np
import pytest

from glassformer import Batch, Decoder, DecoderConfig, Encoder
from glassformer.interpret import Labels, trace
from glassformer.plots import inspect_model
from glassformer.plots.inspection import _predictions
from pages import read_page as read

pytestmark = pytest.mark.usefixtures("numpy_engine", "coarse_figures")

METRICS = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0, "val_loss": 1.5, "accuracy": 0.5}]


def names(files):
    return {file.stem for file in files if not file.stem.endswith("-dark")}


def check(files, *, themes=2):
    """Every picture is there in each theme, described, and shown on the page."""
    page = read(files[0])
    shown = [image["src"] for image in page.images] + [image["src"] for image in page.dark]
    assert sorted(shown) == sorted(file.name for file in files[1:])
    assert len(page.dark) == (themes - 1) * len(page.images)
    for image in page.images + page.dark:
        assert len(image["alt"]) > 20
    assert all((files[0].parent / name).stat().st_size > 400 for name in shown)
    return page


def test_an_encoder_shows_classes_and_heads_over_all_examples(encoder, tmp_path):
    labels = Labels(tokens=lambda i: "abcde"[i], classes=lambda i: f"class {i}")
    files = inspect_model(*encoder, tmp_path, labels=labels, metrics=METRICS, title="Mine", summary=[("task", "test")])
    assert names(files) == {
        *("index", "prediction", "encoder-layer-1", "encoder-heads", "encoder-positions"),
        *("encoder-position-table", "encoder-position-similarity", "encoder-layers", "loss"),
        *("lens", "attribution", "encoder-kinds"),
    }
    page = check(files)
    assert "Mine" in page.words
    assert any("Every head, over 3 examples" in word for word in page.words)
    assert any("class 1" in image["alt"] for image in page.images)


def test_a_decoder_shows_the_next_token_and_the_mask(decoder, tmp_path):
    files = inspect_model(*decoder, tmp_path, labels=Labels(lambda i: f"<{i}>"), theme="light")
    page = check(files, themes=1)
    assert {"prediction", "predictions", "full-against-causal", "decoder-layer-1"} <= names(files)
    assert "loss" not in names(files)
    (last,) = [image["alt"] for image in page.images if image["src"] == "prediction.png"]
    read = " ".join(f"<{token}>" for token in decoder[2].tokens[0])
    assert last.startswith(f"What comes after “{read}”?")


def test_of_a_long_input_the_end_stands_in_the_title(tmp_path):
    model = Decoder(DecoderConfig(vocab=7, width=8, heads=2, layers=1, context=40))
    seen = trace(model, model.init(0), Batch(np.arange(40)[None] % 7), labels=Labels(lambda i: f"<{i}>"))
    picture = _predictions(seen, Labels(lambda i: f"<{i}>")).pictures[0]
    assert picture.draw().get_suptitle() == "What comes after “… <5> <6> <0> <1> <2> <3> <4>”?"


def test_an_encoder_decoder_shows_what_the_target_looks_at_in_the_source(encoder_decoder, tmp_path):
    labels = Labels(lambda i: f"t{i}", lambda i: f"s{i}")
    files = inspect_model(*encoder_decoder, tmp_path, labels=labels, theme="light")
    assert {"cross-layer-1", "cross-heads", "encoder-layer-1", "decoder-layer-1"} <= names(files)
    assert {"encoder-position-table", "decoder-position-table"} <= names(files)
    page = check(files, themes=1)
    assert {"layers: encoder, decoder", "1, 1", "vocabulary: source, target", "9, 7"} <= set(page.words)
    # What holds for all three kinds of attention is said once.
    assert sum("more attention than chance" in word for word in page.words) == 1
    assert sum("Under a causal mask" in word for word in page.words) == 1
    (cross,) = [image["alt"] for image in page.images if image["src"] == "cross-layer-1.png"]
    assert "4 queries in rows, 6 keys in columns" in cross


def test_a_single_token_and_positions_without_a_table(tmp_path):
    model = Decoder(DecoderConfig(vocab=4, width=8, heads=2, layers=1, context=4, positions="rotary"))
    files = inspect_model(model, model.init(0), Batch(np.array([1])), tmp_path, theme="light")
    assert "full-against-causal" not in names(files)
    assert not any("position-table" in name for name in names(files))
    check(files, themes=1)


def test_an_encoder_that_fills_in_tokens_and_one_without_a_head(encoder, tmp_path, unseen_figures):
    for head, pictured in (("tokens", True), ("none", False)):
        model = Encoder(encoder[0].config.replace(head=head, classes=None))
        files = inspect_model(model, model.init(0), Batch(np.array([[1, 2, 3]])), tmp_path / head, theme="dark")
        assert ("prediction" in names(files)) == pictured


def test_strange_tokens_stay_text(decoder, tmp_path):
    strange = ["<script>alert(1)</script>", "$\\alpha$", "月", "\ud800", "\n", "", "&amp;"]
    labels = Labels(lambda i: strange[i])
    files = inspect_model(*decoder, tmp_path, labels=labels, title=strange[0], theme="light")
    page = check(files, themes=1)
    assert "script" not in page.tags
    assert strange[0] in page.words


def test_a_deep_model_has_an_overview_and_a_fold_for_each_layer(tmp_path, unseen_figures):
    model = Decoder(DecoderConfig(vocab=7, width=34, heads=17, layers=5, context=8))
    told = []
    files = inspect_model(
        model, model.init(0), Batch(np.array([[1, 2, 3]])), tmp_path, theme="light",
        progress=lambda done, total, name: told.append((done, total)), intro="A model of mine",
    )  # fmt: skip
    page = read(files[0])
    lines = [word for word in page.words if (word.startswith("Layer ") and ": 17 " in word) or ", " in word]
    assert sum(line.startswith("Layer ") for line in lines) == 5
    # Sixteen heads fit into one picture; the seventeenth has its own.
    assert {"decoder-layer-5-heads-1", "decoder-layer-5-heads-17", "decoder-grid"} <= names(files)
    assert any("A table of 85 heads" in word for word in page.words)
    assert files[0].read_text(encoding="utf-8").count("<tr>") > 85
    assert told[0] == (0, len(page.images))
    assert told[-1] == (len(page.images), len(page.images))
    assert "A model of mine" in page.words


def test_the_input_keeps_its_line_breaks(decoder, tmp_path, unseen_figures):
    strange = ["a", "\n", "b", "c", "d", "e", "f"]
    batch = Batch(np.array([[0, 1, 2]]))
    page = read(inspect_model(*decoder[:2], batch, tmp_path, labels=Labels(lambda i: strange[i]), theme="light")[0])
    assert "a ↵\nb" in page.words


def test_figures_for_slides_stand_beside_the_page(encoder, tmp_path, unseen_figures):
    files = inspect_model(*encoder, tmp_path, theme="dark", copies="svg")
    assert {file.suffix for file in files} == {".html", ".png", ".svg"}
    assert "loss" not in names(files)
    assert "color-scheme: dark;" in files[0].read_text(encoding="utf-8")
