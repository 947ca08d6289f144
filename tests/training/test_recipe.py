"""Recipes: checked once, and refused with a remedy."""

import json
import math

import numpy as np
import pytest

from glassformer import training
from glassformer.core.errors import ConfigError
from glassformer.data import TASKS
from glassformer.training import SCHEDULES, SGD, AdamW, Muon, Schedule
from glassformer.training.recipe import Recipe, changed_recipe


def test_a_recipe_survives_json():
    recipe = Recipe(steps=7, optimizer="muon", lr=0.02, ema=0.9, patience=3, save_every=2, clip=None)
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


@pytest.mark.parametrize("task", ["majority", "counting", "copy", "sort", "addition"])
def test_every_task_brings_a_recipe_that_passes(task):
    settings = dict(TASKS[task]().recipe)
    settings.pop("dropout")  # belongs to the model
    Recipe.from_dict(settings)


def test_optimizers_get_the_settings_they_know_and_a_long_warmup_is_cut():
    assert Recipe(optimizer="sgd", momentum=0.9, weight_decay=0.1).build_optimizer() == SGD(0.9, weight_decay=0.1)
    assert Recipe(optimizer="adamw", beta1=0.8, beta2=0.9).build_optimizer() == AdamW(0.8, 0.9)
    assert Recipe(optimizer="muon", momentum=0.8).build_optimizer() == Muon(0.8)
    assert Recipe(optimizer="adamw").build_optimizer() == AdamW()
    assert Recipe(steps=5, warmup=50).build_schedule().warmup == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps is 0"),
        ({"steps": True}, "steps is True"),
        ({"batch": "many"}, "batch is 'many'"),
        ({"accumulate": -1}, "accumulate is -1"),
        ({"patience": 0}, "patience is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"batch": 2, "accumulate": 3}, "a batch of 2 cannot be split into 3"),
        ({"lr": "fast"}, "lr is 'fast'"),
        ({"lr": -1.0}, "lr is -1.0"),
        ({"clip": -1.0}, "clip is -1.0"),
        ({"label_smoothing": 1.0}, "label_smoothing is 1.0"),
        ({"ema": 1.0}, "ema is 1.0"),
        ({"optimizer": "adamx"}, "there is no optimizer 'adamx'"),
        ({"optimizer": 3}, "optimizer is 3"),
        ({"schedule": "cosin"}, "there is no schedule 'cosin'"),
        ({"momentum": 0.9}, "adamw has no momentum"),
    ],
)
def test_nonsense_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Recipe(**settings)


def test_an_unknown_setting_is_answered_and_another_optimizer_leaves_others_behind():
    with pytest.raises(ConfigError, match="no setting 'step'") as caught:
        Recipe.from_dict({"step": 5})
    assert "did you mean 'steps'" in str(caught.value)
    with pytest.raises(ConfigError, match="did you mean 'adam"):
        Recipe(optimizer="adamx")

    own = {"optimizer": "adamw", "beta2": 0.99, "lr": 1e-3}
    assert changed_recipe(own, {"lr": 2e-3}) == {"optimizer": "adamw", "beta2": 0.99, "lr": 2e-3}
    assert changed_recipe(own, {"optimizer": "sgd"}) == {"optimizer": "sgd", "lr": 1e-3}
    assert changed_recipe(own, {"optimizer": "lion", "beta2": 0.95})["beta2"] == 0.95


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("steps", [60, 200])
def test_another_number_of_steps_changes_none_that_were_planned(schedule, steps):
    planned = Recipe(steps=100, warmup=10, schedule=schedule)
    other = planned.with_steps(steps)
    assert other.steps == steps
    before, after = planned.build_schedule(), other.build_schedule()
    for step in range(min(steps, 100)):
        assert before(step) == after(step)


def test_a_longer_recipe_keeps_its_warmup_and_is_the_same_in_two_goes():
    planned = Recipe(steps=5, warmup=50)
    assert planned.with_steps(80).build_schedule().warmup == planned.build_schedule().warmup == 4
    planned = Recipe(steps=100)
    assert planned.with_steps(200).with_steps(300) == planned.with_steps(300)
    assert planned.with_steps(200).with_steps(100) == planned


