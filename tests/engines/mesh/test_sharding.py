"""Arrays on eight devices: each holds the part that the rules say; blocks as a list and blocks stacked are the same."""

import math
from pathlib import Path

import numpy as np
import pytest

from devices import answer, start
from engines.mesh.place_arrays import MESHES, MODELS, REMEMBERED
from glassformer.config import config_from_dict
from glassformer.core.errors import ShapeError
from glassformer.core.execution import MeshShape
from glassformer.core.tree import flatten
from glassformer.engines.mesh.rules import axes_for
from glassformer.engines.mesh.sharding import stack_blocks, unstack_blocks
from glassformer.models import build
from glassformer.training import EMA, AdamW, Muon
from process_groups import free_port
from runs import assert_same_bits

HERE = Path(__file__).parent
STATES = {
    "adam": ["mean.", "square."],
    "stacked adam": ["mean.", "square."],
    "muon": ["momentum.", "mean.", "square."],
    "ema": ["average."],
    "all": ["optimizer.momentum.", "optimizer.mean.", "optimizer.square.", "ema.average."],
}


@pytest.fixture(scope="module")
def placed():
    return answer(start(HERE / "place_arrays.py", devices=8))


def test_shards_have_the_shapes_that_one_expects_by_hand(placed):
    found = placed["decoder/data=2,fsdp=2,tensor=2/list/params"]
    expected = {
        "embedding.tokens.table": ([16, 16], [8, 8]),
        "embedding.positions.table": ([8, 16], [8, 8]),
        "blocks.1.attention.query.w": ([16, 16], [8, 8]),
        "blocks.1.attention.query.b": ([16], [8]),
        "blocks.1.attention.key.w": ([16, 8], [8, 4]),
        "blocks.1.attention.value.b": ([8], [4]),
        "blocks.1.attention.output.w": ([16, 16], [8, 8]),
        "blocks.1.attention.output.b": ([16], [16]),
        "blocks.1.feed_forward.gate.w": ([16, 64], [8, 32]),
        "blocks.1.feed_forward.up.b": ([64], [32]),
        "blocks.1.feed_forward.down.w": ([64, 16], [32, 8]),
        "blocks.1.feed_forward.down.b": ([16], [16]),
        "blocks.1.attention_norm.gamma": ([16], [16]),
        "final_norm.gamma": ([16], [16]),
        "head.w": ([16, 16], [8, 8]),
        "head.b": ([16], [8]),
    }
    assert {name: (found[name]["shape"], found[name]["shard"]) for name in expected} == expected
    loop = placed["decoder/data=2,fsdp=2,tensor=2/stacked/params"]["blocks.attention.key.w"]
    assert (loop["shape"], loop["shard"]) == ([2, 16, 8], [2, 8, 4])
    wide = placed["decoder/fsdp=8/list/params"]["blocks.0.feed_forward.up.w"]
    assert (wide["shape"], wide["shard"], wide["shards"]) == ([16, 64], [2, 64], 8)


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("layout", ["list", "stacked"])
def test_what_a_rule_splits_is_split_and_nothing_else(placed, model, layout, mesh):
    check(placed[f"{model}/{mesh}/{layout}/params"], mesh, lambda name: name)


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("model", REMEMBERED)
@pytest.mark.parametrize("state", STATES)
def test_what_is_remembered_lies_with_its_parameter(placed, model, state, mesh):
    found = placed[f"{model}/{mesh}/{state}"]
    counters = [name for name in found if name.endswith("step")]
    assert all(found.pop(name)["shards"] == 1 for name in counters)
    assert {next(slot for slot in STATES[state] if name.startswith(slot)) for name in found} == set(STATES[state])
    check(found, mesh, lambda name: next(name.removeprefix(slot) for slot in STATES[state] if name.startswith(slot)))


