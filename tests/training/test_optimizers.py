"""Every optimizer against PyTorch or its published formula, and the contract that all of them keep."""

import numpy as np
import pytest

from glassformer.core.errors import ConfigError, ShapeError
from glassformer.core.tree import flatten, like, tree_map, unflatten
from glassformer.training import (
    OPTIMIZERS,
    SGD,
    Adam,
    AdamW,
    Lion,
    Muon,
    is_hidden_matrix,
    is_matrix,
    make_optimizer,
    orthogonalized,
)

STEPS = 20
# One case per optimizer with every setting away from zero; a new optimizer fails the contract until it has one.
CASES = {
    "sgd": SGD(momentum=0.9, nesterov=True, weight_decay=0.1),
    "adam": Adam(weight_decay=0.1),
    "adamw": AdamW(weight_decay=0.1),
    "lion": Lion(weight_decay=0.1),
    "muon": Muon(weight_decay=0.1),
}
every_optimizer = pytest.mark.parametrize("name", OPTIMIZERS)


def make_params(rng, dtype=np.float64):
    def draw(*shape):
        return rng.normal(size=shape).astype(dtype)

    return {
        "tokens": {"table": draw(7, 4)},
        "blocks": [
            {"norm": {"gamma": draw(4)}, "up": {"w": draw(4, 6), "b": draw(6)}, "down": {"w": draw(6, 4)}}
            for _ in range(2)
        ],
        "head": {"w": draw(4, 7)},
    }


def make_grads(params, step):
    """Gradients that change with every step, the same for every library."""
    rng = np.random.default_rng(step)
    return tree_map(lambda p: rng.normal(size=p.shape).astype(p.dtype), params)


def rate(step):
    """A learning rate that changes, as under a schedule."""
    return 0.02 / (1 + step)


def run(optimizer, params, steps=STEPS):
    state = optimizer.init(params)
    for step in range(steps):
        params, state = optimizer.update(params, make_grads(params, step), state, lr=rate(step))
    return params, state


def run_torch(torch, make, params, steps=STEPS):
    """Run PyTorch optimizers made from {dotted name: tensor}; return the parameters by dotted name."""
    tensors = {name: torch.nn.Parameter(torch.tensor(p)) for name, p in flatten(params).items()}
    optimizers = make(tensors)
    for step in range(steps):
        for name, g in flatten(make_grads(params, step)).items():
            tensors[name].grad = torch.tensor(g)
        for optimizer, scale in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate(step) * scale
            optimizer.step()
    return {name: p.detach().numpy() for name, p in tensors.items()}


def groups(tensors, decay):
    """Decay matrices alone."""
    return [
        {"params": [p for p in tensors.values() if p.ndim >= 2], "weight_decay": decay},
        {"params": [p for p in tensors.values() if p.ndim < 2], "weight_decay": 0.0},
    ]