@pytest.mark.parametrize(
    ("settings", "rate", "words"),
    [
        ({"schedule": "cosine"}, 0.05, "its cosine schedule ends at step 100; from there on the rate is 0.05, a tenth"),
        ({"schedule": "linear"}, 0.05, "its linear schedule ends at step 100; from there on the rate is 0.05, a tenth"),
        ({"schedule": "cosine", "floor": 0.02}, 0.01, "the rate is 0.01, its floor, 0.02 of the peak"),
        ({"schedule": "constant"}, 0.5, "its learning rate is constant and stays at 0.5"),
        ({"schedule": "inverse_sqrt", "warmup": 24}, 0.5 * (25 / 151) ** 0.5, "goes on falling with 1/√step"),
    ],
)
def test_how_a_schedule_goes_on_is_sensible_and_said(settings, rate, words):
    recipe = Recipe(steps=100, lr=0.5, **settings).with_steps(200)
    assert recipe.build_schedule()(150) == pytest.approx(rate)
    assert words in recipe.continuation()


def test_the_end_of_the_decay_can_be_set():
    schedule = Recipe(steps=100, warmup=0, decay_steps=50, lr=1.0, floor=0.2).build_schedule()
    assert (schedule(50), schedule(99)) == (0.2, 0.2)
    assert schedule(49) > 0.2
    with pytest.raises(ConfigError, match="decay_steps is 0"):
        Recipe(decay_steps=0)


def test_a_registered_optimizer_drops_what_the_task_set_for_another(monkeypatch):
    class Plain(training.SGD):
        def __init__(self, momentum: float = 0.0):
            super().__init__(momentum=momentum)

    monkeypatch.setitem(training.OPTIMIZERS, "plain", Plain)
    changed = changed_recipe(
        {"optimizer": "adamw", "weight_decay": 0.1, "beta2": 0.99, "lr": 1.0}, {"optimizer": "plain"}
    )
    assert changed == {"optimizer": "plain", "lr": 1.0}
    with pytest.raises(ConfigError, match="plain has no weight_decay"):
        Recipe.from_dict({**changed, "weight_decay": 0.1})


class Duck:
    """Looks like an optimizer."""

    def init(self, params):
        return {}

    def update(self, params, grads, state, *, lr):
        return params, state


class Half(training.Optimizer):
    """Does not say how an array moves."""

    def slots(self, name, p):
        return ()


@pytest.mark.parametrize(("family", "words"), [(Duck, "duck has no slots and no move"), (Half, "duck has no move")])
def test_an_optimizer_without_the_methods_of_one_is_refused(monkeypatch, family, words):
    monkeypatch.setitem(training.OPTIMIZERS, "duck", family)
    with pytest.raises(ConfigError, match=words):
        Recipe(optimizer="duck")


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
def test_every_schedule_has_its_closed_form_and_stays_where_it_came_down(kind, jax):
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

    schedule, plain = make(kind, after=0.25), make(kind)
    assert [schedule(step) for step in range(100)] == [plain(step) for step in range(100)]
    comes_down = kind in ("linear", "cosine")
    assert [schedule(step) for step in (100, 129)] == (
        [0.25 * 0.3] * 2 if comes_down else [plain(step) for step in (100, 129)]
    )
    traced = jax.jit(schedule)
    np.testing.assert_allclose([traced(step) for step in STEPS], [schedule(step) for step in STEPS], rtol=1e-12)


def test_schedules_without_warmup_equal_those_of_pytorch_and_of_the_first_transformer(torch):
    schedule = Schedule("cosine", peak=0.5, total=40, floor=0.2)
    assert_equals_scheduler(torch, schedule, lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 40, eta_min=0.1))

    schedule = Schedule("linear", peak=0.5, total=40, floor=0.2)
    assert_equals_scheduler(
        torch,
        schedule,
        lambda o: torch.optim.lr_scheduler.LinearLR(o, start_factor=1.0, end_factor=0.2, total_iters=40),
    )

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
