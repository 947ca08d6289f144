"""The table that splits parameters: every name has its rule, and what does not divide is refused."""

import json
import re
import sys
from pathlib import Path

import pytest

from glassformer.config import DecoderConfig, EncoderConfig, EncoderDecoderConfig
from glassformer.core.errors import ConfigError, ShapeError
from glassformer.core.execution import AXES, Execution, MeshShape
from glassformer.core.tree import named_leaves
from glassformer.engines.mesh.rules import (
    RULES,
    Rule,
    axes_for,
    build_mesh,
    check_execution,
    check_mesh,
    own_rules,
    parse_rules,
    rule_for,
    shape_of,
)
from glassformer.models import PRESETS, build, preset
from glassformer.training.trainable import LoRA

MESH = MeshShape(2, 2, 2)
ONE = MeshShape()
SIZES = {"vocab": 16, "width": 8, "heads": 2, "layers": 2, "context": 8}
OTHERS = {
    "cls": EncoderConfig(**SIZES, classes=4, pooling="cls", pooled_activation="gelu"),
    "filler": EncoderConfig(**SIZES, head="tokens", head_bias=True, tied_head=False, segments=2, embedding_norm=True),
    "relative decoder": DecoderConfig(**SIZES, positions="relative", gated=True, head_bias=True, tied_head=False),
    "two tables": EncoderDecoderConfig(**SIZES, source_vocab=20, embedding_norm=True, gated=True, head_bias=True),
}
CONFIGS = {**{name: preset(name, layers=2) for name in PRESETS}, **OTHERS}

# What is meant, name by name, independent of the table's patterns. The axes of blocks are given without their stack.
COLUMNS, ROWS = ("fsdp", "tensor"), ("tensor", "fsdp")
ATTENTION = {
    **dict.fromkeys(["query.w", "key.w", "value.w"], COLUMNS),
    **dict.fromkeys(["query.b", "key.b", "value.b"], ("tensor",)),
    "output.w": ROWS,
    "output.b": (None,),
}
INTENDED = {
    "embedding.tokens.table": ROWS,
    "source_embedding.tokens.table": ROWS,
    **dict.fromkeys(["embedding.positions.table", "source_embedding.positions.table"], (None, "fsdp")),
    "embedding.segments.table": (None, "fsdp"),
    **{f"attention.{name}": axes for name, axes in ATTENTION.items()},
    **{f"cross_attention.{name}": axes for name, axes in ATTENTION.items()},
    **dict.fromkeys(["feed_forward.up.w", "feed_forward.gate.w"], COLUMNS),
    **dict.fromkeys(["feed_forward.up.b", "feed_forward.gate.b"], ("tensor",)),
    "feed_forward.down.w": ROWS,
    "feed_forward.down.b": (None,),
    "relative.table": (None, "tensor"),
    "head.w": COLUMNS,
    "head.b": ("tensor",),
    "head.transform.linear.w": ("fsdp", None),
    "head.transform.linear.b": (None,),
    "pooled_linear.w": ("fsdp", None),
    "pooled_linear.b": (None,),
    "classifier.w": ("fsdp", None),
    "classifier.b": (None,),
    "cls": (None,),
    **{
        f"{norm}.{part}": (None,)
        for norm in (
            *("attention_norm", "cross_attention_norm", "feed_forward_norm", "final_norm"),
            *("embedding.norm", "source_embedding.norm", "head.transform.norm"),
        )
        for part in ("gamma", "beta")
    },
}


def plain(name):
    """The name without its place in a stack."""
    return re.sub(r"^((encoder|decoder)\.)?(blocks\.(\d+\.)?)?", "", name)


def stacked(name):
    return re.sub(r"\bblocks\.\d+\.", "blocks.", name)


def names_of(config):
    return {name: spec.shape for name, spec in named_leaves(build(config).specs())}


@pytest.mark.parametrize("model", CONFIGS)
def test_exactly_one_rule_fits_every_parameter_and_it_is_the_one_meant(model):
    for name, shape in names_of(CONFIGS[model]).items():
        for spelled, front in ((name, ()), (stacked(name), (2,) if "blocks" in name else ())):
            fitting = [rule for rule in RULES if rule_is_for(rule, spelled)]
            assert len(fitting) == 1, f"{spelled}: {fitting}"
            assert axes_for(spelled, (*front, *shape), ONE) == (*(None for _ in front), *INTENDED[plain(spelled)])


def rule_is_for(rule, name):
    try:
        rule_for(name, (rule,))
    except ConfigError:
        return False
    return True


