"""Every entry of the engine with arguments that nobody should give it; run as a process of its own.

Each call is made by the ops as written, then by the kernels, and its name is printed before: should one of them end
the process, the last line tells which. At the end, as JSON: how many calls there were, and those that did not end in
the same numbers or in an error on both sides.
"""

import faulthandler
import json
import os
import sys
import warnings
from dataclasses import replace
from functools import partial

import numpy as np

from engines.cpu.kernel_cases import KERNELS, KEY, PAIRS, SINGLES, case_of
from glassformer import ops
from glassformer.core.dispatch import use_engine
from glassformer.core.quantized import quantize
from glassformer.core.tree import flatten
from glassformer.generation.storage import stored
from glassformer.models import build
from glassformer.ops import CAUSAL, Pattern

SHAPE = (2, 2, 4, 6)
HUGE = 1 << 40
HARMLESS = ("in another order of bytes", "in Fortran's order", "backward", "every other")
"""What may be given: there must be an answer, where the op has one."""
BETTER = {
    f"attention_tiled{part} one number"
    for part in (", masked: 3", ", masked: 4", "_backward, masked: 1.3", "_backward, masked: 1.4")
}
"""Where the kernel has the right answer, and the op, which cuts tiles out of biases and masks, an error."""
LIMIT, ROUGH = 1e-4, 1e-2
PATIENCE = 120  # seconds for one call, which may have to be compiled


class Wild(Pattern):
    """A pattern that sends queries far outside of the keys."""

    def spans(self, rows, keys):
        return np.zeros(len(rows), np.int64) - HUGE, np.full(len(rows), HUGE)


def wrong_arrays(x):
    """Arrays in the place of x, by what is wrong with them, and things that are none."""
    if not x.ndim:
        x = x.reshape(1)
    first = x.reshape(-1)[:1]
    yield from {
        "too narrow": x[..., :-1].copy(),
        "too wide": np.concatenate((x, x), axis=-1),
        "too short": x[:1].copy(),
        "too long": np.concatenate((x, x)),
        "much too long": np.concatenate([x] * 64),
        "flat": x.reshape(-1),
        "with an axis more": x[None],
        "without its first axis": x[0].copy(),
        "one number": first.reshape(()),
        "a scalar": first[0],
        "without rows": x[:0],
        "without columns": x[..., :0],
        "huge and empty": np.zeros((HUGE, *x.shape[1:-1], 0), x.dtype),
        "in another order of bytes": x.astype(x.dtype.newbyteorder()),
        "in float64": x.astype(np.float64),
        "in float16": x.astype(np.float16),
        "in whole numbers": x.astype(np.int32),
        "in complex numbers": x.astype(np.complex64),
        "of objects": x.astype(object),
        "of words": x.astype(str),
        "in Fortran's order": np.asfortranarray(x),
        "backward": x[::-1, ...],
        "every other": np.repeat(x, 2, axis=-1)[..., ::2],
        "enormous": np.full_like(x, np.iinfo(x.dtype).max if x.dtype.kind in "iu" else 9),
        "negative": x - x.dtype.type(9) if x.dtype.kind in "if" else x,
        "a list": x.tolist(),
        "a number": 3.0,
        "nothing": None,
    }.items()


def places(tree, *, at=()):
    """All arrays of a tree, each with a function that puts something else into its place."""
    if isinstance(tree, np.ndarray):
        yield at, tree
    elif isinstance(tree, dict):
        for name, part in tree.items():
            yield from places(part, at=(*at, name))
    elif isinstance(tree, (list, tuple)):
        for number, part in enumerate(tree):
            yield from places(part, at=(*at, number))


def replaced(tree, at, new):
    """A tree with something else in one place."""
    if not at:
        return new
    if isinstance(tree, dict):
        return {**tree, at[0]: replaced(tree[at[0]], at[1:], new)}
    parts = [replaced(part, at[1:], new) if number == at[0] else part for number, part in enumerate(tree)]
    return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)