def check(found, mesh, parameter):
    """Refuse shards of other shapes than the rules say, and bits that did not come back."""
    shape = MeshShape.parse(mesh)
    for name, facts in found.items():
        axes = axes_for(parameter(name), facts["shape"], shape)
        parts = [1 if axis is None else getattr(shape, axis) for axis in axes]
        assert facts["shard"] == [size // part for size, part in zip(facts["shape"], parts, strict=True)], name
        assert facts["shards"] == math.prod(parts), f"{name} is in {facts['shards']} parts"
        assert facts["alike"], name
        assert facts["same"], f"{name} came back with other bits"


@pytest.mark.parametrize("layout", ["list", "stacked"])
def test_weights_in_use_are_split_over_tensor_alone(placed, layout):
    found = placed[f"decoder/data=2,fsdp=2,tensor=2/{layout}/working"]
    front = [2] if layout == "stacked" else []
    block = "blocks.0." if layout == "list" else "blocks."
    shards = {name: facts["shard"] for name, facts in found.items()}
    assert shards[f"{block}attention.query.w"] == [*front, 16, 8]
    assert shards[f"{block}attention.output.w"] == [*front, 8, 16]
    assert shards[f"{block}attention_norm.gamma"] == [*front, 16]
    assert shards["embedding.positions.table"] == [8, 16]


@pytest.mark.parametrize(("mesh", "rows"), [(mesh, 16 // MeshShape.parse(mesh).replicas) for mesh in MESHES])
def test_sequences_are_shared_by_data_and_fsdp(placed, mesh, rows):
    found = placed[f"batch/{mesh}"]
    assert {name: facts["shard"] for name, facts in found.items()} == {"tokens": [rows, 8], "classes": [rows]}
    assert all(facts["same"] for facts in found.values())
    assert all(facts["shards"] == 1 and facts["same"] for facts in placed[f"whole/{mesh}"].values())


def test_the_lines_in_the_documentation_print_what_it_says(jax, capsys):
    page = (HERE.parents[2] / "docs" / "guides" / "sharding.md").read_text(encoding="utf-8")
    code, rest = page.split("```python\nimport glassformer", 1)[1].split("```", 1)
    printed = rest.split("```\n", 1)[1].split("```", 1)[0]
    names: dict = {}
    exec(f"import glassformer{code}", names)
    assert capsys.readouterr().out == printed
    assert_same_bits(names["back"], names["params"])


def test_two_processes_place_their_own_parts_and_fetch_the_whole():
    port = free_port()
    workers = [start(HERE / "place_on_processes.py", port, number, devices=2) for number in range(2)]
    for number, found in enumerate([answer(worker) for worker in workers]):
        assert (found["devices"], found["own"]) == (4, 2)
        assert "blocks.0.attention.query.w" in found["elsewhere"]
        assert found["different"] == []
        assert found["missing"] == ([] if number == 0 else ["1"])  # only the first one wanted that
        assert found["kinds"] == ["ndarray"]


SIZES = {"width": 8, "heads": 2, "layers": 3, "vocab": 11, "context": 8, "feed_forward": 16}
STACKED = {
    "decoder": {"architecture": "decoder", **SIZES},
    "encoder": {"architecture": "encoder", **SIZES, "classes": 2},
    "encoder-decoder": {"architecture": "encoder-decoder", **SIZES, "source_vocab": 9, "encoder_layers": 2},
}


@pytest.fixture(params=STACKED)
def params(request):
    return build(config_from_dict(STACKED[request.param])).init(0)


@pytest.mark.parametrize("optimizer", [AdamW(), Muon()], ids=["adamw", "muon"])
def test_stacking_and_unstacking_gives_back_every_bit_of_a_whole_state(params, optimizer):
    rng = np.random.default_rng(0)
    state = {"params": params, "optimizer": optimizer.init(params), "ema": EMA(0.9).init(params), "scaling": None}
    for array in flatten(state).values():
        if array.ndim:
            array[...] = rng.normal(size=array.shape)
    stacked = stack_blocks(state)
    names = flatten(stacked)
    assert not any(".blocks.0." in name for name in names)
    assert any(".encoder.blocks." in name or ".blocks." in name for name in names)
    assert stacked["scaling"] is None
    assert_same_bits(unstack_blocks(stacked), state)


def test_stacked_layers_are_the_first_axis_and_what_is_as_wanted_stays(params, jax):
    listed, stacked = flatten(params), flatten(stack_blocks(params))
    for name, array in stacked.items():
        if "blocks." in name:
            before, after = name.split("blocks.")
            for layer, part in enumerate(array):
                assert np.array_equal(part, listed[f"{before}blocks.{layer}.{after}"])
        else:
            assert array is listed[name]

    assert_same_bits(unstack_blocks(params), params)
    stacked = stack_blocks(params)
    assert_same_bits(stack_blocks(stacked), stacked)

    tree = {"blocks": [{"w": jax.numpy.ones((2, 3))}, {"w": jax.numpy.zeros((2, 3))}]}
    stacked = stack_blocks(tree)
    assert isinstance(stacked["blocks"]["w"], jax.Array)
    assert stacked["blocks"]["w"].shape == (2, 2, 3)
    assert isinstance(unstack_blocks(stacked)["blocks"][1]["w"], jax.Array)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"w": np.ones((2, 4), np.float32)}, r"w is \(2, 3, 'float32'\) in block 0 and \(2, 4, 'float32'\) in block 1"),
        ({"w": np.ones((2, 3), np.float64)}, "float64"),
        ({"v": np.ones((2, 3), np.float32)}, "v is missing in block 0"),
        ({}, "and missing in block 1"),
    ],
)
def test_blocks_of_different_kinds_are_refused(other, message):
    with pytest.raises(ShapeError, match=message):
        stack_blocks({"blocks": [{"w": np.ones((2, 3), np.float32)}, other]})


def test_stacked_arrays_of_different_layers_are_refused_and_adapters_of_some_blocks_are_none():
    with pytest.raises(ShapeError, match="differ in their number of layers"):
        unstack_blocks({"blocks": {"w": np.ones((2, 3)), "b": np.ones((3,))}})
    some = {"blocks": {"1": {"query": {"w": {"a": np.ones((3, 2)), "b": np.ones((2, 3))}}}}}
    assert unstack_blocks(some) == some
    assert stack_blocks(some) == some
