"""The study `parts`: the removed part is absent, the mask's absence is seen through."""

import numpy as np
import pytest

import glassformer as gf
from glassformer.core.errors import ConfigError
from glassformer.proofs import layer_cases, model_cases, prove_case
from glassformer.studies import parts
from own_parts import forgotten

SMALL = {"steps": 2, "width": 16, "layers": 1, "batch": 4, "eval_every": 2}


@pytest.fixture(autouse=True)
def points():
    with forgotten():
        yield {(point["task"], point["part"]): {**point, **SMALL} for point in parts.grid(False)}


def test_every_part_is_removed_once_and_a_mask_reads_from_left_to_right(points):
    assert len(points) == 3 * len(parts.REMOVED) - 1
    assert ("majority", parts.MASK) not in points

    small = {"train": 8, "held_out": 4}
    counts = {part: parts.measure({**points["reverse", part], **small}, 0)["parameters"] for part in parts.REMOVED}
    full = counts[parts.FULL]
    less = {part: full - count for part, count in counts.items() if count != full}
    assert less == {"norms": 3 * 2 * 16, "positions": 22 * 16, "attention": 4 * (16 * 16 + 16) + 2 * 16,
                    "feed-forward": 2 * 16 * 64 + 64 + 16 + 2 * 16}  # fmt: skip

    settings = {name: value for name, value in points["reverse", parts.FULL].items() if name != "part"}
    model = parts.trained(seed=0, **settings, train=8, held_out=5)
    batch = next(iter(model.task.held_out.batches(5)))
    logits, _ = model.model.predict(model.params, batch)
    np.testing.assert_allclose(parts.read_left_to_right(model, batch), logits, atol=1e-5)


def test_the_block_without_a_mask_has_exact_gradients_and_refuses_a_cache():
    cases = [case for case in [*layer_cases(), *model_cases()] if "no_causal_mask" in case.name]
    assert len(cases) == 2
    assert all(prove_case(case).ok for case in cases)
    config = gf.DecoderConfig(vocab=5, width=8, heads=2, layers=1, context=8, block="no_causal_mask")
    model, tokens = gf.build(config), np.array([[1, 2, 3]])
    params = model.init(0)
    seen = [model.forward(params, np.array([[1, 2, last]]))[0][0, 0] for last in (3, 4)]
    assert not np.allclose(*seen)  # the first token knows of the last
    with pytest.raises(ConfigError, match="takes no cache"):
        model.read(params, tokens, model.new_cache())
