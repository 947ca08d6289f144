"""Products by an address equal NumPy's, with each BLAS that is here."""

import numpy as np
import pytest

from compare import assert_close
from glassformer import Batch, build, ops, use_engine
from glassformer.core.threads import threads
from glassformer.core.tree import flatten
from glassformer.engines.cpu import products
from glassformer.engines.cpu.linear import WIDE
from glassformer.engines.cpu.products import BYTES, mkl, multiply_tiles

BLAS = ["numpy", *(["mkl"] if mkl() is not None else [])]
KINDS = {"float32": 1e-5, "float64": 1e-13}


@pytest.fixture(params=BLAS)
def blas(request, monkeypatch):
    """The BLAS that kernels call from here on; plans of layers that are made later hold its address."""
    if request.param == "numpy":
        monkeypatch.setattr(products, "_address_in_mkl", lambda dtype: 0)
    else:
        monkeypatch.setattr(products, "_address_in_numpy", products._address_in_mkl)
    assert products.gemm_address(np.dtype("float32"), 1e9)
    return request.param


def matrices(rng, M, K, N, kind):
    return (normal(rng, (M, K), kind), normal(rng, (K, M), kind).T), (
        normal(rng, (K, N), kind),
        normal(rng, (N, K), kind).T,
    )


def normal(rng, shape, kind):
    return rng.standard_normal(shape).astype(kind)


def close(a, b, limit):
    np.testing.assert_allclose(a, b, rtol=0, atol=limit * max(1.0, float(np.abs(b).max())))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(150, 90, 80), (1, 1000, 600), (700, 1000, 1), (33, 257, 65), (2, 3, 4)])
def test_every_layout_gives_what_numpy_gives(rng, blas, kind, shape):
    lefts, rights = matrices(rng, *shape, kind)
    wide = normal(rng, (shape[0] + 3, shape[1] + 5), kind)
    for a in (*lefts, wide[2:-1, 4:-1], wide[: shape[0], : shape[1]], wide[3:, 5:][::-1]):
        for b in rights:
            table = np.full((shape[0], shape[2] + 7), 5, kind)
            products.multiply_into(a, b, table[:, 3:-4])
            close(table[:, 3:-4], a @ b, KINDS[kind])
            assert (table[:, :3] == 5).all()
            assert (table[:, -4:] == 5).all()


@pytest.mark.parametrize("shape", [(701, 300, 260), (30, 400, 5003)])
def test_large_products_of_intels_blas_are_shared_out_to_all_cores(rng, monkeypatch, shape):
    """With the address of any BLAS: the rows of a tall result, the columns of a wide one."""
    address, multiply, shares = products.gemm_address(np.dtype("float32"), 1e9), products._multiply, []
    monkeypatch.setattr(products, "_address_in_mkl", lambda dtype: address)
    monkeypatch.setattr(products, "_multiply", lambda *given: shares.append(given[3].shape) or multiply(*given))
    lefts, rights = matrices(rng, *shape, "float32")
    with threads(3):
        for a in lefts:
            for b in rights:
                y = np.empty((shape[0], shape[2]), np.float32)
                products.multiply_into(a, b, y)
                close(y, a @ b, KINDS["float32"])
    axis = int(shape[2] > shape[0])
    assert len(shares) == 12
    assert sum(own[axis] for own in shares) == 4 * max(shape[0], shape[2])


def test_numbers_that_are_none_and_infinities_come_through(rng, blas):
    a, b = normal(rng, (2, 120, 120), "float32")
    a[3, 4], a[7, 8] = np.nan, np.inf
    y = np.empty_like(a)
    products.multiply_into(a, b, y)
    np.testing.assert_array_equal(np.isfinite(y), np.isfinite(a @ b))


