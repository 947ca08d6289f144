"""The memory of a record, counted without making one; test_accounting.py compares it with real records."""

import itertools

import pytest

from glassformer.config import DecoderConfig, EncoderConfig
from glassformer.models.activations import activation_bytes

SIZES = {"vocab": 11, "width": 8, "heads": 2, "layers": 2, "context": 64}


def test_memory_is_that_of_one_example_times_the_batch():
    config = DecoderConfig(**SIZES)
    assert activation_bytes(config, 6, 10) == 6 * activation_bytes(config, 1, 10)


def test_numbers_of_eight_bytes_take_twice_as_much_as_those_of_four():
    config = DecoderConfig(**SIZES)
    assert activation_bytes(config, 1, 10, itemsize=8) == 2 * activation_bytes(config, 1, 10)


def test_every_block_adds_the_same():
    sizes = [activation_bytes(DecoderConfig(**{**SIZES, "layers": layers}), 2, 10) for layers in (1, 2, 3, 4)]
    assert len({later - earlier for earlier, later in itertools.pairwise(sizes)}) == 1


def test_weights_of_all_pairs_grow_with_the_square_of_the_length():
    config = DecoderConfig(**SIZES)
    once, twice, four = (activation_bytes(config, 1, length) for length in (16, 32, 64))
    # Per block and head one weight per pair: what is left of the differences when all that grows evenly cancels.
    assert (four - 2 * twice) - 2 * (twice - 2 * once) == 2 * 2 * 4 * (64**2 - 4 * 32**2 + 4 * 16**2)


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_a_learned_vector_before_the_tokens_is_one_token_more(pooling):
    own = {"head": "classes", "classes": 3}
    cls, other = (EncoderConfig(**SIZES, **own, pooling=kind) for kind in ("cls", pooling))
    assert activation_bytes(cls, 1, 10) > activation_bytes(other, 1, 10)
