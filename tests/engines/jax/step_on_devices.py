"""Begin and compile training on eight devices; print what a host held and what the devices tell each other, as JSON."""

import json
import re
import sys
import tempfile
import weakref
from functools import partial
from pathlib import Path

import jax
import numpy as np

from glassformer.config import DecoderConfig, EncoderDecoderConfig
from glassformer.core.execution import Execution, MeshShape
from glassformer.core.sources import checked
from glassformer.core.tree import flatten
from glassformer.data.examples import Windows
from glassformer.engines.jax.placement import DRAWING
from glassformer.engines.jax.trainer import JaxTrainer
from glassformer.layers.layer import Spec
from glassformer.models import build
from glassformer.training import optimizer
from glassformer.training.loop import training_steps
from glassformer.training.recipe import Recipe
from glassformer.training.trainer import start

FEW = {"attention_bias": False, "feed_forward_bias": False}  # of fewer arrays: each takes its time to compile
MODEL = DecoderConfig(vocab=64, width=32, heads=4, layers=3, context=16, feed_forward=48, norm="rms", **FEW)
BATCH, STEPS = 16, 8
COMPILED = {
    "fsdp": Execution(precision="bfloat16", mesh=MeshShape(fsdp=8), scan=True),
    "all": Execution(precision="float16", mesh=MeshShape(data=2, fsdp=2, tensor=2), scan=True, remat=True),
    "one": Execution(precision="bfloat16", scan=True),
}
BEGUN = {
    "stacked": (MODEL, Recipe(ema=0.9), Execution(precision="float16", mesh=MeshShape(fsdp=8), scan=True)),
    "list": (MODEL, Recipe(optimizer="muon"), Execution(mesh=MeshShape(data=2, fsdp=2, tensor=2))),
    "two stacks": (
        EncoderDecoderConfig(vocab=16, width=16, heads=4, layers=2, context=8, positions="relative"),
        Recipe(optimizer="muon"),
        Execution(mesh=MeshShape(data=2, fsdp=2, tensor=2), scan=True),
    ),
    "one device": (MODEL, Recipe(), Execution(scan=True)),
}
MESSAGE = re.compile(r"= (\w+)\[([\d,]*)\]\S* (all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)\(")


def with_messages(lowered):
    """Return the program, and what the partitioner made devices send, before the compiler for CPUs widens it."""
    with tempfile.TemporaryDirectory() as folder:
        program = lowered.compile({"xla_dump_to": folder, "xla_dump_hlo_pass_re": "spmd-partitioning"})
        (dump,) = Path(folder).glob("*after_spmd-partitioning*")
        return program, messages(dump.read_text().splitlines())


def messages(lines):
    """What devices send each other, in the loops and outside."""
    found, outside = [], False
    for line in lines:
        if line.endswith("{") and not line.startswith(" "):
            outside = line.startswith("ENTRY")
        if match := MESSAGE.search(line):
            shape = [int(size) for size in match[2].split(",") if size]
            found.append({"operation": match[3], "type": match[1], "shape": shape, "outside": outside})
    return found


def compiled(execution):
    """The messages of a step, and its first losses."""
    training = JaxTrainer(build(MODEL), Recipe(steps=STEPS, batch=BATCH, warmup=2, lr=0.01), execution)
    data = Windows(np.random.default_rng(0).integers(0, MODEL.vocab, 400), MODEL.context)
    shapes = training.shapes()
    trees = {name: getattr(shapes, name) for name in ("params", "optimizer", "ema", "scaling")}
    sent = []
    if execution.mesh.size > 1:
        lowered = training._compiled_step.current().lower(trees, None, training.batch(data, 0), None, np.float64(0.01))
        training._compiled_step, sent = with_messages(lowered)  # to compile it once more would take as long again
    return {"messages": sent, "losses": [record.loss for _, record in training_steps(training, data, training.first())]}


class Host:
    """Counts the bytes of drawn parameters that are alive, and the arrays of zeros that are made here."""

    def __init__(self):
        self.alive = self.most = self.zeros = 0

    def draw(self, draw, spec, rng, dtype):
        drawn = draw(spec, rng, dtype)
        memory = np.empty(drawn.nbytes + 64, np.uint8)
        # At an odd address: a CPU device would take the very memory of an array that suits it.
        begin = (4 - memory.ctypes.data) % 64
        array = memory[begin : begin + drawn.nbytes].view(dtype).reshape(drawn.shape)
        array[...] = drawn
        self.alive += drawn.nbytes
        self.most = max(self.most, self.alive)
        weakref.finalize(memory, self.forget, drawn.nbytes)
        return array

    def forget(self, size):
        self.alive -= size

    def zeros_like(self, zeros_like, array):
        self.zeros += isinstance(array, np.ndarray)
        return zeros_like(array)

    def watched(self, begin):
        """Return what `begin` does, with draws and zeros counted."""
        draw, zeros_like = Spec.draw, optimizer.zeros_like
        token = checked.set(frozenset({DRAWING}))  # what counts is no edit that parameters must follow
        Spec.draw = lambda spec, rng, dtype: self.draw(draw, spec, rng, dtype)
        optimizer.zeros_like = partial(self.zeros_like, zeros_like)
        try:
            return begin()
        finally:
            Spec.draw, optimizer.zeros_like = draw, zeros_like
            checked.reset(token)


def begun(config, recipe, execution):
    """Where a first state differs from one that was made on the host, and what the host held of it."""
    training = JaxTrainer(build(config), recipe, execution)
    host, other = Host(), Host()
    state = host.watched(training.first)
    known = other.watched(lambda: start(training.model, recipe))
    expected = flatten(training.put(known)._asdict())
    found, shapes = flatten(state._asdict()), flatten(training.shapes()._asdict())
    different = [name for name in expected if not _same(expected[name], found[name], shapes[name])]
    return {
        "different": different,
        "names": [sorted(tree) == sorted(expected) for tree in (found, shapes)],
        "held": host.most,
        "zeros": host.zeros,
        "otherwise": [other.most, other.zeros],
    }


def _same(expected, found, shape):
    if not isinstance(expected, jax.Array):
        return expected == found
    bits = np.asarray(expected).tobytes() == np.asarray(found).tobytes()
    kinds = {(str(x.dtype), x.shape) for x in (expected, found, shape)}
    places = all(expected.sharding.is_equivalent_to(x.sharding, expected.ndim) for x in (found, shape))
    return bits and len(kinds) == 1 and places


if __name__ == "__main__":
    answers = {"begun": {name: begun(*given) for name, given in BEGUN.items()}}
    answers["compiled"] = {name: compiled(execution) for name, execution in COMPILED.items()}
    sys.stdout.write(json.dumps(answers) + "\n")
