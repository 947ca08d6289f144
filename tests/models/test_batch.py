"""A batch of examples."""

import numpy as np

from glassformer.models.batch import Batch
from glassformer.tree import flatten, tree_map


def test_what_is_not_used_is_none_and_has_no_name():
    batch = Batch(np.zeros((2, 3), int), np.ones((2, 3), int))
    assert batch.mask is batch.source is batch.source_mask is batch.segments is None
    assert list(flatten(batch)) == ["tokens", "targets"]


def test_a_batch_is_cut_like_any_other_tree():
    batch = Batch(np.arange(6).reshape(2, 3), mask=np.ones((2, 3), bool))
    first = tree_map(lambda x: x[:1], batch)
    assert isinstance(first, Batch)
    np.testing.assert_array_equal(first.tokens, [[0, 1, 2]])
    assert first.mask.shape == (1, 3)
    assert first.targets is None
