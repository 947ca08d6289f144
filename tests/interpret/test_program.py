"""The list of calls is the whole program: it runs again on other parameters and inputs, of other sizes.

A cached reading computes by ops alone, too: all that they read comes from parameters, inputs, other ops and the cache.
"""

import inspect
import sys
from pathlib import Path

import numpy as np
import pytest

import glassformer as gf
from compare import assert_close
from glassformer import ops
from glassformer.core.execution import Execution
from glassformer.core.tree import flatten, tree_map
from glassformer.interpret.tracing import TracingEngine, run_traced

pytestmark = pytest.mark.usefixtures("numpy_engine")

PACKAGE = Path(gf.__file__).parent
EXACT = 1e-12
VOCAB, CLASSES = 20, 3
SIZES = {"width": 16, "heads": 4, "layers": 2, "context": 16, "vocab": VOCAB}
RECORDED, OTHER = {"examples": 2, "tokens": 7, "source": 11}, {"examples": 3, "tokens": 12, "source": 5}

GPT = {"norm_position": "pre", "positions": "learned", "activation": "gelu_tanh", "tied_head": True}
LLAMA = {
    "norm": "rms", "positions": "rotary", "gated": True, "activation": "silu", "kv_heads": 2,
    "attention_bias": False, "feed_forward_bias": False, "tied_head": False,
}  # fmt: skip
BERT = {
    "head": "tokens", "classes": None, "head_bias": True, "segments": 2, "norm_position": "post",
    "embedding_norm": True,
}  # fmt: skip
T5 = {
    "norm": "rms", "positions": "relative", "attention_bias": False, "feed_forward_bias": False, "head_scale": True,
    "scale_scores": False, "shared_embedding": True, "tied_head": True, "activation": "relu",
}  # fmt: skip
DECODERS = {
    "GPT": GPT,
    "Llama": LLAMA,
    "interleaved rotary": {**LLAMA, "rotary_pairing": "interleaved"},
    "post-norm": {"norm_position": "post", "embedding_norm": True, "stride": 3},
    "ALiBi": {"positions": "alibi", "activation": "relu"},
    "relative": {"positions": "relative"},
    "sinusoidal": {"positions": "sinusoidal", "embedding_scale": True, "window": 3},
    "parallel": {"block": "parallel"},
    "no norm": {"norm": "none", "positions": "none"},
    "no residual": {"block": "no_residual"},
    "attention only": {"block": "attention_only", "head_bias": True},
    "feed-forward only": {"block": "feed_forward_only"},
}
ENCODERS = {
    "mean": {},
    "CLS": {"pooling": "cls", "pooled_norm": True},
    "first": {"pooling": "first", "pooled_activation": "gelu"},
    "segments": {"segments": 2},
    "padding_id": {"padding_id": 0},
    "BERT": BERT,
}
ENCODER_DECODERS = {
    "plain": {},
    "original": {"norm_position": "post", "positions": "sinusoidal", "shared_embedding": True},
    "T5": T5,
}
CONFIGS = {
    **{f"decoder, {name}": gf.DecoderConfig(**{**SIZES, **own}) for name, own in DECODERS.items()},
    **{f"encoder, {name}": gf.EncoderConfig(**{**SIZES, "classes": CLASSES, **own}) for name, own in ENCODERS.items()},
    **{f"encoder-decoder, {name}": gf.EncoderDecoderConfig(**SIZES, **own) for name, own in ENCODER_DECODERS.items()},
}
CASES = {
    **{name: {} for name in CONFIGS},
    "decoder, GPT, padding": {"masked": True},
    "decoder, GPT, tiled": {"execution": Execution(tile=3)},
    "decoder, relative, tiled": {"execution": Execution(tile=3)},
    "decoder, Llama, remat": {"execution": Execution(remat=True)},
    "decoder, GPT, dropout": {"dropout": 0.2},
    "encoder, mean, padding": {"masked": True},
    "encoder, CLS, padding": {"masked": True},
    "encoder, BERT, padding": {"masked": True},
    "encoder-decoder, T5, padding": {"masked": True},
}


def batch_of(config, sizes, seed, *, masked):
    """Random tokens with the targets of an architecture; of masked ones, all examples but the first are padded."""
    rng, count = np.random.default_rng(seed), sizes["examples"]

    def ids(name, least=0):
        return rng.integers(least, VOCAB, (count, sizes[name]))

    def mask(name):
        lengths = np.array([sizes[name], *[sizes[name] - 2] * (count - 1)])
        return np.arange(sizes[name]) < lengths[:, None] if masked else None

    by_class = config.architecture == "encoder" and config.head == "classes"
    targets = rng.integers(0, CLASSES, count) if by_class else ids("tokens")
    source = (ids("source"), mask("source")) if config.architecture == "encoder-decoder" else (None, None)
    tokens = ids("tokens")
    if getattr(config, "padding_id", None) is not None:
        tokens[1:, -2:] = config.padding_id
    # Where two texts are told apart, the second begins in the middle of each example.
    by_text = config.architecture == "encoder" and config.segments and masked
    texts = np.broadcast_to((np.arange(sizes["tokens"]) > 3).astype(int), tokens.shape).copy() if by_text else None
    return gf.Batch(tokens, targets, mask("tokens"), *source, texts)