def assert_same(have, want, tolerance=1e-12):
    have, want = flatten(have), flatten(want)
    assert have.keys() == want.keys()
    for name in want:
        np.testing.assert_allclose(have[name], want[name], rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_sgd_equals_pytorch(torch, rng, momentum, nesterov, decay):
    params = make_params(rng)
    have, _ = run(SGD(momentum=momentum, nesterov=nesterov, weight_decay=decay), params)
    want = run_torch(
        torch, lambda t: [(torch.optim.SGD(groups(t, decay), momentum=momentum, nesterov=nesterov), 1)], params
    )
    assert_same(have, want)


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_adam_and_adamw_equal_pytorch(torch, rng, name, decay):
    params = make_params(rng)
    have, _ = run(make_optimizer(name.lower(), beta1=0.8, beta2=0.95, eps=1e-6, weight_decay=decay), params)
    make = getattr(torch.optim, name)
    want = run_torch(torch, lambda t: [(make(groups(t, decay), betas=(0.8, 0.95), eps=1e-6), 1)], params)
    assert_same(have, want)


def test_defaults_are_those_of_pytorch(torch, rng):
    params = make_params(rng)
    everywhere = {"decays": lambda name, array: True}
    for name in ("SGD", "Adam", "AdamW"):
        make = getattr(torch.optim, name)
        want = run_torch(torch, lambda t, make=make: [(make(list(t.values())), 1)], params, steps=3)
        assert_same(run(make_optimizer(name.lower(), **everywhere), params, steps=3)[0], want)


def test_lion_equals_the_published_formula(rng):
    params = make_params(rng)
    have, _ = run(Lion(beta1=0.9, beta2=0.99, weight_decay=0.1), params)
    want = {name: p.copy() for name, p in flatten(params).items()}
    means = {name: 0 * p for name, p in want.items()}
    for step in range(STEPS):
        for name, g in flatten(make_grads(params, step)).items():
            c = 0.9 * means[name] + 0.1 * g
            decay = 0.1 if want[name].ndim > 1 else 0.0
            want[name] = want[name] - rate(step) * (np.sign(c) + decay * want[name])
            means[name] = 0.99 * means[name] + 0.01 * g
    assert_same(have, want)


@pytest.mark.parametrize("nesterov", [True, False])
def test_muon_equals_pytorch_for_hidden_matrices_and_adamw_for_the_rest(torch, rng, monkeypatch, nesterov):
    # PyTorch rounds to bfloat16 before it orthogonalizes, and then works in place; a copy keeps the digits.
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda x: x.clone())
    params = make_params(rng)
    # PyTorch keeps weights as (outputs, inputs).
    turned = {name: p.T.copy() if name.endswith(".w") else p for name, p in flatten(params).items()}

    def make(tensors):
        hidden = [p for name, p in tensors.items() if name.startswith("blocks") and name.endswith(".w")]
        rest = {name: p for name, p in tensors.items() if all(p is not h for h in hidden)}
        return [
            (torch.optim.Muon(hidden, weight_decay=0.1, momentum=0.95, nesterov=nesterov), 1),
            (torch.optim.AdamW(groups(rest, 0.1), betas=(0.9, 0.95), eps=1e-10), 0.15),
        ]

    monkeypatch.setitem(globals(), "make_grads", _turned_grads(params, make_grads))
    want = run_torch(torch, make, turned)
    monkeypatch.undo()
    have, _ = run(Muon(weight_decay=0.1, nesterov=nesterov), params)
    assert_same(have, {name: p.T if name.endswith(".w") else p for name, p in want.items()}, 1e-11)


def _turned_grads(params, original):
    def turned(_, step):
        return {name: g.T if name.endswith(".w") else g for name, g in flatten(original(params, step)).items()}

    return turned


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4)])
def test_orthogonalizing_keeps_the_directions_and_evens_the_singular_values(rng, shape):
    x = rng.normal(size=shape)
    y = orthogonalized(x)
    u, _, vt = np.linalg.svd(x, full_matrices=False)
    inner = u.T @ y @ vt.T
    np.testing.assert_allclose(inner, np.diag(np.diag(inner)), atol=1e-12)
    assert np.all((np.diag(inner) > 0.5) & (np.diag(inner) < 1.3))


def test_orthogonalizing_zeros_gives_zeros():
    np.testing.assert_array_equal(orthogonalized(np.zeros((3, 2), np.float32)), np.zeros((3, 2)))


@pytest.mark.parametrize(
    ("name", "shape", "hidden"),
    [
        ("blocks.0.attention.query.w", (4, 4), True),
        ("encoder.blocks.11.feed_forward.up.w", (4, 8), True),
        ("blocks.0.attention.query.b", (4,), False),
        ("blocks.0.norm.gamma", (4,), False),
        ("blocks.0.attention.bias.table", (8, 2), False),
        ("tokens.table", (7, 4), False),
        ("head.w", (4, 7), False),
    ],
)
def test_hidden_matrices_are_the_weights_of_numbered_blocks(name, shape, hidden):
    assert is_hidden_matrix(name, np.zeros(shape)) == hidden


def test_muon_refuses_parameters_without_a_hidden_matrix():
    with pytest.raises(ConfigError, match="finds no hidden matrix"):
        Muon().init({"w": np.zeros((2, 2))})


@every_optimizer
def test_every_optimizer_has_a_case_and_can_be_made_by_name(name):
    assert type(CASES[name]) is OPTIMIZERS[name]
    assert type(make_optimizer(name)) is OPTIMIZERS[name]
    assert 0 < OPTIMIZERS[name].default_lr <= 0.1


