"""All figures of one example, of any architecture."""

import re
from pathlib import Path

import numpy as np
import pytest

from glassformer import Batch, Decoder, DecoderConfig, Encoder
from glassformer.interpret import Labels, watch
from glassformer.plots import inspect_model, inspection
from glassformer.plots.inspection import _answer

pytestmark = pytest.mark.usefixtures("numpy_engine", "coarse_figures")

METRICS = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0, "val_loss": 1.5, "accuracy": 0.5}]


def names(files):
    return {file.stem for file in files}


def test_an_encoder_has_classes_heads_layers_and_positions_in_both_themes(encoder, tmp_path):
    labels = Labels(tokens=lambda i: "abcde"[i], classes=lambda i: f"class {i}")
    files = inspect_model(*encoder, tmp_path, labels=labels, metrics=METRICS)
    wanted = {
        *("prediction", "encoder-layer-0", "encoder-heads", "encoder-positions"),
        *("encoder-position-table", "encoder-position-similarity", "encoder-layers", "loss"),
        *("lens", "attribution", "encoder-kinds"),
    }
    assert names(files) == wanted | {f"{name}-dark" for name in wanted}
    assert all(file.stat().st_size > 400 for file in files)


def test_a_decoder_has_the_next_token_and_both_three_kinds_of_attention(
    decoder, tmp_path, encoder_decoder, unseen_figures
):
    files = inspect_model(*decoder, tmp_path, theme="light")
    assert {"prediction", "predictions", "full-against-causal", "decoder-layer-0"} <= names(files)
    assert not any(name == "loss" or name.endswith("-dark") for name in names(files))
    found = names(inspect_model(*encoder_decoder, tmp_path, theme="light"))
    assert {f"{kind}-layer-0" for kind in ("encoder", "decoder", "cross")} <= found
    assert {f"{kind}-kinds" for kind in ("encoder", "decoder", "cross")} <= found
    assert {"encoder-position-table", "decoder-position-table"} <= found


def test_single_tokens_missing_tables_and_missing_heads_are_drawn_as_far_as_they_go(tmp_path, encoder, unseen_figures):
    model = Decoder(DecoderConfig(vocab=4, width=8, heads=2, layers=1, context=4, positions="rotary"))
    found = names(inspect_model(model, model.init(0), Batch(np.array([1])), tmp_path, theme="light"))
    assert "full-against-causal" not in found
    assert not any("position-table" in name for name in found)
    for head, predicts in (("tokens", True), ("none", False)):
        model = Encoder(encoder[0].config.replace(head=head, classes=None))
        files = inspect_model(model, model.init(0), Batch(np.array([[1, 2, 3]])), tmp_path / head, theme="dark")
        assert ("prediction" in names(files)) == ("lens" in names(files)) == predicts


def test_a_deep_model_has_an_overview_and_figures_for_each_layer(tmp_path, unseen_figures):
    model = Decoder(DecoderConfig(vocab=7, width=34, heads=17, layers=5, context=8))
    told = []
    files = inspect_model(
        model, model.init(0), Batch(np.array([[1, 2, 3]])), tmp_path, theme="light", form="svg",
        progress=lambda done, total, name: told.append((done, total)),
    )  # fmt: skip
    # Sixteen heads fit into one figure; the seventeenth has its own.
    assert {"decoder-layer-4-heads-0", "decoder-layer-4-heads-16", "decoder-grid"} <= names(files)
    assert told == [(done, len(files)) for done in range(len(files))]
    assert {file.suffix for file in files} == {".svg"}


def test_the_lens_leaves_padding_out_and_ends_where_a_text_is_too_long(monkeypatch):
    model = Decoder(DecoderConfig(vocab=7, width=8, heads=2, layers=2, context=8))
    mask = np.array([[True] * 4, [True, True, False, False]])
    batch = Batch(np.array([[1, 2, 3, 4], [5, 6, 0, 0]]), mask=mask)
    labels = Labels(lambda i: f"t{i}")
    run = watch(model, model.init(0), batch, labels=labels)
    drawn = {name: draw() for name, draw in _answer(run, 1)}
    assert [label.get_text() for label in drawn["lens"].axes[0].get_xticklabels()] == ["t5", "t6"]
    assert any("head=0" in label.get_text() for label in drawn["attribution"].axes[0].get_yticklabels())
    monkeypatch.setattr(inspection, "LONGEST", 3)
    assert not list(_answer(run, 1))


def test_the_examples_of_the_documentation_run_as_printed(tmp_path, monkeypatch, unseen_figures):
    monkeypatch.chdir(tmp_path)
    words = (Path(__file__).parents[2] / "docs" / "guides" / "figures.md").read_text(encoding="utf-8")
    variables = {}
    for block in re.findall(r"```python\n(.*?)```", words, flags=re.DOTALL):
        exec(block, variables)
    for name in ("attention.svg", "losses.png", "pictures/mine/prediction-dark.png"):
        assert (tmp_path / name).is_file()