SOME = {
    "too narrow",
    "too wide",
    "much too long",
    "with an axis more",
    "without rows",
    "in float64",
    "nothing",
    *HARMLESS,
}
"""What is wrong with the many parameters of a block: the rest is tried with ops."""


def wrong_calls(call, arguments, *, kinds=None):
    """A call with every array of its arguments replaced by every wrong one, and with all of them in the same memory."""
    for at, x in places(arguments):
        for what, wrong in wrong_arrays(x):
            if kinds is None or what in kinds:
                yield f"{'.'.join(map(str, at))} {what}", partial(call, *replaced(arguments, at, wrong))
    for at, x in places(arguments) if kinds is None else ():
        same = arguments
        for other, y in places(arguments):
            if y.shape == x.shape and y.dtype == x.dtype:
                same = replaced(same, other, x)
        yield f"all in the memory of {'.'.join(map(str, at))}", partial(call, *same)


def op_calls():
    """The calls of ops and of their gradients."""
    heads = [np.random.default_rng(number).standard_normal(SHAPE).astype(np.float32) for number in range(3)]
    for name in PAIRS:
        case = case_of(name, SHAPE, "float32", 0)
        if name.startswith("attention"):
            case = replace(case, arrays=(*heads, None), settings={"pattern": CAUSAL})
            yield from masked_calls(case, heads)
        with use_engine("numpy"):
            y, saved = case.forward()
        dy = np.ones_like(y)
        yield from named(name, wrong_calls(partial(case.op, **case.settings), (*case.arrays, *case.extra)))
        back = partial(lambda c, dy, saved: c.gradients(dy, saved), case)
        yield from named(f"{name}_backward", wrong_calls(back, (dy, saved)))
    for name, draw in SINGLES.items():
        arrays, settings = draw(np.random.default_rng(0), (3, 4), "float32")
        yield from named(name, wrong_calls(partial(getattr(ops, name), **settings), arrays))
    w = quantize(np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32), "Q8_0").T
    for rows in (2, 70):
        x = np.random.default_rng(rows).standard_normal((rows, 64)).astype(np.float32)
        yield from named("quantized_product", wrong_calls(lambda x: ops.quantized_product(x, w), (x,)))
    for rate in (-1.0, 0.99999999999, 1.0, 2.0, float("nan")):
        x = np.ones((2, 3), np.float32)
        yield f"dropout, rate {rate}", partial(ops.dropout, x, KEY, rate=rate)
        yield f"attention, rate {rate}", partial(ops.attention, x[None], x[None], x[None], key=KEY, rate=rate)


def masked_calls(case, heads):
    """The calls of attention with a mask, a bias and dropout, and by a pattern that cannot be."""
    name, given = case.op.__name__, partial(case.op, key=KEY, rate=0.5)
    over = np.ones((4, 4), np.float32), np.tri(4, dtype=bool)
    yield from named(f"{name}, masked", wrong_calls(lambda *a: given(*a[:-1], mask=a[-1]), (*heads, *over)))
    with use_engine("numpy"):
        y, saved = given(*heads, over[0], mask=over[1])
    yield from named(
        f"{name}_backward, masked", wrong_calls(partial(case.backward, rate=0.5), (np.ones_like(y), saved))
    )
    yield f"{name}, a wild pattern", partial(case.op, *heads, pattern=Wild(causal=True))
    yield f"{name}_backward, a wild pattern", partial(case.backward, y, saved, pattern=Wild(causal=True))


def named(name, calls):
    return ((f"{name}: {what}", call) for what, call in calls)