def inputs_of(params, batch, key):
    """All that a program is given, by name."""
    given = {**batch._asdict(), "key": key}
    return {**flatten(params), **{name: part for name, part in given.items() if part is not None}}


def results_of(model, params, batch, key):
    """The logits, the loss and the gradients, by the model's own forward and backward pass."""
    logits, saved = model.predict(params, batch, key=key)
    loss, record = ops.cross_entropy(logits, batch.targets)
    grads = model.backward(params, saved, ops.cross_entropy_backward(1.0, record))
    return {"logits": logits, "loss": loss, **flatten(grads)}


class FromNowhereError(Exception):
    """An array that was computed between two ops."""


class Program:
    """The ops of a run, in order: each with where its arguments come from.

    held   returns the arrays of a cache; what it holds when an op is called may be read
    """

    def __init__(self, function, inputs, held=list):
        self.lines = {}
        self.known = {}  # where each array comes from, by its identity; with the array, which so is not freed
        for name, array in inputs.items():
            self._know(array, ("input", name))

        def before(call):
            self.lines[call.number] = _line()
            for array in held():
                self._know(array, ("cache",))

        engine = TracingEngine(before=before)
        results = run_traced(function, engine=engine)
        ops_called = [call for call in engine.calls if _is_op(call) and (not call.parent or not _is_op(call.parent))]
        self.steps = [self._step(number, call) for number, call in enumerate(ops_called)]
        self.results = {name: self._origin(array, f"the result {name}") for name, array in results.items()}

    def run(self, inputs):
        """Run the ops again on other inputs."""
        made = []
        for function, arguments, settings in self.steps:
            arguments, settings = ([_value(one, inputs, made) for one in part] for part in (arguments, settings))
            made.append(function(*arguments, **dict(settings)))
        return {name: _value(origin, inputs, made) for name, origin in self.results.items()}

    def _step(self, number, call):
        where = f"{self.lines[call.number]}: an argument of {call.name}"
        arguments = [self._origin(part, where) for part in call.arguments]
        settings = [self._origin(part, where) for part in call.settings.items()]
        self._know(call.result, ("result", number, ()))
        return call.function, arguments, settings

    def _know(self, tree, origin):
        if isinstance(tree, tuple):
            for place, part in enumerate(tree):
                self._know(part, (*origin[:2], (*origin[2], place)))
        elif _is_array(tree):
            self.known.setdefault(id(tree), (tree, origin))

    def _origin(self, tree, where):
        """Where a part of an argument comes from: an input, an earlier call, a view of one, or a setting."""
        if isinstance(tree, tuple):
            return "tuple", type(tree), [self._origin(part, where) for part in tree]
        if not _is_array(tree):
            return "setting", tree
        if id(tree) in self.known:
            return self.known[id(tree)][1]
        for array, origin in self.known.values():
            if origin == ("cache",) and np.may_share_memory(tree, array):
                return origin
            index = _view(tree, array)
            if index is not None:
                return "view", index, origin
        raise FromNowhereError(f"{where}, {tree.dtype} {tree.shape}, comes from nowhere")


def _is_op(call):
    """Whether a call is an op, or a method of a part of one's own, which may compute as it likes."""
    return not call.is_method or not Path(inspect.unwrap(call.function).__code__.co_filename).is_relative_to(PACKAGE)


def _line():
    """The file and the line that call an op, in the package."""
    frame = sys._getframe(2)
    while frame.f_code.co_filename.endswith(("dispatch.py", "tracing.py")):
        frame = frame.f_back
    file = Path(frame.f_code.co_filename)
    return f"{file.relative_to(PACKAGE) if file.is_relative_to(PACKAGE) else file.name}:{frame.f_lineno}"


def _is_array(part):
    return isinstance(part, np.ndarray | np.generic)


def _view(view, array):
    """How the same numbers are read in another order of axes, or with axes of length one; None if they are others."""
    if not (isinstance(array, np.ndarray) and isinstance(view, np.ndarray)) or view.size != array.size:
        return None
    if view.ctypes.data != array.ctypes.data:
        return None
    if (view.shape, view.strides) == (array.T.shape, array.T.strides):
        return "turned"
    steps = [[pair for pair in zip(x.shape, x.strides, strict=True) if pair[0] != 1] for x in (view, array)]
    return tuple(None if size == 1 else slice(None) for size in view.shape) if steps[0] == steps[1] else None


def _value(origin, inputs, made):
    kind, *rest = origin
    if kind == "tuple":
        form, parts = rest
        parts = [_value(part, inputs, made) for part in parts]
        return form(*parts) if hasattr(form, "_fields") else form(parts)
    if kind == "setting":
        return rest[0]
    if kind == "input":
        return inputs[rest[0]]
    if kind == "view":
        array = _value(rest[1], inputs, made)
        return array.T if rest[0] == "turned" else array[rest[0]]
    value = made[rest[0]]
    for place in rest[1]:
        value = value[place]
    return value


