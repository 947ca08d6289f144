"""Every layer and model keeps its promise: exact gradients under its parameters' own names, no state, no writing."""

import dataclasses
import importlib
import inspect
import pkgutil
from functools import partial

import numpy as np
import pytest

from glassformer import layers, models
from glassformer.core.dispatch import use_engine
from glassformer.core.tree import flatten, named_leaves, tree_map
from glassformer.engines import ENGINES
from glassformer.layers import Layer, Positions, Spec
from glassformer.models.model import Model
from glassformer.proofs import check, prove_all, prove_case
from glassformer.proofs.check import ALONG
from proof_cases import LAYER_CASES, MODEL_CASES
from proofs.depth import REPEATED, as_deep_as_needed, has_its_own_say, of_one_block
from xla import optimized

CASES = LAYER_CASES + MODEL_CASES


def name_of(case):
    return case.name


def one_per_row(cases):
    """The first case of each row, which is enough to see that there is one: every case is proved by itself here."""
    return list({case.name.partition(",")[0]: case for case in reversed(cases())}.values())


def layer_classes() -> set[type]:
    """Every layer defined anywhere in the packages of layers and models, found by looking."""
    found = set()
    for package in (layers, models):
        for info in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package.__name__}.{info.name}")
            for _, value in inspect.getmembers(module, inspect.isclass):
                if value.__module__ == module.__name__ and (issubclass(value, Layer) or hasattr(value, "backward")):
                    found.add(value)
    # A base has no settings of its own and others build on it.
    bases = {cls for cls in found if not dataclasses.is_dataclass(cls) and cls.__subclasses__()}
    assert bases >= {Layer, Model, Positions}
    # Positions without parameters have nothing to derive: whoever uses them is proved with them.
    constant = {cls for cls in found if issubclass(cls, Positions) and cls.backward is Positions.backward}
    return found - bases - constant


def test_every_layer_is_found_and_has_a_case_of_its_own_name():
    names = {cls.__name__ for cls in layer_classes()}
    assert {"Linear", "Attention", "RelativePositions", "Encoder", "Decoder", "EncoderDecoder"} <= names
    assert len(names) >= 14

    proved = {type(case.layer) for case in LAYER_CASES} | {type(case.model) for case in MODEL_CASES}
    missing = sorted(cls.__name__ for cls in layer_classes() - proved)
    assert not missing, f"add a case in proofs/layer_cases.py or proofs/model_cases.py for: {missing}"

    assert len({case.name for case in CASES}) == len(CASES)
    for case in LAYER_CASES:
        assert case.name.partition(",")[0] == type(case.layer).__name__
    for case in MODEL_CASES:
        assert case.name.startswith(case.model.config.architecture)


def layers_and_engines():
    """Every layer with every engine, but for those that JAX need not compile again."""
    for case in LAYER_CASES:
        for engine in ENGINES:
            if engine != "jax" or case.name not in REPEATED:
                yield pytest.param(case, engine, id=f"{case.name}-{engine}")


@pytest.mark.parametrize(("case", "engine"), list(layers_and_engines()))
def test_the_gradients_of_a_layer_are_exact(case, engine):
    with use_engine(engine):
        found = prove_case(case)
    assert found.limit == ALONG == 1e-8
    assert found.ok, f"error {found.error:.3g}"


def models_and_engines():
    """Every model with every engine; JAX compiles those that have a say of their own."""
    for case in MODEL_CASES:
        for engine in ENGINES:
            if engine != "jax" or has_its_own_say(case, MODEL_CASES):
                yield pytest.param(case, engine, id=f"{case.name}-{engine}")


@pytest.mark.parametrize(("case", "engine"), list(models_and_engines()))
def test_the_gradients_of_a_model_are_exact(case, engine):
    with use_engine(engine):
        found = prove_case(as_deep_as_needed(case) if engine == "jax" else case)
    assert found.limit == ALONG
    assert found.ok, f"error {found.error:.3g}"


@pytest.mark.parametrize("name", ["encoder (BERT)", "decoder (Llama)", "encoder-decoder (T5)"])
def test_the_gradients_of_an_optimized_program_are_exact(jax, monkeypatch, name):
    case = next(case for case in MODEL_CASES if case.name == name)
    monkeypatch.setattr(jax, "jit", partial(jax.jit, compiler_options=optimized()))
    with use_engine("jax"):
        assert prove_case(of_one_block(case)).ok