def reading_calls():
    """The calls of a decoder that reads one more token, with other caches than its own."""
    model = build("tiny-decoder", vocab=19, width=16, heads=2, layers=2, context=64, positions="rotary")
    params = stored(model.init(0), "float32")
    stack, own = model.decoder_stack(params)
    right = own["blocks"][1]
    x = np.ones((1, 1, 16), np.float32)

    def read(last, x, change=None):
        cache, own["blocks"][1] = stack.new_cache(), last
        for _ in range(2):
            stack.read(own, np.ones((1, 1, 16), np.float32), cache)
        for block in cache.blocks if change is not None else ():
            change(block.attention)
        return stack.read(own, x, cache)

    yield from named("Stack.read_blocks", wrong_calls(read, (right, x), kinds=SOME))
    for what, change in {
        "seen before the first": {"seen": -3},
        "seen too many": {"seen": 100},
        "seen in a window that is not kept": {"seen": 150, "window": 100},
        "a window that is negative": {"window": -3},
        "a window of nothing": {"window": 0},
        "keys for less": {"k": np.zeros((1, 2, 2, 8), np.float32)},
        "keys and values for less": {"k": np.zeros((1, 2, 2, 8), np.float32), "v": np.zeros((1, 2, 2, 8), np.float32)},
        "keys of two sequences": {"k": np.zeros((2, 2, 64, 8), np.float32), "v": np.zeros((2, 2, 64, 8), np.float32)},
        "no keys": {"k": None},
        "keys that stay": {"k": frozen(np.zeros((1, 2, 64, 8), np.float32))},
        "keys in another order of bytes": {"k": np.zeros((1, 2, 64, 8), ">f4"), "v": np.zeros((1, 2, 64, 8), ">f4")},
    }.items():
        yield f"Stack.read_blocks: {what}", partial(read, right, x, partial(put, change))


def frozen(x):
    x.flags.writeable = False
    return x


def put(changes, kept):
    for name, value in changes.items():
        setattr(kept, name, value)


def outcome(call, engine):
    """What a call gives, or the name of its error."""
    with use_engine(engine), np.errstate(all="ignore"):
        try:
            return flatten(call())
        except RecursionError:
            raise
        except Exception as error:
            return type(error).__name__


def differs(have, want, *, limit, must_answer):
    """What is wrong with an outcome; nothing, if it is an error, or the right answer."""
    if isinstance(have, str) or want == "MemoryError":
        return None if isinstance(want, str) or not must_answer else f"there is an answer, but it became {have}"
    if isinstance(want, str):
        return f"{want} became an answer"
    if have.keys() != want.keys():
        return f"{sorted(want)} became {sorted(have)}"
    for name, x in want.items():
        y = have[name]
        if x is None or y is None:
            if x is not y:
                return f"{name}: {x} became {y}"
        elif np.shape(x) != np.shape(y):
            return f"{name}: {np.shape(x)} became {np.shape(y)}"
        elif np.asarray(x).dtype.kind in "fc":
            a, b = (np.asarray(part, np.complex128) for part in (x, y))
            known = ~np.isnan(a)  # kernels skip what is masked, and so what comes of it
            scale = max(1.0, np.max(np.abs(a[np.isfinite(a)]), initial=0.0))
            if not np.allclose(a[known], b[known], rtol=0, atol=limit * scale):
                return f"{name}: other numbers"
    return None


def main():
    warnings.simplefilter("ignore")
    wrong, count, met = [], 0, set()
    for part in (op_calls, reading_calls):
        for name, call in part():
            os.write(1, f"{name}\n".encode())
            faulthandler.dump_traceback_later(PATIENCE, exit=True)
            want, have = outcome(call, "numpy"), outcome(call, "cpu")
            met.add(name.partition(":")[0].partition(",")[0])
            count += 1
            limit = ROUGH if name.endswith("in float16") else LIMIT
            found = differs(have, want, limit=limit, must_answer=name.endswith(HARMLESS))
            if found and name not in BETTER:
                wrong.append(f"{name}: {found}")
    faulthandler.cancel_dump_traceback_later()
    missing = sorted(name for name in KERNELS if name not in met)
    os.write(1, json.dumps({"calls": count, "wrong": wrong, "missing": missing}).encode())


if __name__ == "__main__":
    if sys.platform.startswith("linux"):
        import resource

        resource.setrlimit(
            resource.RLIMIT_AS, (1 << 34, 1 << 34)
        )  # what is huge is refused, whatever the system allows
    main()
