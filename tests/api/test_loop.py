"""A loop of one's own around the steps: it can be left, goes on where it was, and gives the threads back."""

import inspect

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

import glassformer as gf
from glassformer import threads
from runs import TINY, assert_same_bits

SMALL = {**TINY["majority"], "steps": 6, "eval_every": 2}


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_its_arguments_are_those_of_train():
    of_train = dict(inspect.signature(gf.train).parameters)
    assert of_train.pop("show").default is True
    assert inspect.signature(gf.Loop).parameters == of_train


def test_left_and_taken_up_again_it_has_the_bits_of_one_that_was_not():
    loop = gf.Loop(None, "majority", **SMALL)
    for record in loop:
        if record.step == 3:
            break
    half = loop.now
    rest = [record.step for record in loop]
    assert rest == [4, 5, 6]
    assert len(half.history) == 3
    whole = gf.train(None, "majority", **SMALL, show=False)
    assert_same_bits(loop.best.params, whole.params)
    assert loop.history.loss.tolist() == whole.history.loss.tolist()


def test_a_model_taken_out_stays_as_it_is():
    loop = gf.Loop(None, "majority", **SMALL)
    for record in loop:
        if record.step == 1:
            taken = loop.now
            before = gf.tree.tree_map(np.array, taken.params)
    assert_same_bits(taken.params, before)
    after = gf.tree.flatten(loop.now.params)
    assert any((array != after[name]).any() for name, array in gf.tree.flatten(taken.params).items())


def test_the_best_model_is_the_one_with_the_lowest_validation_loss():
    loop = gf.Loop(None, "majority", **SMALL, lr=0.3, warmup=0)
    list(loop)
    assert np.isclose(loop.best.evaluate().loss, loop.history.val_loss.min())


def test_before_any_evaluation_the_best_is_what_there_is():
    loop = gf.Loop(None, "majority", **{**SMALL, "eval_every": 100})
    next(iter(loop))
    assert_same_bits(loop.best.params, loop.now.params)


def test_threads_of_products_are_few_while_a_step_is_taken_and_as_before_in_between(monkeypatch):
    loop, seen = gf.Loop(None, "majority", **SMALL), []
    trainer = loop.session.trainer
    step = trainer.step

    def noted(*arguments, **settings):
        seen.append(set(blas_threads()))
        return step(*arguments, **settings)

    monkeypatch.setattr(trainer, "step", noted)
    threads._libraries.cache_clear()  # another test may have loaded one since they were counted
    with threadpool_limits(2, user_api="blas"):
        left = iter(loop)
        next(left)  # never taken up again
        assert set(blas_threads()) == {2}
    assert seen == [{1}]
