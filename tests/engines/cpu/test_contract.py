"""Every kernel gives what it stands for, in results, in records and in gradients."""

import inspect
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare import assert_same
from engines.cpu.kernel_cases import KERNELS, PAIRS, PATTERNS, SINGLES, case_of, normal
from glassformer import ops
from glassformer.core.dispatch import use_engine
from glassformer.core.tree import flatten, tree_map
from glassformer.engines import cpu
from glassformer.proofs.case import OpCase
from proof_cases import LAYER_CASES, MODEL_CASES, OP_CASES

LIMITS = {np.dtype("float32"): 1e-5, np.dtype("float64"): 1e-12}
"""How far a kernel may be from its op, by the largest number of the result."""

SHAPES = st.lists(st.sampled_from([0, 1, 2, 3, 5, 8, 17]), min_size=1, max_size=4).map(tuple)
KINDS = st.sampled_from(["float32", "float64"])
SEEDS = st.integers(0, 2**32 - 1)


def parameters(function):
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def by_kernel(case):
    """The same case computed by kernels and nothing else."""
    return replace(case, op=KERNELS[case.op.__name__], backward=KERNELS[case.backward.__name__])


def computed(case, dy=None):
    """The result, the record and the gradients of a case, for a random dy unless given."""
    y, saved = case.forward()
    assert y is not NotImplemented
    if dy is None:
        # Laid out as the first argument, where it has its shape: heads cut out of rows meet their like.
        dy = np.empty_like(case.arrays[0] if np.shape(y) == case.arrays[0].shape else y)
        dy[...] = np.random.default_rng(1).standard_normal(np.shape(y))
        dy[~np.isfinite(y)] = 0
    return (y,), saved, case.gradients(dy, saved), dy


def assert_kernel_equals_op(case, *, covered=True):
    """Compare kernel with op, and one's forward with the other's backward; `covered`: the kernel must not decline."""
    with use_engine("numpy"):
        y, saved, grads, dy = computed(case)
    before = tree_map(np.copy, (case.arrays, saved, dy))
    kernel = by_kernel(case) if covered else case
    kernel_y, kernel_saved, kernel_grads, _ = computed(kernel, dy)
    assert_same(kernel_y, y, LIMITS)
    assert_same(kernel_saved, saved, LIMITS)
    assert_same(kernel_grads, grads, LIMITS)
    assert_same(kernel.gradients(dy, saved), grads, LIMITS)
    with use_engine("numpy"):
        assert_same(case.gradients(dy, kernel_saved), grads, LIMITS)
    for name, copy in flatten(before).items():  # nobody wrote to what they were given
        np.testing.assert_array_equal(flatten((case.arrays, saved, dy))[name], copy, err_msg=name)


# Compared in test_quantized.py and test_decode.py.
ELSEWHERE = {"quantized_product", "Stack.read_blocks"}


def is_covered(case):
    """Whether a kernel takes the case: shared keys have no kernel for their gradient."""
    return case.op is not ops.attention or case.arrays[0].shape[-3] == case.arrays[1].shape[-3]


def test_every_kernel_has_a_case_or_a_test_of_its_own_and_every_file_with_one_is_loaded():
    known = {*PAIRS, *(f"{name}_backward" for name in PAIRS), *SINGLES, *ELSEWHERE}
    assert KERNELS.keys() - known == set(), "add a case in kernel_cases.py, or name the test that compares it"
    assert known - KERNELS.keys() == set(), "there is a case without a kernel"

    folder = Path(cpu.__file__).parent
    marked = {
        ".".join(path.relative_to(folder).with_suffix("").parts)
        for path in folder.rglob("*.py")
        if "\n@replaces(" in path.read_text(encoding="utf-8")
    }
    # The trainer imports its own: `in_place` has other parameters than `Optimizer.update`, which nothing dispatches.
    assert marked == {*cpu.HOMES, "trainer"}


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_a_kernel_has_the_signature_of_what_it_replaces(name):
    kernel = KERNELS[name]
    original = kernel.kernel.original
    assert parameters(kernel) == parameters(original) == parameters(original.__wrapped__)


@pytest.mark.parametrize("name", PAIRS)
@given(shape=SHAPES, kind=KINDS, seed=SEEDS)
def test_kernels_equal_their_ops(name, shape, kind, seed):
    case = case_of(name, shape, kind, seed)
    assert_kernel_equals_op(case, covered=is_covered(case))


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(2, 3, 5, 8), (3, 5), (1, 1), (2, 2, 17, 3)])
def test_kernels_cover_the_usual_case(name, kind, shape):
    axes, draw = PAIRS[name]
    shape = shape if len(shape) >= axes else (2, *shape)
    for seed in range(20):
        case = case_of(name, shape, kind, seed)
        if by_kernel(case).forward() is not NotImplemented:
            return
    pytest.fail(f"the kernel declined all of them, {draw.__name__}")


@pytest.mark.parametrize("name", SINGLES)
@given(shape=SHAPES, kind=KINDS, seed=SEEDS)
def test_kernels_without_a_gradient_equal_their_ops(name, shape, kind, seed):
    arrays, settings = SINGLES[name](np.random.default_rng(seed), shape, np.dtype(kind))
    before = [np.copy(x) for x in arrays]
    have, want = KERNELS[name](*arrays, **settings), getattr(ops, name).__wrapped__(*arrays, **settings)
    assert have is not NotImplemented
    assert_same(have if isinstance(have, tuple) else (have,), want if isinstance(want, tuple) else (want,), LIMITS)
    for x, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(x, copy)


@pytest.mark.parametrize("case", OP_CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_the_engines_agree_on_every_case_of_the_proofs(case, kind):
    arrays = tuple(None if x is None else _like(x, kind) for x in case.arrays)
    assert_kernel_equals_op(replace(case, arrays=arrays), covered=False)


def _like(x, kind):
    """The same numbers in another type, laid out in memory as they were."""
    return x.astype(kind, order="K")


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize("queries", [200, 70])
def test_long_sequences_go_by_blocks_with_the_same_result(rng, kind, pattern, queries):
    # Heads cut out of rows, as layers make them; more keys than one block, not a multiple of any.
    q = normal(rng, (2, queries, 2, 8), kind).swapaxes(1, 2)
    k, v = (normal(rng, (2, 200, 2, 8), kind).swapaxes(1, 2) for _ in range(2))
    for op, backward in ((ops.attention, ops.attention_backward), (ops.attention_tiled, ops.attention_tiled_backward)):
        case = OpCase(op.__name__, op, backward, (q, k, v, None), (), {"pattern": pattern})
        assert_kernel_equals_op(case, covered=False)


def in_kind(tree, kind):
    return tree_map(lambda x: x.astype(kind) if getattr(x, "dtype", np.dtype(int)).kind == "f" else x, tree)


def cast_case(case, kind):
    """The same case with all floats in another type."""
    parts = ("params", "inputs", "settings") if hasattr(case, "inputs") else ("params", "settings")
    return replace(case, **{part: in_kind(dict(getattr(case, part)), kind) for part in parts})


@pytest.mark.parametrize("case", LAYER_CASES + MODEL_CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_the_engines_agree_on_layers_and_models(case, kind):
    case = cast_case(case, kind)
    have = case.forward(), case.gradients()
    with use_engine("numpy"):
        want = case.forward(), case.gradients()
    assert_same(have, want, LIMITS[np.dtype(kind)])
