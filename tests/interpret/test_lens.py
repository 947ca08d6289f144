"""The logit lens, plain and tuned."""

from dataclasses import replace

import numpy as np
import pytest

import glassformer as gf
from glassformer import Batch, Encoder, EncoderConfig, ops
from glassformer.api.learn import replay
from glassformer.core.errors import ConfigError, LengthError, ShapeError, TokenError
from glassformer.core.tree import flatten, tree_map
from glassformer.interpret import Lens, lens, lens_course, train_lens, tuned_lens, watch
from glassformer.interpret.lens import lens_loss_and_grads, read_point
from glassformer.plots import lens_map
from glassformer.runs.start import new_session
from runs import TINY

SIZES = {"width": 8, "heads": 2, "layers": 2, "context": 12}


decoder_only = pytest.mark.parametrize("run", ["decoder"], indirect=True)


def test_the_last_point_is_exactly_what_the_model_says(run):
    seen = lens(run)
    assert np.array_equal(seen.logits[-1], run.logits)


@pytest.mark.parametrize(
    ("run", "labels"),
    [
        ("decoder", ["embedding", "block 0 attention", "block 0", "block 1 attention", "block 1"]),
        ("encoder", ["embedding", "block 0 attention", "block 0", "block 1 attention", "block 1"]),
        (
            "encoder_decoder",
            ["embedding", *(f"block {n}{part}" for n in range(2) for part in (" attention", " cross-attention", ""))],
        ),
    ],
    indirect=["run"],
)
def test_every_point_of_the_stream_is_read(run, labels):
    assert [point.label for point in lens(run).points] == labels


@pytest.mark.parametrize("settings", [{"norm_position": "post"}, {"norm": "rms", "head": "tokens"}])
def test_points_of_other_models_end_with_what_they_say(rng, settings):
    settings = {"classes": None if "head" in settings else 3, **settings}
    model = Encoder(EncoderConfig(vocab=5, **SIZES, **settings))
    run = watch(model, model.init(0, np.float64), Batch(rng.integers(0, 5, (2, 4))))
    seen = lens(run)
    assert len(seen.points) == 5
    assert np.array_equal(seen.logits[-1], run.logits)


@decoder_only
def test_a_point_in_between_is_read_by_norm_and_head_with_ranks_and_probabilities_of_its_logits(run):
    x = run["blocks.0"]
    centered = x - x.mean(-1, keepdims=True)
    h = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5)
    expected = h @ run.params["embedding"]["tokens"]["table"].T
    assert np.allclose(lens(run, at=["blocks.0"]).logits[0], expected, rtol=1e-13, atol=1e-13)

    seen = lens(run)
    ids, shares = seen.top(7)
    for rank in range(7):
        assert np.array_equal(seen.ranks(ids[-1, ..., rank])[-1], np.full((2, 5), rank))
        assert np.array_equal(seen.probabilities(ids[-1, ..., rank])[-1], shares[-1, ..., rank])
    assert np.allclose(shares.sum(-1), 1)
    assert seen.ranks(3).shape == (5, 2, 5)


@decoder_only
@pytest.mark.parametrize(("size", "count"), [(7, 7), (1000, 1), (1000, 5), (64, 64), (129, 3)])
def test_the_likeliest_of_many_tokens_are_found_by_pieces(run, rng, size, count):
    logits = rng.standard_normal((2, 1, 3, size)).round(1)  # some are equal
    seen = Lens(run, lens(run).points[:2], logits)
    ids, shares = seen.top(count)
    np.testing.assert_array_equal(np.take_along_axis(logits, ids, axis=-1), -np.sort(-logits, axis=-1)[..., :count])
    expected = np.take_along_axis(ops.softmax(logits)[0], ids, axis=-1)
    np.testing.assert_allclose(shares, expected, rtol=1e-13)


