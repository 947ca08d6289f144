"""Schedules against their closed forms, PyTorch's schedulers and JAX."""

import math

import numpy as np
import pytest

from glassformer.core.errors import ConfigError
from glassformer.training import SCHEDULES, Schedule

STEPS = range(130)


def make(kind, **settings):
    return Schedule(kind, **{"peak": 0.3, "warmup": 9, "total": 100, "floor": 0.1, **settings})


def closed_form(kind, step):
    if step < 9:
        return 0.3 * (step + 1) / 10
    left = max(0.0, 1 - (step - 9) / 91)
    return (
        0.3
        * {
            "constant": 1.0,
            "linear": 0.1 + 0.9 * left,
            "cosine": 0.1 + 0.9 * (1 + math.cos(math.pi * (1 - left))) / 2,
            "inverse_sqrt": max(0.1, math.sqrt(10 / (step + 1))),
        }[kind]
    )


@pytest.mark.parametrize("kind", SCHEDULES)
def test_every_schedule_has_its_closed_form_also_for_arrays_and_under_jit(kind, jax):
    schedule = make(kind)
    for step in STEPS:
        assert schedule(step) == pytest.approx(closed_form(kind, step), rel=1e-12)
        assert type(schedule(step)) is float

    schedule = make(kind)
    want = [schedule(step) for step in STEPS]
    np.testing.assert_allclose(schedule(np.arange(len(STEPS))), want, rtol=1e-12)
    np.testing.assert_allclose([schedule(np.int32(step)) for step in STEPS], want, rtol=1e-12)
    traced = jax.jit(schedule)
    np.testing.assert_allclose([traced(step) for step in STEPS], want, rtol=1e-12)


@pytest.mark.parametrize("kind", SCHEDULES)
def test_behind_its_end_a_schedule_that_came_down_stays_where_it_is_told(jax, kind):
    schedule, plain = make(kind, after=0.25), make(kind)
    assert [schedule(step) for step in range(100)] == [plain(step) for step in range(100)]
    comes_down = kind in ("linear", "cosine")
    assert [schedule(step) for step in (100, 129)] == (
        [0.25 * 0.3] * 2 if comes_down else [plain(step) for step in (100, 129)]
    )
    traced = jax.jit(schedule)
    np.testing.assert_allclose([traced(step) for step in STEPS], [schedule(step) for step in STEPS], rtol=1e-12)


def test_cosine_and_linear_without_warmup_equal_pytorch(torch):
    schedule = Schedule("cosine", peak=0.5, total=40, floor=0.2)
    assert_equals_scheduler(torch, schedule, lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 40, eta_min=0.1))

    schedule = Schedule("linear", peak=0.5, total=40, floor=0.2)
    assert_equals_scheduler(
        torch,
        schedule,
        lambda o: torch.optim.lr_scheduler.LinearLR(o, start_factor=1.0, end_factor=0.2, total_iters=40),
    )


def test_inverse_square_root_is_the_schedule_of_the_first_transformer(torch):
    # lr = width^−½ · min(n^−½, n · warmup^−1.5), n = 1, 2, …, whose peak is (width · warmup)^−½
    width, warmup = 512, 20
    schedule = Schedule("inverse_sqrt", peak=(width * warmup) ** -0.5, warmup=warmup - 1)

    def lr(step):
        n = step + 1
        return width**-0.5 * min(n**-0.5, n * warmup**-1.5)

    assert_equals_scheduler(
        torch, schedule, lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda n: lr(n) / schedule.peak)
    )


def assert_equals_scheduler(torch, schedule, make_scheduler, steps=40):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=schedule.peak)
    scheduler = make_scheduler(optimizer)
    for step in range(steps + 1):
        assert schedule(step) == pytest.approx(scheduler.get_last_lr()[0], rel=1e-9)
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "cosin", "total": 9}, "no schedule 'cosin'(.|\n)*did you mean 'cosine'"),
        ({"kind": "cosine"}, "a cosine schedule needs the total"),
        ({"kind": "linear", "warmup": 10, "total": 10}, "warmup takes 10 of 10 steps"),
        ({"kind": "constant", "peak": -1.0}, "peak is -1.0"),
        ({"kind": "constant", "peak": float("nan")}, "peak is nan"),
        ({"kind": "constant", "warmup": -1}, "warmup is -1"),
        ({"kind": "inverse_sqrt", "floor": 1.5}, "floor is 1.5"),
    ],
)
def test_impossible_schedules_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Schedule(**settings)