def test_no_rule_is_idle_adapters_of_lora_are_whole_and_a_name_without_a_rule_is_an_error():
    names = {name for config in CONFIGS.values() for name in names_of(config)}
    assert {plain(name) for name in names} == INTENDED.keys()
    adapters = dict(named_leaves(LoRA(rank=2).specs(build(OTHERS["cls"]).specs())))
    idle = [rule for rule in RULES if not any(rule_is_for(rule, name) for name in (*names, *adapters))]
    assert idle == []

    everywhere = LoRA(rank=2, targets=("*.w", "*.table"))
    adapters = dict(named_leaves(everywhere.specs(build(OTHERS["cls"]).specs())))
    for name, spec in adapters.items():
        assert sum(rule_is_for(rule, name) for rule in RULES) == 1
        assert axes_for(name, spec.shape, MESH) == (None, None)

    with pytest.raises(ConfigError, match=r"no rule says how to split blocks\.0\.mixer\.w over a mesh") as error:
        axes_for("blocks.0.mixer.w", (4, 4), MESH)
    assert "blocks.0.mixer.w=none" in error.value.hint


def test_an_axis_that_does_not_divide_and_a_rule_for_too_many_axes_are_refused():
    with pytest.raises(ConfigError) as error:
        axes_for("blocks.3.feed_forward.up.w", (8, 9), MESH)
    assert error.value.fact == (
        "blocks.3.feed_forward.up.w has shape (8, 9), and 9 does not divide evenly over tensor=2"
    )
    assert error.value.hint == "choose tensor so that it divides 9, or change feed_forward of the model"

    with pytest.raises(ShapeError, match=r"splits 2 axes, but head\.b has shape \(16,\)"):
        axes_for("head.b", (16,), MESH, parse_rules("head.b=fsdp,tensor"))


@pytest.mark.parametrize(
    ("name", "shape", "hint"),
    [
        ("embedding.tokens.table", (50257, 8), "pad the vocabulary, vocab=50258"),
        ("source_embedding.tokens.table", (17, 8), "pad the vocabulary, source_vocab=18"),
        ("head.w", (8, 17), "pad the vocabulary, vocab=18"),
        ("head.b", (17,), "pad the vocabulary, vocab=18"),
    ],
)
def test_a_vocabulary_that_does_not_divide_is_to_be_padded(name, shape, hint):
    with pytest.raises(ConfigError, match="does not divide evenly over tensor=2") as error:
        axes_for(name, shape, MESH)
    assert error.value.hint.startswith(hint)


def test_key_heads_that_would_be_cut_are_refused_with_the_setting_to_change():
    config = DecoderConfig(vocab=16, width=64, heads=8, kv_heads=2, layers=1, context=8)
    check_mesh(config, MeshShape(tensor=2))
    # The matrix of the keys has 16 columns, which four devices could share: half a head each.
    with pytest.raises(ConfigError, match="2 key/value heads cannot be shared evenly by tensor=4") as error:
        check_mesh(config, MeshShape(tensor=4))
    assert error.value.hint.startswith("choose tensor among 1, 2, or set kv_heads to a multiple of 4")
    whole = parse_rules("*attention.{key,value}.w=fsdp,none; *attention.{key,value}.b=")
    check_mesh(config, MeshShape(tensor=4), whole)

    with pytest.raises(ConfigError, match="12 heads cannot be shared evenly by tensor=8") as error:
        check_mesh(preset("gpt2", vocab=50304), MeshShape(tensor=8))
    assert error.value.hint == "choose tensor among 1, 2, 3, 4, 6, 12"


@pytest.mark.parametrize(
    ("model", "mesh"), [("gpt2", "tensor=3"), ("llama-3-8b", "fsdp=3"), ("two tables", "tensor=3")]
)
def test_a_model_that_cannot_be_split_is_refused_before_anything_is_allocated(model, mesh):
    with pytest.raises(ConfigError, match="evenly"):
        check_mesh(CONFIGS[model], MeshShape.parse(mesh))


@pytest.mark.parametrize("model", CONFIGS)
def test_one_device_holds_every_model(model):
    check_mesh(CONFIGS[model], ONE)


def test_rules_of_ones_own_cut_no_heads_either_and_are_kept_by_a_run():
    config = DecoderConfig(vocab=16, width=64, heads=8, kv_heads=2, layers=1, context=8)
    with pytest.raises(ConfigError, match="2 key/value heads cannot be shared evenly by fsdp=4"):
        check_mesh(config, MeshShape(fsdp=4), parse_rules("*attention.{key,value}.w=fsdp"))

    execution = Execution(mesh=MeshShape(fsdp=2), rules=own_rules("head.*=none,fsdp; cls="))
    assert execution.rules == (("head.*", (None, "fsdp")), ("cls", ()))
    assert Execution.from_dict(json.loads(json.dumps(execution.to_dict()))) == execution
    assert parse_rules(execution.rules) == (Rule("head.*", (None, "fsdp")), Rule("cls", ()), *RULES)
    assert "rules" not in Execution().to_dict()
    config = DecoderConfig(vocab=16, width=64, heads=8, layers=1, context=8, tied_head=False)
    check_execution(config, Execution(rules=own_rules("head.*=")), batch=2)
    wide = Execution(mesh=MeshShape(fsdp=8), rules=own_rules("head.w=none,fsdp"))
    with pytest.raises(ConfigError, match="12 does not divide evenly over fsdp=8"):
        check_execution(config.replace(vocab=12), wide, batch=8)