@decoder_only
def test_some_positions_and_changed_runs_are_read_as_they_are(run):
    whole = lens(run).logits
    assert np.array_equal(lens(run, positions=[1, -1]).logits[-1], run.logits[[[0], [1]], [[1, 4], [1, 2]]])  # padded
    assert np.allclose(lens(run, positions=4).logits, whole[:, :, -1:], rtol=1e-13)
    assert np.allclose(lens(run, positions=slice(1, 3)).logits, whole[:, :, 1:3], rtol=1e-13)

    from glassformer.interpret import zero

    changed = run.changed(zero("blocks.1.feed_forward"))
    seen = lens(changed)
    assert np.array_equal(seen.logits[-1], changed.logits)
    assert np.array_equal(read_point(changed, run["blocks.1.feed_forward_norm.x"]), seen.logits[-1])


def test_what_is_not_there_is_refused(run):
    size = run.logits.shape[-1]
    with pytest.raises(TokenError, match=f"there is no logit {size}"):
        lens(run).ranks(size)
    with pytest.raises(TokenError, match="names no token"):
        lens(run).ranks(0.5)
    with pytest.raises(ConfigError, match="ask for 1 to"):
        lens(run).top(size + 1)
    with pytest.raises(ConfigError, match="no point of the stream"):
        lens(run, at=["blocks.7"])
    with pytest.raises(LengthError, match="one for each example"):
        lens(run).ranks(np.zeros(9, int))


def test_positions_that_are_not_there_are_refused_and_a_tuned_lens_begins_as_a_plain_one(encoder, decoder, run):
    with pytest.raises(LengthError, match="logits has no position 5"):
        lens(watch(*decoder), positions=5)
    with pytest.raises(ConfigError, match="leave positions out"):
        lens(watch(*encoder), positions=0)
    assert np.array_equal(tuned_lens(run).read(run).logits, lens(run).logits)


def test_gradients_equal_differences(run):
    rng = np.random.default_rng(1)
    tuned = tuned_lens(run)
    maps = [{name: x + 0.1 * rng.standard_normal(x.shape) for name, x in own.items()} for own in tuned.maps]
    _, grads = lens_loss_and_grads(replace(tuned, maps=maps), run)
    for name, place in (("w", (2, 5)), ("b", (3,))):
        losses = []
        for step in (1e-6, -1e-6):
            moved = [{**own, name: own[name].copy()} for own in maps]
            for own in moved:
                own[name][place] += step
            losses.append(lens_loss_and_grads(replace(tuned, maps=moved), run)[0])
        slopes = (losses[0] - losses[1]) / 2e-6
        assert np.allclose([own[name][place] for own in grads], slopes, rtol=1e-6, atol=1e-9)


def test_training_brings_every_point_closer_and_a_lens_that_does_not_fit_is_refused(run, decoder, encoder):
    steps = []
    tuned, losses = train_lens(
        tuned_lens(run), [run, run], steps=30, lr=0.01, progress=lambda *done: steps.append(done)
    )
    assert np.all(losses[-1] < 0.8 * losses[0])
    assert steps[-1] == (30, 30)
    assert np.array_equal(tuned.read(run).logits[-1], run.logits)

    run, other = watch(*decoder), watch(*encoder)
    with pytest.raises(ConfigError, match="0 runs"):
        train_lens(tuned_lens(run), [])
    tuned = tuned_lens(run)
    smaller = replace(tuned, maps=[{"w": np.eye(3), "b": np.zeros(3)}] * 4)
    with pytest.raises(ShapeError, match="another model"):
        smaller.read(run)
    with pytest.raises(ShapeError, match="another model"):
        replace(tuned, points=tuned.points[1:]).read(other)