def test_everything_is_proved_at_once(monkeypatch):
    for name in ("op_cases", "layer_cases", "model_cases", "lora_cases"):
        monkeypatch.setattr(check, name, partial(one_per_row, getattr(check, name)))
    rows = prove_all()
    assert [kind for kind in ("op", "layer", "model") if any(row.kind == kind for row in rows)] == [
        "op",
        "layer",
        "model",
    ]
    assert all(row.ok for row in rows)
    assert len({(row.kind, row.name) for row in rows}) == len(rows)
    names = {row.name for row in rows if row.kind == "layer"}
    assert names == {cls.__name__ for cls in layer_classes() if not issubclass(cls, Model)}


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_gradients_and_specs_have_the_names_and_shapes_of_parameters(case):
    grads = dict(named_leaves(case.gradients()))
    point = dict(named_leaves(case.point))
    assert grads.keys() == point.keys()
    assert {name: x.shape for name, x in grads.items()} == {name: x.shape for name, x in point.items()}
    assert all(grad.dtype == np.float64 for grad in grads.values())

    layer = case.layer if hasattr(case, "layer") else case.model
    specs, params = flatten(layer.specs()), flatten(layer.init(0))
    assert all(isinstance(spec, Spec) for spec in specs.values())
    assert {name: spec.shape for name, spec in specs.items()} == {name: x.shape for name, x in params.items()}
    assert list(specs) == list(params)


def frozen(case):
    """The same case on arrays that cannot be written to."""

    def freeze(x):
        x = np.array(x)
        x.flags.writeable = False
        return x

    params = tree_map(freeze, case.params)
    settings = {
        name: tree_map(freeze, value) if isinstance(value, np.ndarray | tuple) else value
        for name, value in case.settings.items()
    }
    if hasattr(case, "batch"):
        return type(case)(case.name, case.model, params, tree_map(freeze, case.batch), settings)
    return type(case)(case.name, case.layer, params, tree_map(freeze, dict(case.inputs)), settings)


def own_state(layer):
    """Everything a layer holds itself, parts included, except the parts it built from its settings."""
    return {name: value for name, value in vars(layer).items() if name in layer.__dataclass_fields__}


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_layer_writes_to_nothing_and_remembers_nothing(case):
    layer = case.layer if hasattr(case, "layer") else case.model
    with use_engine("numpy"):
        frozen(case).gradients()
    inputs = case.batch if hasattr(case, "batch") else case.inputs
    given = [x for x in flatten((case.params, inputs, case.settings)).values() if isinstance(x, np.ndarray)]
    copies = [x.copy() for x in given]
    case.gradients()  # builds the parts once
    before, settings = dict(vars(layer)), own_state(layer)
    first = flatten(case.gradients())
    assert vars(layer).keys() == before.keys()
    assert all(vars(layer)[name] is value for name, value in before.items())
    assert own_state(layer) == settings
    second = flatten(case.gradients())
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert all(map(np.array_equal, given, copies))


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_the_record_holds_arrays_and_no_parameters(case):
    _, saved = case.forward()
    params = [x for _, x in named_leaves(case.params)]
    for name, value in named_leaves(saved):
        assert isinstance(value, np.ndarray | np.generic), f"{name} is {type(value).__name__}"
        assert not any(np.shares_memory(value, x) for x in params if x.size), f"{name} is a parameter"


def test_a_wrong_gradient_of_a_layer_or_model_fails():
    layer = next(case for case in LAYER_CASES if case.name == "Attention, grouped queries")
    model = next(case for case in MODEL_CASES if case.name == "decoder (head), scaled, bias")
    for case, name in ((layer, "value"), (model, "head")):
        grads = case.gradients()

        class Wrong(type(case)):
            def gradients(self, point=None, grads=grads, name=name):
                params = grads.get("params", grads)
                changed = {**params, name: tree_map(lambda x: x * (1 + 1e-6), params[name])}
                return {**grads, "params": changed} if "params" in grads else changed

        wrong = Wrong(**{field.name: getattr(case, field.name) for field in dataclasses.fields(case)})
        assert prove_case(case).ok
        assert not prove_case(wrong).ok