OWN = (Rule("head.*", (None, "fsdp")), Rule("*attention.{key,value}.b", ()), Rule("cls", (None,)))


@pytest.mark.parametrize(
    "given",
    [
        "head.*=none,fsdp; *attention.{key,value}.b=; cls=none",
        ["head.*=none,fsdp", "*attention.{key,value}.b=", "cls=none"],
        [["head.*", [None, "fsdp"]], ["*attention.{key,value}.b", []], ["cls", ["none"]]],
        OWN,
        "rules.json",
    ],
)
def test_own_rules_come_before_the_table(given, tmp_path, monkeypatch):
    (tmp_path / "rules.json").write_text(json.dumps({rule.pattern: rule.axes for rule in OWN}), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    rules = parse_rules(given)
    assert rules == (*OWN, *RULES)
    assert axes_for("head.w", (4, 4), MESH, rules) == (None, "fsdp")
    assert axes_for("embedding.tokens.table", (4, 4), MESH, rules) == ("tensor", "fsdp")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("head.w", "cannot read the rule 'head.w'"),
        ("=fsdp", "a rule has no pattern"),
        ("head.w=tenser", "did you mean 'tensor'"),
        ("head.w=fsdp,fsdp", "splits two axes over fsdp"),
        ("head.{w=fsdp", "close every brace"),
        ("blocks.0.attention.key.w=", "split all alike: *attention.key.w"),
        ("decoder.blocks.*.feed_forward.up.w=fsdp", "split all alike: *feed_forward.up.w"),
        ([["head.w", "fsdp"]], "cannot read the rule"),
        ([7], "cannot read the rule 7"),
        (Path("none.json"), "cannot read the rules in none.json"),
        ("number.json", "holds no list of rules"),
    ],
)
def test_rules_that_make_no_sense_are_refused(given, message, tmp_path, monkeypatch):
    (tmp_path / "number.json").write_text("7", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse_rules(given)


def test_the_documentation_shows_the_table_as_it_is():
    page = (Path(__file__).parents[3] / "docs" / "guides" / "sharding.md").read_text(encoding="utf-8")
    shown = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in page.splitlines() if "| `" in line]
    table = [
        (f"`{rule.pattern}`", ", ".join(rule.sizes), ", ".join(axis or "–" for axis in rule.axes) or "whole")
        for rule in RULES
    ]
    assert [row for row in shown if len(row) == 3] == table


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("data=8,fsdp=64,tensor=8", MeshShape(8, 64, 8)),
        ("tensor=2", MeshShape(tensor=2)),
        (" fsdp = 4 , data = 2 ", MeshShape(2, 4, 1)),
    ],
)
def test_a_shape_is_read_with_one_device_along_axes_left_out(text, shape):
    assert MeshShape.parse(text) == shape


def test_text_and_dict_lead_back_to_the_shape():
    shape = MeshShape(2, 3, 5)
    assert str(shape) == "data=2,fsdp=3,tensor=5"
    assert MeshShape.parse(str(shape)) == MeshShape.from_dict(shape.to_dict()) == shape
    assert (shape.size, shape.replicas) == (30, 6)
    assert tuple(shape.to_dict()) == AXES


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot read the mesh ''"),
        ("8", "write it as data=8,fsdp=64,tensor=8"),
        ("data=", "cannot read the mesh"),
        ("data=-1", "cannot read the mesh"),
        ("data=1.5", "cannot read the mesh"),
        ("data=²", "cannot read the mesh"),
        ("data=0", "data of the mesh is 0"),
        ("data=2,,tensor=2", "cannot read the mesh"),
        ("data=2,data=2", "names data twice"),
        ("tenser=2", "did you mean 'tensor'"),
    ],
)
def test_text_that_is_no_shape_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        MeshShape.parse(text)


@pytest.mark.parametrize("devices", [0, -2, 1.0, True, "2", None])
def test_devices_are_counted_in_whole_numbers(devices):
    with pytest.raises(ConfigError, match="fsdp of the mesh is"):
        MeshShape(fsdp=devices)


def test_a_mesh_has_all_three_axes_and_as_many_devices_as_it_says(jax):
    mesh = build_mesh(MeshShape(), jax.devices()[:1])
    assert mesh.axis_names == AXES
    assert shape_of(mesh) == MeshShape()
    with pytest.raises(ConfigError, match=r"data=1,fsdp=3,tensor=1 needs 3 devices, but there are 1") as error:
        build_mesh(MeshShape(fsdp=3), jax.devices()[:1])
    assert "whose product is 1" in error.value.hint


def test_without_jax_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ConfigError, match="need JAX, which is not installed") as error:
        build_mesh(MeshShape())
    assert "glassformer[jax]" in error.value.hint
