"""Single entries of gradients, by the backward pass and by the complex step."""

import numpy as np
import pytest

from glassformer.core.errors import ConfigError
from glassformer.core.tree import flatten, tree_map
from glassformer.interpret import Cards, Logit, Sum, gradients, scale, watch, zero


def test_any_entry_a_logit_and_a_sum_are_proven(run, rng):
    run = run.changed(scale(str(rng.choice([name for name in run if name.endswith("feed_forward")])), 0.5))
    values = {**{name: run[name] for name in run if not name.endswith("mask")}, **flatten(run.params)}
    found = gradients(run)
    for name, value in values.items():
        index = tuple(int(rng.integers(size)) for size in value.shape)
        assert Cards(run, found=found).prove(name, index).difference < 1e-12, name

    stream = next(name for name in run if name.endswith("blocks.0"))
    first = "source_embedding" if "source_embedding" in run else "embedding"
    for target in (Logit(1), Logit(2, against=0, example=1), Sum(stream, 2.0, position=1)):
        found = Cards(run, target).prove(first, (0, 1, 3))
        assert found.difference < 1e-12
        assert found.step != 0 or isinstance(target, Logit)


def test_single_precision_is_proven_in_double_and_what_has_no_derivative_refused(decoder):
    model, params, batch = decoder
    run = watch(model, tree_map(lambda x: x.astype(np.float32), params), batch).changed(zero("blocks.0.attention"))
    assert Cards(run).prove("blocks.0.feed_forward", (0, 1, 2)).difference < 1e-12

    run = watch(*decoder)
    with pytest.raises(ConfigError, match="no real number"):
        Cards(run).prove("blocks.0.attention.attend.mask", (0, 0, 0, 0))
    with pytest.raises(ConfigError, match="3 axes"):
        Cards(run).prove("blocks.0", (0, 0))
