"""Settings by name, those of a task and those that say how a model runs."""

import json
from dataclasses import MISSING, dataclass, field
from typing import Literal

import numpy as np
import pytest

import glassformer as gf
from glassformer.core.errors import ConfigError
from glassformer.core.execution import PLAIN, Execution, MeshShape, joined, separated
from glassformer.core.settings import (
    Setting,
    check_count,
    check_known,
    check_range,
    check_types,
    described,
    from_settings,
    setting_names,
)
from runs import command


@dataclass(frozen=True)
class Lamp:
    color: str = "white"
    watts: int = 40


def test_an_unknown_word_is_refused_with_the_closest_ones():
    with pytest.raises(ConfigError) as caught:
        check_known("there is no engine", "cpuu", ("cpu", "jax"))
    assert str(caught.value) == "there is no engine 'cpuu'\n\nhint: did you mean 'cpu'?"


@pytest.mark.parametrize("word", [None, 3, ["tpu?"], {}])
def test_what_is_no_word_at_all_is_refused_in_the_same_way(word):
    with pytest.raises(ConfigError) as caught:
        check_known("there is no engine", word, {"cpu": 1, "jax": 2})
    assert str(caught.value) == f"there is no engine {word!r}\n\nhint: known: cpu, jax"


@pytest.mark.parametrize("value", [0, -3, 1.5, True, "7", None])
def test_what_is_no_count_is_refused(value):
    with pytest.raises(ConfigError) as caught:
        check_count("n", value, least=1)
    assert str(caught.value) == f"n is {value!r}\n\nhint: use a whole number of at least 1"


@dataclass(frozen=True)
class Slit:
    width: int = 1
    share: float | None = None
    names: tuple[str, ...] = ()

    def __post_init__(self):
        check_types(self, " of the slit")
        check_range(self, "width", least=1, most=9)
        check_range(self, "share", above=0, below=1, of=" of the slit")


def test_values_are_taken_as_python_has_them():
    slit = Slit(np.int64(2), np.float32(0.5), ["a"])
    assert slit == Slit(2, 0.5, ("a",))
    assert (type(slit.width), type(slit.share)) == (int, float)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 2.0}, "width of the slit is 2.0\n\nhint: width takes: whole number"),
        ({"width": True}, "width of the slit is True\n\nhint: width takes: whole number"),
        ({"share": "half"}, "share of the slit is 'half'\n\nhint: share takes: number or none"),
        ({"names": [3]}, "names of the slit is (3,)\n\nhint: names takes: list of texts"),
        ({"width": 10}, "width is 10\n\nhint: use a number of at least 1 and at most 9"),
        ({"share": 1}, "share of the slit is 1\n\nhint: use a number above 0 and below 1"),
        ({"share": float("nan")}, "share of the slit is nan\n\nhint: use a number above 0 and below 1"),
    ],
)
def test_values_of_another_type_or_out_of_range_are_refused(settings, message):
    with pytest.raises(ConfigError) as caught:
        Slit(**settings)
    assert str(caught.value) == message


def test_a_dataclass_is_built_from_its_settings_by_name_and_refuses_others():
    assert from_settings("a lamp has no setting", {"watts": 5}, Lamp) == Lamp(watts=5)
    assert setting_names(Lamp) == ["color", "watts"]
    with pytest.raises(ConfigError, match=r"a lamp has no setting 'colour'(?s:.*)did you mean 'color'\?"):
        from_settings("a lamp has no setting", {"watts": 5, "colour": "red"}, Lamp)


@dataclass(frozen=True, kw_only=True)
class Lantern(Lamp):
    """A lamp that one carries.

    color     of its light
    handle    what one holds it by; of wood
              or of metal

    watts never stand in a sentence like this one.
    candles   inside
    """

    handle: Literal["wood", "metal"] | None = None
    candles: int
    parts: list[str] = field(default_factory=list)
    lit: bool = False