STEPS, TEXT = [0, 3, 7], "abca"
SETTINGS = {
    **TINY["induction"],
    "norm_position": "pre",
    "positions": "learned",
    "steps": 7,
    "tied_head": False,
    "activation": "relu",
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("course") / "run"
    session = new_session("induction", folder, settings=SETTINGS, recorded=True)
    list(session.steps())
    session.save()
    session.sink.lock.release()
    return replay(folder)


class Doubled:
    """The same frames in float64."""

    def __init__(self, recorded):
        self.recorded, self.spaced = recorded, recorded.spaced

    def frames(self, steps):
        for frame in self.recorded.frames(steps):
            wide = tree_map(lambda x: x.astype(np.float64), frame.trained.params)
            yield replace(frame, trained=replace(frame.trained, params=wide))


def by_hand(params, ids):
    """Return the logits of the last token at every point of the stream of a model of one block."""
    p = flatten(params)

    def norm(name, x):
        centered = x - x.mean(axis=-1, keepdims=True)
        root = np.sqrt((centered**2).mean(axis=-1, keepdims=True) + 1e-5)
        return centered / root * p[f"{name}.gamma"] + p[f"{name}.beta"]

    def linear(name, x):
        return x @ p[f"{name}.w"] + p.get(f"{name}.b", 0)

    x = p["embedding.tokens.table"][ids] + p["embedding.positions.table"][: len(ids)]
    points, h = [x], norm("blocks.0.attention_norm", x)
    q, k, v = (linear(f"blocks.0.attention.{one}", h) for one in ("query", "key", "value"))
    heads = []
    for cut in (slice(0, 4), slice(4, 8)):
        scores = np.where(np.tri(len(ids), dtype=bool), q[:, cut] @ k[:, cut].T / 2, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        heads.append(weights / weights.sum(axis=-1, keepdims=True) @ v[:, cut])
    points.append(points[-1] + linear("blocks.0.attention.output", np.concatenate(heads, axis=-1)))
    hidden = np.maximum(linear("blocks.0.feed_forward.up", norm("blocks.0.feed_forward_norm", points[-1])), 0)
    points.append(points[-1] + linear("blocks.0.feed_forward.down", hidden))
    return np.stack([linear("head", norm("final_norm", point)[-1]) for point in points])


def test_every_step_says_what_its_own_model_says(recorded):
    course = lens_course(Doubled(recorded), TEXT, steps=STEPS[::-1])
    assert course.steps == tuple(STEPS)
    for n, frame in enumerate(recorded.frames(STEPS)):
        wide = tree_map(lambda x: x.astype(np.float64), frame.trained.params)
        expected = by_hand(wide, frame.trained.watch(TEXT).batch.tokens[0])
        np.testing.assert_allclose(course.logits[:, n], expected, rtol=0, atol=1e-9)
        odds = np.exp(expected) / np.exp(expected).sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(course.probabilities(5)[:, n], odds[:, 5], rtol=0, atol=1e-9)


def test_a_course_is_a_lens_after_each_step_with_its_tokens(recorded):
    course = lens_course(recorded, TEXT, steps=STEPS, at=["block 0"], position=0)
    for n, frame in enumerate(recorded.frames(STEPS)):
        seen = lens(frame.trained.watch(TEXT), at=["block 0"], positions=0)
        np.testing.assert_array_equal(course.logits[:, n], seen.logits[:, 0, 0])
    text = repr(course).splitlines()
    assert text[1].split() == ["step", "block", "0"]
    assert [line.split()[0] for line in text[2:]] == ["0", "3", "7"]
    assert text[2].count("'") == 2
    assert len(lens_course(recorded, TEXT).steps) > 3
    figure = lens_map(course)
    assert figure.axes[0].get_xlabel() == "step of the training"
    assert [one.get_text() for one in figure.axes[0].get_xticklabels()] == ["0", "3", "7"]
    assert figure.axes[0].images[0].get_array().shape == (1, 3)


def test_what_is_no_recorded_training_is_refused(recorded):
    with pytest.raises(ConfigError, match="no recorded training"):
        lens_course(gf.build("tiny-decoder"))
    with pytest.raises(ConfigError, match="no steps"):
        lens_course(recorded, TEXT, steps=[])
    with pytest.raises(ConfigError, match="cannot return to step 99"):
        lens_course(recorded, TEXT, steps=[99])
