"""What is written is what runs: kernels step back when what they replace is edited, replaced or overridden."""

import copy
import json
import logging
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from glassformer import ops, sources
from glassformer.dispatch import current, use_engine
from glassformer.layers import FeedForward, LayerNorm, Linear, Stack, attention
from glassformer.layers.attention import Attention
from glassformer.layers.block import Block
from glassformer.models import build

TEXT = '''"""A file."""

SCALE = 2.0


def double(x):
    """Twice x."""
    # as often as not
    return SCALE * x
'''


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch):
    monkeypatch.setattr(sources, "_reported", set())


@pytest.fixture(autouse=True)
def _on_cpu():
    with use_engine("cpu"):
        yield


@pytest.mark.parametrize(
    ("old", "new", "is_edit"),
    [
        ("# as often as not", "# never", False),
        ('"""Twice x."""', '"""Two times x."""', False),
        ("2.0\n\n\n", "2.0  # even\n", False),
        ("    return SCALE", "return SCALE", True),
        ("SCALE * x", "SCALE * x + 1", True),
        ("2.0", "2.5", True),
        ("def double", "def triple", True),
    ],
)
def test_a_digest_covers_code_but_no_comments_docstrings_and_blank_lines(old, new, is_edit):
    assert old in TEXT
    assert (sources.digest(TEXT) != sources.digest(TEXT.replace(old, new))) == is_edit


def test_the_digests_are_those_of_the_sources():
    stored = json.loads(sources.DIGESTS.read_text(encoding="utf-8"))
    assert stored == sources.digests(), "compare the kernels with what they replace, then run `make digests`"


def warnings(caplog):
    """What was said about running as written."""
    return [words for record in caplog.records if "run as written" in (words := record.getMessage())]


def test_a_replaced_function_runs_and_is_named_once(monkeypatch, caplog):
    x = np.array([[1.0, 2.0, 4.0]], np.float32)
    before = ops.softmax(x)[0]
    home = ops.softmax.__wrapped__.__globals__

    def even(x, mask):
        return np.ones_like(x), np.full((*x.shape[:-1], 1), x.shape[-1], x.dtype)

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "glassformer"):
        patch.setitem(home, "_exponentials", even)
        for _ in range(2):
            np.testing.assert_allclose(ops.softmax(x)[0], np.full((1, 3), 1 / 3, np.float32), rtol=1e-6)
    assert len(warnings(caplog)) == 1
    assert warnings(caplog)[0].startswith("_exponentials was replaced: it and what uses it run as written")
    np.testing.assert_array_equal(ops.softmax(x)[0], before)


def a_block(**parts):
    settings = {"attention": Attention(8, 2), "feed_forward": FeedForward(8, 16), "norm": LayerNorm(8)}
    return Block(**{**settings, **parts})


def results(block, x, engine):
    """What a block makes of x, and all its gradients."""
    params = a_block().init(0)
    with use_engine(engine):
        y, saved = block.forward(params, x)
        read, grads = block.backward(params, saved, np.ones_like(y))
    return [y, read.x, grads["attention"]["query"]["w"], grads["feed_forward"]["up"]["w"]]


@pytest.fixture
def x(rng):
    return rng.standard_normal((2, 5, 8)).astype(np.float32)


