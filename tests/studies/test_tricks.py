"""The study of the speed run's tricks: exact gradients, the same logits with a cache, and what is compared."""

import numpy as np
import pytest

from glassformer.config import DecoderConfig
from glassformer.models import Batch, build
from glassformer.proofs.case import ModelCase, OpCase, scattered
from glassformer.proofs.check import prove_case
from glassformer.proofs.model_cases import SEQUENCES, SIZES, TOKENS
from glassformer.studies import Rows, tricks
from glassformer.studies.finding import compared
from glassformer.studies.tricks import BLOCKS, SpeedDecoder, register, relu2, relu2_backward
from own_parts import forgotten

SETTINGS = {**SIZES, "heads": 2, "kv_heads": 1, "positions": "rotary"}


@pytest.fixture(autouse=True)
def registered():
    """Register the parts for one test, and forget them."""
    with forgotten():
        register()
        yield


def speed_decoder(block, *, seed=0, tied=True, **tricks_of_model):
    model = SpeedDecoder(DecoderConfig(**SETTINGS, block=block, activation="relu2", tied_head=tied), **tricks_of_model)
    return model, scattered(model, np.random.default_rng(seed))


@pytest.mark.parametrize(("block", "soft_cap", "values"), [("qk_norm", False, False), ("speed", True, True),
                                                           ("zero_qk", True, True)])  # fmt: skip
def test_gradients_are_exact_and_reading_on_gives_the_same_logits(block, soft_cap, values):
    model, params = speed_decoder(block, tied=not values, soft_cap=soft_cap, values=values)
    check = prove_case(ModelCase("tricks", model, params, Batch(**SEQUENCES)))
    assert check.ok, check.reason
    cache = model.new_cache()
    pieces = [model.read(params, TOKENS[:, part], cache) for part in (slice(0, 3), slice(3, 4), slice(4, 5))]
    np.testing.assert_allclose(np.concatenate(pieces, axis=1), model.forward(params, TOKENS)[0], atol=1e-12)


def test_tricks_do_what_they_say_with_exact_gradients():
    check = prove_case(OpCase("relu2", relu2, relu2_backward, (np.random.default_rng(0).standard_normal((3, 4)),)))
    assert check.ok, check.reason
    model, params = speed_decoder("speed")
    plain = build(DecoderConfig(**SETTINGS, activation="relu2"))
    np.testing.assert_allclose(model.forward(params, TOKENS)[0], plain.forward(params, TOKENS)[0], atol=1e-12)

    model, _ = speed_decoder("zero_outputs")
    x = np.random.default_rng(0).standard_normal((2, 3, SIZES["width"]))
    np.testing.assert_array_equal(model.stack.block.forward(model.stack.block.init(0, np.float64), x)[0], x)
    model, params = speed_decoder("qk_norm")
    (record, *_) = model.forward(params, TOKENS)[1]["blocks"]
    for part in (record["attention"].attend.q, record["attention"].attend.k):
        np.testing.assert_allclose((part**2).mean(axis=-1), 1, atol=1e-3)
    model, params = speed_decoder("speed", soft_cap=True)
    params["embedding"]["tokens"]["table"] *= 1000
    assert np.abs(model.forward(params, TOKENS)[0]).max() <= 30


def test_a_run_is_measured_and_every_trick_trains():
    point = {**tricks.grid(True)[-1], "width": 16, "heads": 2, "layers": 1, "steps": 4, "eval_every": 2, "context": 8}
    found = tricks.measure(point, 0)
    assert found["at"] == [2, 4]
    assert not found["diverged"]
    assert found == tricks.measure(point, 0) | {"step_ms": found["step_ms"]}
    assert {point["block"] for point in tricks.grid(False)} == set(BLOCKS)


def curve(trick, seed, speed, **more):
    at = list(range(20, 420, 20))
    losses = [3 - speed * step / 400 - 0.01 * seed for step in at]
    return {
        "trick": trick,
        "seed": seed,
        "steps": 400,
        "diverged": False,
        "at": at,
        "losses": losses,
        "step_ms": 2.0,
    } | more


def test_steps_and_times_are_compared_with_those_of_the_plain_model():
    speeds = {"none": 1, "ReLU²": 1.0, "Muon": 2.0, "untied head": 0.5}
    rows = Rows(curve(name, seed, speed) for name, speed in speeds.items() for seed in range(3))
    steps, seconds = compared(tricks.STUDY, rows)
    assert {one.setting["trick"]: one.verdict for one in steps} == {
        "none": "whole", "Muon": "better", "ReLU²": "no clear difference", "untied head": "worse",
    }  # fmt: skip
    assert steps[0].result.mean == pytest.approx(320, rel=0.01)
    assert seconds[0].result.mean == pytest.approx(0.64, rel=0.01)
    assert steps[-1].lacking == 3
