"""Arrays in a notebook."""

import io
import re
import struct
from dataclasses import replace

import numpy as np
import pytest

import glassformer as gf
from glassformer.core.show import Map, Result, colored, png_of
from glassformer.interpret import (
    Logit,
    Patching,
    ablate_heads,
    attention_maps,
    attention_rollout,
    attribute,
    detect_heads,
    exciting_inputs,
    fit_probe,
    gradient_flow,
    gradients,
    integrated_gradients,
    layer_statistics,
    lens,
    patch_stream,
    show,
    tuned_lens,
    update,
    watch,
)
from glassformer.interpret.heads import score_maps
from glassformer.training import SGD


@pytest.mark.parametrize("fixture", ["encoder", "decoder", "encoder_decoder"])
def test_runs_and_gradients_show_themselves(fixture, request):
    run = watch(*request.getfixturevalue(fixture))
    for shown in (run, gradients(run), show(run.params), show(run.record)):
        first, second = shown._repr_html_(), shown._repr_html_()
        assert first == second
        assert len(first) < 300_000
        assert "src=" not in re.sub(r'src="data:image/png;base64,', "", first)
        assert first.count("<tr>") == first.count("</tr>") > 5
    assert "blocks.0.attention.attend.weights" in run._repr_html_() or fixture == "encoder_decoder"
    assert repr(show(run.params)).count("\n") == len(gf.tree.flatten(run.params))


def results(run, other):
    """One of each kind of result."""
    model, params, batch = run.model, run.params, run.batch
    of = Logit(1, against=0)
    yield lens(run)
    yield attribute(run, of)
    yield ablate_heads(run, targets=[of])
    yield patch_stream(run, other, of)
    yield detect_heads(model, params, length=3)
    yield layer_statistics(run)
    yield gradient_flow(run)
    yield batch
    yield integrated_gradients(run, of, baseline=0.9 * run["embedding"])
    yield attention_rollout(run)
    yield tuned_lens(run)
    yield update(run, SGD(), lr=0.1)
    yield exciting_inputs(model, params, [batch], layer=0)
    yield fit_probe(np.eye(4), np.arange(4.0))
    yield from attention_maps(run).values()


@pytest.mark.parametrize("fixture", ["encoder", "decoder", "encoder_decoder"])
def test_results_show_themselves(fixture, request):
    model, params, batch = request.getfixturevalue(fixture)
    run = watch(model, params, batch)
    other = watch(model, params, batch._replace(tokens=batch.tokens[::-1].copy()))
    for result in results(run, other):
        shown = result._repr_html_()
        assert shown == result._repr_html_()
        assert shown.count("<tr>") == shown.count("</tr>") >= 1
        assert len(shown) < 300_000
        # Nothing is fetched, and no color but those of heat maps is set: the page's own are light or dark.
        assert "src=" not in shown.replace('src="data:image/png;base64,', "")
        assert "color" not in re.sub(r'"data:image/png;base64,[^"]*"', "", shown)


def test_large_results_stay_small_and_trained_models_show_their_parameters():
    rng = np.random.default_rng(0)
    some = score_maps([np.ones((1, 96, 1, 1))] * 96, np.ones((1, 1, 1), dtype=bool))
    numbers = {kind: rng.random((96, 96)) for kind in "abcdef"}
    scores = replace(some, scores=numbers, chance=dict.fromkeys("abcdef", 0.1))
    points = [f"block {n}" for n in range(200)]
    patching = Patching("loss", rng.random((200, 2000)), 0.0, 1.0, points, "position", None, None)
    for result in (scores, patching):
        assert len(result._repr_html_()) < 300_000

    model = gf.build("tiny-decoder")
    shown = gf.TrainedModel(model.config, model.init(0))._repr_html_()
    assert f"decoder, {gf.tree.count(model.specs()):,} parameters in" in shown
    assert "blocks.0.attention.query.w" in shown


def test_odd_arrays_are_shown_as_what_they_are_and_the_picture_is_a_png():
    text = repr(
        show({"empty": np.zeros((0, 3)), "one": np.float32(2.5), "bad": np.array([1.0, np.nan]), "ids": np.arange(3)})
    )
    assert "empty" in text
    assert "2.5" in text
    assert "1 of 2 not finite" in text
    show({"empty": np.zeros((0, 3)), "bad": np.array([1.0, np.inf])})._repr_html_()
    assert "&lt;b&gt;" in show({"<b>": np.ones(2)})._repr_html_()

    image = colored(np.array([[1.0, -2.0, 0.0]]))
    assert image[0, :, 3].tolist() == [128, 255, 0]
    data = png_of(image)
    assert struct.unpack(">II", data[16:24]) == (3, 1)
    from matplotlib import pyplot

    np.testing.assert_allclose(pyplot.imread(io.BytesIO(data)) * 255, image, atol=0.5)


def test_a_result_is_one_table_for_all_readers_that_says_what_is_missing():
    named = Map(np.array([0.5, -1.0, np.nan]), names=["a", "b", "c"])
    result = Result("heads", ("name", "by token", ">adds"), [["x", named, 0.123456], ["<y>", named, None]], ["a note"])
    assert repr(result).splitlines() == ["heads", "name  adds", "x     0.1235", "<y>", "a note"]
    columns, rows = result.texts()
    assert columns == ["name", ">a", ">b", ">c", ">adds"]
    assert rows[0] == ["x", "0.50", "-1.00", "", "0.1235"]
    shown = result._repr_html_()
    assert shown.count("<img") == 2
    assert "&lt;y&gt;" in shown
    assert "&gt;adds" not in shown

    effect = np.array([[0.5, np.nan], [np.nan, np.nan]])
    found = Patching("loss", effect, 0.0, 1.0, ["embedding", "block 0"], "position", ["a", "b"], None).result()
    assert [row[0] for row in found.rows] == ["embedding"]
    assert found.records == [{"point": "embedding", "position": 0, "token": "a", "effect": 0.5, "share": 0.5}]
    assert found.unfinished == "interrupted: 1 of 4 are measured"