def test_a_method_replaced_in_a_class_reaches_the_block_around_it(monkeypatch, x):
    as_it_is = results(a_block(), x, "cpu")
    written = FeedForward.forward

    def louder(self, params, x):
        y, saved = written(self, params, x)
        return 3 * y, saved

    monkeypatch.setattr(FeedForward, "forward", louder)
    have, want = results(a_block(), x, "cpu"), results(a_block(), x, "numpy")
    for found, expected in zip(have, want, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert not np.allclose(have[0], as_it_is[0])


def stands(name):
    """Whether the kernel of a function is still used."""
    return current().table[name].is_current()


def test_a_class_of_records_replaced_in_a_module_is_the_one_that_is_made(monkeypatch, x):
    class Mine(attention.AttentionRecord):
        pass

    monkeypatch.setattr(attention, "AttentionRecord", Mine)
    _, saved = a_block().forward(a_block().init(0), x)
    assert type(saved["attention"]) is Mine


def test_what_a_kernel_never_does_may_change(monkeypatch):
    monkeypatch.setattr(Linear, "specs", lambda self: {})
    assert stands("Stack.read_blocks")
    monkeypatch.setattr(Linear, "forward", lambda self, params, x: (x, None))
    assert not stands("Stack.read_blocks")


def test_what_a_block_never_does_while_it_reads_on_may_change_and_is_what_runs_elsewhere(monkeypatch, x):
    block, params, key = a_block(dropout=0.5), a_block().init(0), ops.new_key(0)
    plain = [block.forward(params, x)[0], block.forward(params, x, key=key)[0]]
    monkeypatch.setattr(ops, "dropout", lambda x, key, *, rate: (0 * x, None))
    assert stands("Stack.read_blocks")
    np.testing.assert_array_equal(block.forward(params, x)[0], plain[0])
    dropped = block.forward(params, x, key=key)[0]
    np.testing.assert_array_equal(dropped, x)
    assert not np.array_equal(dropped, plain[1])


@dataclass(frozen=True)
class Same(Stack):
    """A stack with nothing of its own."""


def test_a_subclass_is_reported_once_to_run_as_written(caplog, rng):
    stack, token = Same(a_block(), layers=2), rng.standard_normal((1, 1, 8)).astype(np.float32)
    params, found = stack.init(0), {}
    with caplog.at_level(logging.WARNING, "glassformer"):
        for engine in ("cpu", "numpy"):
            cache = stack.new_cache()
            with use_engine(engine):
                found[engine] = [stack.read(params, token, cache) for _ in range(2)]
    assert len([word for word in warnings(caplog) if word.startswith("Same overrides Stack")]) == 1
    np.testing.assert_allclose(found["cpu"], found["numpy"], rtol=1e-4, atol=1e-5)


# --- replaced before anything has run: in processes of their own -----------------------------------------------------

FIRST = """
import sys
import numpy as np, glassformer as gf
{change}
model = gf.build("tiny-decoder")
found = []
for engine in ("cpu", "numpy"):
    with gf.use_engine(engine):
        found.append(model.forward(model.init(0), np.array([[5, 3, 8, 3]]))[0].tolist())
print(repr(found))
"""
CHANGES = {
    "an op": """
import glassformer.ops
home = sys.modules["glassformer.ops.attention"]
written = home.softmax
home.softmax = lambda scores, *given, **named: written(0 * scores, *given, **named)
""",
    "an op, wrapped": """
import functools, glassformer.ops
home = sys.modules["glassformer.ops.attention"]
written = home.softmax
home.softmax = functools.wraps(written)(lambda scores, *given, **named: written(0 * scores, *given, **named))
""",
    "a method": """
from glassformer.layers import Attention
written = Attention.forward
Attention.forward = lambda self, *given, **named: (0 * written(self, *given, **named)[0], None)
""",
    "an entry of a table": """
from glassformer.ops import ACTIVATIONS
ACTIVATIONS["gelu"] = ACTIVATIONS["gelu_tanh"] = ACTIVATIONS["relu"]
""",
    "a constant": """
import glassformer.ops
home = sys.modules["glassformer.ops.activation"]
home._TANH_SCALE = home._TANH_CUBIC = 3.0
home.normal_cdf = lambda x: x
""",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_replacement_before_the_first_run_is_noticed(change):
    command = [sys.executable, "-c", FIRST.format(change=CHANGES[change])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    have, want = map(np.array, json.loads(done.stdout))  # on the engine cpu, and then as it is written
    model = build("tiny-decoder")
    with use_engine("numpy"):
        plain, _ = model.forward(model.init(0), np.array([[5, 3, 8, 3]]))
    said = done.stderr
    np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)
    assert np.abs(have - plain).max() > 1e-2
    # Layers run as written in any case, and so does the choice of an activation: no kernel has to step back.
    steps_back = change not in ("a method", "an entry of a table")
    assert ("was replaced: it and what uses it run as written" in said) == steps_back


def test_a_step_checks_everything_once(monkeypatch):
    x = np.array([[1.0, 2.0, 4.0]], np.float32)
    ops.softmax(x)
    guard = current().table["softmax"]

    @sources.check_once
    def step():
        with monkeypatch.context() as patch:
            patch.setattr(sources.SourceGuard, "is_unchanged", lambda self: pytest.fail("checked again"))
            return guard.is_current()

    assert step()
    with monkeypatch.context() as patch:
        patch.setitem(ops.softmax.__wrapped__.__globals__, "_exponentials", lambda x, mask: None)
        assert not sources.check_once(guard.is_current)()


@pytest.mark.parametrize("moment", ["_current_guards", "is_current"])
def test_after_an_interrupted_step_everything_is_checked_again(monkeypatch, moment):
    def interrupted(*_):
        raise KeyboardInterrupt

    ops.softmax(np.ones((1, 3), np.float32))
    guard = current().table["softmax"]
    monkeypatch.setattr(sources.SourceGuard if moment == "is_current" else sources, moment, interrupted)
    with pytest.raises(KeyboardInterrupt):
        sources.check_once(lambda: guard.is_current())()
    assert not sources.checked.get()


# --- from elsewhere, in place, and added ------------------------------------------------------------------------------


def test_code_edited_in_place_runs(monkeypatch):
    x = np.array([[1.0, 2.0, 4.0]], np.float32)
    helper = ops.softmax.__wrapped__.__globals__["_exponentials"]
    monkeypatch.setattr(helper, "__code__", (lambda x, mask: (x, x.sum(axis=-1, keepdims=True))).__code__)
    np.testing.assert_allclose(ops.softmax(x)[0], x / 7, rtol=1e-6)


@pytest.mark.parametrize(
    ("kernel", "home", "name"),
    [
        ("Stack.read_blocks", "layers.linear", "ops"),
        ("softmax", "ops.softmax", "namespace"),
        ("attention_tiled_backward", "ops.attention_tiled", "unbroadcast"),
    ],
)
def test_a_name_replaced_in_a_module_that_only_imports_it_is_noticed(monkeypatch, kernel, home, name):
    assert stands(kernel)
    monkeypatch.setattr(sys.modules[f"glassformer.{home}"], name, lambda *_: None)
    assert not stands(kernel)


def test_what_python_adds_to_a_class_changes_nothing():
    assert stands("Stack.read_blocks")
    before = sources.version()
    copied = copy.deepcopy(a_block())  # adds __slotnames__ to the classes of a block
    assert copied == a_block()
    assert Block.__annotations__
    assert stands("Stack.read_blocks")
    assert sources.version() == before


def test_a_member_deleted_from_a_class_that_no_kernel_uses_changes_nothing(monkeypatch):
    assert stands("Stack.read_blocks")
    monkeypatch.delattr(Linear, "specs")
    assert stands("Stack.read_blocks")
