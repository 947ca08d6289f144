"""What is written is what runs: kernels step back when what they replace is edited, replaced or overridden."""

import copy
import json
import logging
import re
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from glassformer import ops
from glassformer.core import sources
from glassformer.core.dispatch import current, engines, use_engine
from glassformer.engines.cpu.trainer import in_place
from glassformer.layers import FeedForward, LayerNorm, RMSNorm, Stack, attention
from glassformer.layers.attention import Attention
from glassformer.layers.block import Block
from glassformer.models import build
from glassformer.training.optimizers import AdamW

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
        ("return SCALE * x", "return len('  # one') * x", True),
    ],
)
def test_a_digest_covers_code_but_no_comments_docstrings_and_blank_lines(old, new, is_edit):
    assert old in TEXT
    assert (sources.digest(TEXT) != sources.digest(TEXT.replace(old, new))) == is_edit


def test_the_digests_are_those_of_the_sources():
    stored = json.loads(sources.DIGESTS.read_text(encoding="utf-8"))
    assert stored == sources.described(), "compare the kernels with what they replace, then run `make digests`"


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
    # No kernel stands for a method that reads whole texts.
    assert ("was replaced: it and what uses it run as written" in said) == (change != "a method")


def test_a_step_checks_everything_once(monkeypatch):
    x = np.array([[1.0, 2.0, 4.0]], np.float32)
    ops.softmax(x)
    guard = current().table["softmax"]

    @sources.check_once
    def step():
        with monkeypatch.context() as patch:
            patch.setattr(sources.Sources, "is_unchanged", lambda self: pytest.fail("checked again"))
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


@pytest.mark.parametrize("engine", ["cpu", "jax"])
def test_every_kernel_depends_on_the_file_of_what_it_replaces(engine, request):
    if engine == "jax":
        request.getfixturevalue("jax")
    for kernel in engines().find(engine).kernels():
        assert kernel.is_current()
        assert sources.file_of(kernel.original.__module__) in [source.file for source in kernel.sources], kernel.name


def test_ops_and_layers_use_packages_only_by_their_names():
    """So that what they depend on can be read: `ops.softmax`, not `getattr(ops, name)`."""
    described = sources.described()
    for file in [file for file in described if file.startswith(("ops/", "layers/"))]:
        assert not [name for name in described[file]["imports"] if name.endswith("__init__.py")], file
        imports = re.findall(r"(?m)^ *(?:from|import) +(glassformer\S*)", (sources.PACKAGE / file).read_text("utf-8"))
        assert not imports, f"{file} names its own package: write from .."


@pytest.mark.parametrize(
    ("file", "steps_back", "stays"),
    [
        ("ops/activation.py", ["gelu", "relu_backward", "Stack.read_blocks"], ["softmax", "layer_norm", "adam_update"]),
        ("ops/update.py", ["adam_update", "sum_of_squares"], ["attention", "Stack.read_blocks"]),
        ("ops/embedding.py", ["embedding", "embedding_backward"], ["softmax", "attention"]),
        ("ops/mask.py", ["attention", "attention_tiled_backward"], ["softmax", "gelu"]),
        ("core/arrays.py", ["softmax", "adam_update", "Stack.read_blocks"], []),
    ],
)
def test_an_edit_stops_the_kernels_that_depend_on_it_and_no_others(monkeypatch, file, steps_back, stays):
    monkeypatch.setattr(sources, "edited_files", lambda: {file})
    assert not [name for name in steps_back if stands(name)]
    assert [name for name in stays if stands(name)] == stays


def test_an_edited_activation_leaves_layers_of_norms_and_optimizers_compiled(monkeypatch):
    monkeypatch.setattr(ops, "gelu", lambda x: (x, x))
    assert all(map(stands, ("softmax", "layer_norm", "adam_update", "attention")))


@pytest.mark.parametrize("where", ["__defaults__", "__kwdefaults__", "written into"])
def test_a_changed_default_is_noticed(monkeypatch, where):
    tiled = ops.attention_tiled.__wrapped__
    assert stands("attention_tiled")
    before = sources.version()
    if where == "written into":
        monkeypatch.setitem(tiled.__kwdefaults__, "pattern", ops.CAUSAL)
    else:
        monkeypatch.setattr(tiled, where, None)
    assert not stands("attention_tiled")
    assert sources.version() != before


@pytest.mark.parametrize(
    ("owner", "name"), [(AdamW, "move"), (RMSNorm, "init"), (sys.modules["glassformer.ops.activation"], "max")]
)
def test_a_name_that_hides_another_is_noticed(monkeypatch, owner, name):
    """A method that a class has inherited, or one of Python's functions."""
    guard = in_place.kernel if owner is AdamW else current().table["Stack.read_blocks"]
    assert name not in vars(owner)
    assert guard.is_current()
    monkeypatch.setattr(owner, name, lambda *_: None, raising=False)
    assert not guard.is_current()


def test_a_method_of_a_default_object_is_noticed(monkeypatch):
    assert stands("attention_tiled")
    monkeypatch.setattr(ops.Pattern, "tile", lambda self, *_: None)
    assert not stands("attention_tiled")
    assert stands("softmax")


def test_the_own_optimizer_step_notices_an_edit_of_the_op_that_it_calls(monkeypatch):
    assert in_place.kernel.is_current()
    monkeypatch.setattr(sources, "edited_files", lambda: {"ops/update.py"})
    assert not in_place.kernel.is_current()