@pytest.mark.parametrize("case", CASES)
def test_the_calls_of_a_run_compute_another_run(case):
    masked, execution, dropout = ({"masked": False, "execution": Execution(), "dropout": 0.0, **CASES[case]}).values()
    config = CONFIGS[case if case in CONFIGS else case.rpartition(",")[0]].replace(dropout=dropout)
    model = type(gf.build(config))(config, execution)
    key = ops.new_key(3) if dropout else None

    def params_of(seed):
        """Parameters that are all random: gains and biases, too."""
        rng = np.random.default_rng(seed)
        return tree_map(lambda leaf: leaf + 0.1 * rng.standard_normal(leaf.shape), model.init(seed, np.float64))

    first, other = (batch_of(config, sizes, seed, masked=masked) for seed, sizes in enumerate((RECORDED, OTHER)))
    params = params_of(0)
    program = Program(lambda: results_of(model, params, first, key), inputs_of(params, first, key))
    params = params_of(1)
    found, expected = program.run(inputs_of(params, other, key)), results_of(model, params, other, key)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert_close(found[name], value, EXACT)


READERS = {
    name: config for name, config in CONFIGS.items() if not name.startswith(("encoder,", "decoder, feed-forward"))
}
READERS["decoder, window and stride"] = gf.DecoderConfig(**SIZES, positions="alibi", window=4, stride=2)
PIECES = (5, 1, 2, 1)
"""How many tokens are read at a time: more than a window, one by one, and several behind a full window."""


@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("name", READERS)
def test_all_that_a_cached_reading_computes_with_comes_from_ops(name, is_padded):
    config = READERS[name]
    model, rng = gf.build(config), np.random.default_rng(0)
    params = model.init(0, np.float64)
    source = {"source": rng.integers(0, VOCAB, (2, 6))} if config.architecture == "encoder-decoder" else {}
    tokens = rng.integers(0, VOCAB, (2, sum(PIECES)))
    pieces = dict(enumerate(np.split(tokens, np.cumsum(PIECES)[:-1], axis=1)))
    known = np.arange(6) < np.array([[6], [4]]) if is_padded and source else None
    padding = np.arange(PIECES[0]) >= np.array([[0], [2]]) if is_padded else None
    places = np.maximum(np.arange(tokens.shape[1]) - np.array([[0], [2]]), 0) if is_padded else None
    inputs = {**flatten(params), **source, "known": known, "padding": padding, **pieces}
    starts = np.cumsum((0, *PIECES))
    at = {f"places {n}": places[:, starts[n] : starts[n + 1]] for n in pieces} if is_padded else {}
    inputs |= at
    caches = []

    def read():
        caches.append(model.new_cache(params, source["source"], source_mask=known) if source else model.new_cache())
        return {
            f"logits {n}": model.read(
                params, piece, caches[0], mask=None if n else padding, positions=at.get(f"places {n}"), last=n == 0
            )
            for n, piece in pieces.items()
        }

    def held():
        arrays = [part for cache in caches for part in (cache.mask, cache.memory_mask)]
        for block in (block for cache in caches for block in cache.blocks):
            arrays += [block.attention.k, block.attention.v, *(block.memory or ())]
        return [array for array in arrays if array is not None]

    program = Program(read, {name: part for name, part in inputs.items() if part is not None}, held)
    assert program.results.keys() == {f"logits {number}" for number in pieces}
    assert program.steps


class Halving(gf.layers.Positions):
    """A rotation of one's own, and places that follow from the tokens."""

    def places(self, tokens):
        return np.cumsum(tokens % 2, axis=-1) // 2

    def rotation(self, positions, limit=None):
        angle = 0.5 * positions[..., None] * np.ones(SIZES["width"] // SIZES["heads"] // 2)
        return np.cos(angle)[..., None, :, :], np.sin(angle)[..., None, :, :]


class HalvingAgain(Halving):
    """Inherits both."""


@pytest.mark.parametrize("kind", [Halving, HalvingAgain])
def test_rotations_and_places_of_ones_own_are_calls(kind, monkeypatch):
    monkeypatch.setattr(gf.core.registry, "_own", {family: {} for family in gf.core.registry.BUILT_IN})
    gf.register_positions("halving", lambda config, bidirectional: kind())
    config = gf.DecoderConfig(**SIZES, positions="halving")
    model, batch = gf.build(config), batch_of(config, RECORDED, 0, masked=False)
    params = model.init(0, np.float64)
    program = Program(lambda: results_of(model, params, batch, None), inputs_of(params, batch, None))
    assert sorted(step[0].observed_as for step in program.steps if "." in step[0].observed_as) == [
        "Halving.places", "Halving.rotation"
    ]  # fmt: skip


def test_what_is_computed_between_two_ops_is_found_by_its_line():
    x = np.ones((2, 3))
    with pytest.raises(FromNowhereError, match=r"test_program.py:\d+: an argument of copy, float64 \(2, 3\), comes"):
        Program(lambda: {"y": ops.copy(2 * x)[0]}, {"x": x})
    with pytest.raises(FromNowhereError, match="the result y"):
        Program(lambda: {"y": ops.copy(x)[0] + 1}, {"x": x})