def test_settings_are_described_by_the_docstring_of_who_takes_them_and_choices_may_be_given():
    assert described(Lantern) == [
        Setting("color", "white", "text", "of its light"),
        Setting("watts", 40, "whole number", ""),
        Setting("handle", None, "wood, metal, none", "what one holds it by; of wood or of metal"),
        Setting("candles", MISSING, "whole number", "inside"),
        Setting("parts", [], "value", ""),
        Setting("lit", False, "true, false", ""),
    ]

    assert described(Lamp, {"color": ("red", "blue")})[0].takes == "red, blue"


def test_a_function_is_described_by_its_keyword_arguments():
    def draw(canvas, *, width: float | None = None, tags: tuple[str, ...] = ("a",)):
        """Draw.

        width, tags   of the line
                      and of others
        canvas, tags   not these
        """

    assert described(draw) == [
        Setting("width", None, "number or none", "of the line and of others"),
        Setting("tags", ("a",), "list of texts", "of the line and of others"),
    ]


OLD = {"architecture": "decoder", "vocab": 7, "width": 8, "heads": 2, "layers": 1, "context": 8}


def test_a_model_takes_its_settings_when_it_is_built_old_ones_included():
    config = gf.config_from_dict({**OLD, "attention_tile": 4, "compute": "float16", "remat": True})
    assert config == gf.config_from_dict(OLD)
    _, how = separated({**OLD, "attention_tile": 4, "compute": "float16", "remat": True})
    assert Execution(**how) == Execution(tile=4, precision="float16", remat=True)
    assert separated({"compute": None}) == ({}, {"precision": "float32"})

    how = Execution(tile=4, precision="float16", remat=True)
    assert Execution(**separated(joined(how))[1]) == how
    assert joined(PLAIN) == {}

    config = gf.config_from_dict(OLD)
    model = gf.build(config, attention_tile=2, remat=True)
    assert model.execution == Execution(tile=2, remat=True) == gf.build(config, Execution(tile=2, remat=True)).execution
    assert (model.stack.block.attention.tile, model.stack.remat) == (2, True)


@pytest.mark.parametrize("how", [{"tile": 3}, {"remat": True}, {"tile": 2, "remat": True}])
def test_how_a_model_runs_does_not_change_what_it_computes(how):
    config = gf.config_from_dict(OLD)
    tokens = np.array([[1, 2, 3, 4, 5]])
    batch = gf.Batch(tokens, tokens)
    params = gf.build(config).init(0, np.float64)
    want = gf.tree.flatten(gf.build(config).loss_and_grads(params, batch))
    have = gf.tree.flatten(gf.build(config, Execution(**how)).loss_and_grads(params, batch))
    for name, expected in want.items():
        np.testing.assert_allclose(have[name], expected, rtol=1e-12, atol=1e-14, err_msg=name)


def test_a_config_that_is_given_them_says_where_they_belong():
    with pytest.raises(ConfigError, match=r"remat says how a model runs(.|\n)*hint: build\(config, Execution\(remat=…"):
        gf.DecoderConfig(**{name: value for name, value in OLD.items() if name != "architecture"}, remat=True)
    with pytest.raises(ConfigError, match="attention_tile says how a model runs"):
        gf.config_from_dict(OLD).replace(attention_tile=3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precision": "float8"}, "precision is 'float8'"),
        ({"tile": 0}, "tile is 0"),
        ({"remat": 1}, "remat takes: true, false"),
        ({"tiles": 3}, "execution has no setting 'tiles'"),
        ({"mesh": {"rows": 2}}, "a mesh has no axis 'rows'"),
    ],
)
def test_what_is_no_setting_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Execution.from_dict(settings)


def test_what_is_stored_is_what_is_read_and_commands_take_it_among_settings(tmp_path):
    how = Execution(precision="bfloat16", tile=64, mesh=MeshShape(data=2, tensor=4), scan=True)
    assert Execution.from_dict(json.loads(json.dumps(how.to_dict()))) == how
    assert Execution.from_dict({}) == Execution()

    small = ["--set", "steps=2", "--set", "batch=4", "--out", str(tmp_path / "run")]
    assert command("train", "majority", "--set", "attention_tile=4", *small).code == 0
    planned = command("plan", "tiny-decoder", "--mesh", "data=1", "--set", "attention_tile=16", "--set", "remat=true")
    assert planned.code == 0, planned.err
    assert "remat" in planned.out