@pytest.mark.parametrize("kind", KINDS)
def test_bits_do_not_depend_on_where_arrays_begin(rng, blas, kind):
    M, N = 100, 70
    a, b = normal(rng, (M, 129), kind), normal(rng, (129, N), kind)
    found = []
    for start in (0, 1, 3, 8):
        moved = [np.empty(x.size + 16, x.dtype)[start : start + x.size].reshape(x.shape) for x in (a, b)]
        moved[0][...], moved[1][...] = a, b
        out = np.empty(M * N + 16, kind)[start : start + M * N].reshape(M, N)
        products.multiply_into(*moved, out)
        found.append(out)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@pytest.mark.parametrize("sizes", [(8, 32), (40, 64)])
def test_a_model_has_the_loss_and_the_gradients_of_its_ops(rng, blas, sizes):
    T, width = sizes
    model = build("shakespeare", layers=2, width=width, heads=4, context=T, vocab=11)
    params = model.init(seed=0)
    tokens = rng.integers(11, size=(3, T + 1))
    batch = Batch(tokens[:, :-1].copy(), tokens[:, 1:].copy())
    with use_engine("numpy"):
        loss, grads = model.loss_and_grads(params, batch)
    with use_engine("cpu"):
        ours, found = model.loss_and_grads(params, batch)
    close(ours, loss, 1e-5)
    wanted = flatten(grads)
    for name, gradient in flatten(found).items():
        close(gradient / np.abs(wanted[name]).max(), wanted[name] / np.abs(wanted[name]).max(), 2e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_tiled_attention_is_that_of_its_op(rng, blas, kind):
    q, k, v, dy = (normal(rng, (1, 300, 2, 16), kind).swapaxes(1, 2) for _ in range(4))
    with use_engine("numpy"):
        y, saved = ops.attention(q, k, v, pattern=ops.CAUSAL)
        grads = ops.attention_backward(dy, saved, pattern=ops.CAUSAL)
    with use_engine("cpu"):
        ours, kept = ops.attention_tiled(q, k, v, pattern=ops.CAUSAL)
        found = ops.attention_tiled_backward(dy, kept, pattern=ops.CAUSAL)
    for a, b in zip((ours, *found[:3]), (y, *grads[:3]), strict=True):
        close(a, b, 10 * KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_places_that_do_not_count_in_the_loss_need_no_products(kind, order, share):
    rng = np.random.default_rng(0)
    w, b = np.array(normal(rng, (8, WIDE), kind), order=order), normal(rng, (WIDE,), kind)
    dy = normal(rng, (3, 10, WIDE), kind) * (rng.random((3, 10, 1)) < share).astype(kind)
    saved = ops.linear(normal(rng, (3, 10, 8), kind), w, b)[1]
    with use_engine("numpy"):
        expected = ops.linear_backward(dy, saved)
    with use_engine("cpu"):
        found = ops.linear_backward(dy, saved)
    for one, other in zip(found, expected, strict=True):
        close(one, other, KINDS[kind])
    assert found[1].flags[f"{order}_CONTIGUOUS"]


def rounded(rng, rows, columns, kind):
    """Return random numbers whose rows hold whole registers, as a matrix and as such rows."""
    lanes = BYTES // np.dtype(kind).itemsize
    x = rng.standard_normal((rows, -(-columns // lanes) * lanes)).astype(kind)
    return x[:, :columns], x


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (6, 64, 3), (13, 150, 300), (7, 33, 128)], ids=str)
@pytest.mark.parametrize("turned", [False, True])
def test_products_of_all_sizes_equal_those_of_numpy(rng, kind, shape, turned):
    m, n, k = shape
    a = rng.standard_normal((k, m)).astype(kind).T if turned else rng.standard_normal((m, k)).astype(kind)
    (b, b_rows), (c, c_rows) = rounded(rng, k, n, kind), rounded(rng, m, n, kind)
    for beta in (0, 1):
        wanted = a @ b + beta * c
        multiply_tiles(
            m, n * b.itemsize, k, a.ctypes.data, *a.strides, b_rows.ctypes.data, b.strides[0], b.dtype.type(beta),
            c_rows.ctypes.data, c.strides[0],
        )  # fmt: skip
        assert_close(c, wanted, 1e-12 if kind == "float64" else 1e-5)