@every_optimizer
def test_every_optimizer_gives_the_same_on_jax_under_jit(jax, rng, name):
    optimizer, params = CASES[name], make_params(rng)
    want, want_state = run(optimizer, params)
    step_once = jax.jit(lambda p, g, s, lr: optimizer.update(p, g, s, lr=lr))
    have = like(params, jax.numpy)
    state = optimizer.init(have)
    for step in range(STEPS):
        have, state = step_once(have, like(make_grads(params, step), jax.numpy), state, rate(step))
    assert_same(have, want, 1e-11)
    assert_same(state, want_state, 1e-11)


@every_optimizer
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lr", [0.01, np.float64(0.01), np.asarray(0.01)], ids=["float", "scalar", "array"])
def test_every_optimizer_keeps_types_whatever_the_type_of_the_learning_rate(rng, name, dtype, lr):
    params = make_params(rng, dtype)
    new, state = CASES[name].update(params, make_grads(params, 0), CASES[name].init(params), lr=lr)
    assert {p.dtype for p in flatten(new).values()} == {np.dtype(dtype)}
    assert state["step"].dtype == np.int32
    assert {s.dtype for key, s in flatten(state).items() if key != "step"} == {np.dtype(dtype)}


@every_optimizer
def test_every_optimizer_is_pure_and_remembers_half_precision_parameters_in_float32(rng, name):
    params = make_params(rng, np.float16)
    new, state = run(CASES[name], params, steps=2)
    assert {p.dtype for p in flatten(new).values()} == {np.dtype(np.float16)}
    assert {s.dtype for key, s in flatten(state).items() if key != "step"} == {np.dtype(np.float32)}

    params = make_params(rng)
    state = CASES[name].init(params)
    _, state = CASES[name].update(params, make_grads(params, 0), state, lr=0.1)
    before = tree_map(np.copy, (params, state))
    first = CASES[name].update(params, make_grads(params, 1), state, lr=0.1)
    second = CASES[name].update(params, make_grads(params, 1), state, lr=0.1)
    for a, b in ((before, (params, state)), (first, second)):
        assert_same(a, b, 0)


@every_optimizer
def test_every_state_is_restored_from_its_flat_names_and_decays_matrices_alone(rng, name):
    params, state = run(CASES[name], make_params(rng), steps=3)
    restored = unflatten(flatten(state))
    want = CASES[name].update(params, make_grads(params, 3), state, lr=0.1)
    have = CASES[name].update(params, make_grads(params, 3), restored, lr=0.1)
    assert_same(have, want, 0)
    assert all(isinstance(array, np.ndarray) for array in flatten(state).values())

    params = make_params(rng)
    zeros = tree_map(np.zeros_like, params)
    optimizer = CASES[name]
    new, _ = optimizer.update(params, zeros, optimizer.init(params), lr=0.1)
    for key, p in flatten(params).items():
        moved = np.any(flatten(new)[key] != p)
        assert moved == is_matrix(key, p), key


def test_a_misspelled_optimizer_or_setting_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match=r"no optimizer 'adamx'(.|\n)*did you mean 'adam"):
        make_optimizer("adamx")
    with pytest.raises(ConfigError, match=r"adamw has no setting 'weight_deccay'(.|\n)*'weight_decay'"):
        make_optimizer("adamw", weight_deccay=0.1)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("sgd", {"momentum": 1.0}, "momentum is 1.0"),
        ("sgd", {"nesterov": True}, "nesterov needs momentum"),
        ("adamw", {"beta2": float("nan")}, "beta2 is nan"),
        ("adamw", {"weight_decay": -1}, "weight_decay is -1"),
        ("muon", {"iterations": -1}, "iterations is -1"),
    ],
)
def test_settings_out_of_range_are_refused(name, settings, message):
    with pytest.raises(ConfigError, match=message):
        make_optimizer(name, **settings)


def test_gradients_and_states_that_do_not_fit_are_refused():
    params, grads = {"w": np.zeros((2, 2))}, {"w": np.zeros((2, 3))}
    state = Adam().init(params)
    with pytest.raises(ShapeError, match=r"the gradient of w has shape \(2, 3\), expected \(2, 2\)"):
        Adam().update(params, grads, state, lr=0.1)
    with pytest.raises(ShapeError, match="the gradient of w is missing"):
        Adam().update(params, {}, state, lr=0.1)
    with pytest.raises(ShapeError, match="gradients without a parameter: b"):
        Adam().update(params, {**params, "b": np.zeros(2)}, state, lr=0.1)
    with pytest.raises(ShapeError, match="state does not fit the parameters: see w"):
        Adam().update(params, params, Lion().init(params), lr=0.1)
