"""The plan: exact where it says so, near to what compilers need elsewhere, and helpful when it does not fit."""

import math
from pathlib import Path

import numpy as np
import pytest

from devices import answer, start
from engines.mesh.plan_on_devices import MODELS, STEPS
from glassformer.config import DecoderConfig, EncoderConfig
from glassformer.core.errors import ConfigError
from glassformer.core.execution import Execution, MeshShape
from glassformer.core.tree import count, named_leaves
from glassformer.engines.mesh.plan import PRECISIONS, SLOTS, better, changes, plan
from glassformer.engines.mesh.rules import parse_rules
from glassformer.models import PRESETS, build, preset
from glassformer.models.costs import activation_bytes
from glassformer.training.optimizers import OPTIMIZERS

HERE = Path(__file__).parent
SMALL = DecoderConfig(vocab=64, width=32, heads=4, layers=3, context=16)
GPT3 = preset("gpt3", vocab=50304)
GB = 1000**3


@pytest.fixture(scope="module")
def measured():
    return answer(start(HERE / "plan_on_devices.py", devices=8))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("mesh", ["data=8", "fsdp=8", "data=2,fsdp=2,tensor=2"])
def test_stored_bytes_are_those_of_real_arrays(measured, model, mesh):
    found = measured[f"{model}/{mesh}"]
    for optimizer in OPTIMIZERS:
        memory = plan(MODELS[model], MeshShape.parse(mesh), batch=8, optimizer=optimizer, ema=True).memory
        assert memory["parameters"] == found["parameters"]
        assert memory["optimizer"] == found[optimizer], optimizer
        assert memory["average"] == found["ema"]


def test_the_optimizers_remember_what_the_table_says():
    assert SLOTS.keys() == OPTIMIZERS.keys()
    params = {name: np.empty(spec.shape) for name, spec in named_leaves(build(SMALL).specs())}
    for name, kind in OPTIMIZERS.items():
        numbers = sum(len(kind().slots(leaf, p)) * p.size for leaf, p in params.items())
        assert plan(SMALL, MeshShape(), batch=1, optimizer=name).memory["optimizer"] == 4 * numbers + 4


@pytest.mark.parametrize("name", PRESETS)
def test_one_device_holds_four_bytes_per_parameter(name):
    specs = build(name).specs()
    found = plan(preset(name), MeshShape(), batch=1, length=1)
    assert found.memory["parameters"] == found.memory["gradients"] == 4 * count(specs)


def test_gpt3_is_planned_on_four_thousand_devices():
    found = plan(GPT3, MeshShape(8, 64, 8), batch=1024, device_memory=80 * GB)
    matrices = sum(
        math.prod(spec.shape) // (512 if name != "embedding.positions.table" else 64)
        for name, spec in named_leaves(build(GPT3).specs())
        if len(spec.shape) == 2
    )
    split = 96 * (3 * 12288 + 4 * 12288) // 8  # the biases of query, key, value and up
    whole = 12288 * (96 * 6 + 2)  # per block two norms of two vectors and two biases, then the final norm
    assert found.memory["parameters"] == 4 * (matrices + split + whole)
    assert found.fits
    assert all(isinstance(size, int) for size in found.memory.values())


@pytest.mark.parametrize("name", STEPS)
def test_a_compiled_step_takes_what_was_estimated_within_a_fifth(measured, name):
    step = STEPS[name]
    mesh = MeshShape.parse(step.mesh)
    found = plan(step.config, mesh, batch=step.batch, precision="float32", remat=step.remat, accumulate=step.accumulate)
    counters, tokens = 4, 2 * step.batch // mesh.replicas * step.config.context * 4  # the rate; tokens and targets
    exact = sum(size for kind, size in found.memory.items() if kind in found.EXACT)
    assert measured[name]["arguments"] == exact + tokens + counters
    estimate = found.total - exact
    assert 1 / 1.2 < measured[name]["temporary"] / estimate < 1.2


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["tiny-decoder", "majority", "tiny-seq2seq", "bert-base"])
def test_without_tensor_a_device_records_what_its_sequences_leave(name, precision):
    config = preset(name)
    found = plan(config, MeshShape(data=2, fsdp=4), batch=48, accumulate=3, precision=precision)
    execution = Execution(precision=precision, tile=None if precision == "float32" else 128)
    assert found.memory["activations"] == activation_bytes(config, 2, config.context, execution=execution)
    tiled = plan(config, MeshShape(data=2, fsdp=4), batch=48, accumulate=3, precision=precision, tile=64)
    assert tiled.memory["activations"] == activation_bytes(
        config, 2, config.context, execution=execution.replace(tile=64)
    )


def test_heads_and_hidden_features_are_split_and_what_stands_between_is_not():
    B, T, D, H, F, L = 2, 16, 32, 4, 128, 3
    for tensor in (1, 2, 4):
        found = plan(SMALL, MeshShape(tensor=tensor), batch=B, precision="float32")
        split = 4 * D + H * T + 2 * F  # per token of a block: q, k, v and the mixture; the weights; hidden twice
        whole = 4 * D + 2 * 2  # what the norms read and the residual stream; two norms' mean and spread
        outside = 2 * D + 2  # the embedded tokens, the final norm
        block = B * T * 4 * (split // tensor + whole)
        assert found.memory["activations"] == L * block + B * T * 4 * outside
        assert found.memory["workspace"] == block
        assert found.memory["logits"] == B * T * (64 // tensor) * (4 + 4)
        again = plan(SMALL, MeshShape(tensor=tensor), batch=B, precision="float32", remat=True)
        assert again.memory["activations"] == B * T * 4 * (outside + L * D) + block


def test_half_precision_leaves_the_stored_numbers_wide():
    wide, half = (plan(SMALL, MeshShape(fsdp=2), batch=2, precision=kind) for kind in ("float32", "bfloat16"))
    for kind in ("parameters", "optimizer", "gradients"):
        assert half.memory[kind] == wide.memory[kind]
    assert half.memory["activations"] < wide.memory["activations"] / 1.9  # attention keeps no weights


def test_rules_of_ones_own_change_what_a_device_holds():
    held = plan(SMALL, MeshShape(fsdp=2), batch=2).memory["parameters"]
    table, block = (
        64 * 32,
        3 * 2 * 32 * 128,
    )  # numbers of the tokens' table, and of all matrices between hidden features
    alike = parse_rules("embedding.tokens.table=; *feed_forward.*.w=none,none")
    limit = plan(SMALL, MeshShape(fsdp=2), batch=2, rules=alike, remat=True).total
    found = plan(SMALL, MeshShape(fsdp=2), batch=2, rules=alike, device_memory=limit)
    assert found.memory["parameters"] == held + 4 * (table + block) // 2
    assert better(found).rules == alike
    nothing = parse_rules("*=")
    assert plan(SMALL, MeshShape(fsdp=2), batch=2, rules=nothing).memory["parameters"] == 4 * count(
        build(SMALL).specs()
    )


def test_weights_in_use_are_whole_block_by_block_and_microbatches_take_what_they_need():
    block, table, places = 4 * 32 * 32 + 2 * 32 * 128, 64 * 32, 16 * 32
    for tensor in (1, 2):
        found = plan(SMALL, MeshShape(fsdp=2, tensor=tensor), batch=2, precision="bfloat16").memory["in_use"]
        # Two blocks rounded and the gradient of one; tables rounded; the gradient that the tied head left.
        assert found == block // tensor * (2 * 2 + 4) + (table // tensor + places) * 2 + table // tensor * 4
    alone = plan(SMALL, MeshShape(), batch=2, precision="float32").memory["in_use"]
    assert alone == block * (2 * 4 + 4) + table * 4  # tables are used where they lie
    wide = SMALL.replace(vocab=4096)
    assert plan(wide, MeshShape(), batch=2, precision="float32").memory["in_use"] == 3 * 4096 * 32 * 4
    untied = plan(wide.replace(tied_head=False), MeshShape(), batch=2, precision="float32").memory["in_use"]
    assert untied == 2 * 4096 * 32 * 4

    one, four = (plan(SMALL, MeshShape(data=2), batch=16, accumulate=parts) for parts in (1, 4))
    assert four.memory["gradients"] == 2 * one.memory["gradients"]
    assert 4 * four.memory["logits"] == one.memory["logits"]
    config = EncoderConfig(vocab=16, width=16, heads=2, layers=1, context=8, classes=3)
    assert plan(config, MeshShape(data=2), batch=8, precision="float32").memory["logits"] == 4 * 3 * 8
    assert "logits" not in plan(preset("blocks"), MeshShape(), batch=1).memory


def messages(config, mesh, **settings):
    found = plan(config, MeshShape.parse(mesh), precision="bfloat16", **settings)
    return {(message.axis, message.operation, message.what.split()[0]): message for message in found.messages}


def test_rings_send_what_the_formulas_say():
    numbers = count(build(SMALL).specs())
    matrices = sum(math.prod(spec.shape) for _, spec in named_leaves(build(SMALL).specs()) if len(spec.shape) == 2)
    assert messages(SMALL, "data=1", batch=8) == {}
    tied = 64 * 32  # its gradients come from the lookup and from the head
    outside = tied + 16 * 32
    alone = messages(SMALL, "data=4", batch=8)["data", "all-reduce", "gradients"]
    assert alone.sent == 2 * 4 * (numbers + tied) * 3 // 4
    found = messages(SMALL, "fsdp=4", batch=8)
    assert found["fsdp", "all-gather", "weights"].sent == 2 * (2 * (matrices - outside) * 3 // 4)
    assert found["fsdp", "all-gather", "other"].sent == 2 * outside * 3 // 4
    assert found["fsdp", "reduce-scatter", "gradients"].sent == 4 * (matrices + tied) * 3 // 4
    assert found["fsdp", "all-reduce", "gradients"].sent == 2 * 4 * (numbers - matrices) * 3 // 4
    both = messages(SMALL, "data=2,fsdp=4", batch=8)["data", "all-reduce", "gradients"]
    assert both.sent == both.size == 4 * ((matrices + tied) // 4 + numbers - matrices)


@pytest.mark.parametrize(
    ("settings", "remat", "sums"),
    [({}, False, 4 * 3 + 1), ({}, True, 5 * 3 + 1), ({"norm_position": "post"}, True, 6 * 3 + 1)],
)
def test_tensor_devices_add_up_the_activations_of_every_sublayer(settings, remat, sums):
    vector = 8 * 16 * 32 * 2
    found = messages(SMALL.replace(**settings), "tensor=4", batch=8, remat=remat)
    message = found["tensor", "all-reduce", "activations"]
    assert (message.size, message.times, message.sent) == (vector, sums, sums * 2 * vector * 3 // 4)
    rows = found["tensor", "all-reduce", "rows"]
    assert (rows.size, rows.times) == (2 * vector, 1)  # in float32


def test_a_memory_and_every_microbatch_are_sent_too():
    config = MODELS["encoder-decoder"]  # a decoder of two blocks with three sublayers, an encoder of one
    found = messages(config, "tensor=2", batch=2)
    assert found["tensor", "all-reduce", "activations"].times == (2 * 3 + 2) + (2 * 4 + 2) + 1
    assert found["tensor", "all-reduce", "rows"].times == 2
    again = messages(config, "tensor=2", batch=2, remat=True)
    assert again["tensor", "all-reduce", "activations"].times == (2 * 3 + 2) + (2 * 2 + 1) + (2 * 4 + 2) + 1

    one, two = (messages(SMALL, "fsdp=2,tensor=2", batch=8, accumulate=parts) for parts in (1, 2))
    for key in (("fsdp", "all-gather", "weights"), ("fsdp", "reduce-scatter", "gradients")):
        assert (two[key].times, two[key].sent) == (2 * one[key].times, 2 * one[key].sent)
    for key in (("fsdp", "all-gather", "other"), ("tensor", "all-reduce", "activations")):
        assert two[key].sent == one[key].sent


@pytest.mark.parametrize(
    ("mesh", "settings", "message"),
    [
        ("data=3", {"batch": 8}, "a batch of 8 sequences cannot be shared evenly by 3 devices"),
        ("data=2", {"batch": 8, "accumulate": 3}, "in 3 microbatches"),
        ("data=2", {"batch": 0}, "a batch of 0 sequences"),
        ("data=2", {"batch": 2, "accumulate": 0}, "in 0 microbatches"),
        ("data=1", {"batch": 1, "precision": "float8"}, "there is no precision 'float8'"),
        ("data=1", {"batch": 1, "optimizer": "adamv"}, "did you mean 'adam' or 'adamw'"),
        ("data=1", {"batch": 1, "length": 17}, "this model reads 1 to 16 tokens"),
        ("data=1", {"batch": 1, "length": 0}, "the length is 0"),
        ("tensor=3", {"batch": 1}, "4 heads cannot be shared evenly by tensor=3"),
    ],
)
def test_what_cannot_be_planned_is_refused(mesh, settings, message):
    with pytest.raises(ConfigError, match=message):
        plan(SMALL, MeshShape.parse(mesh), **settings)


def advice(config, mesh, **settings):
    refused = plan(config, MeshShape.parse(mesh), **settings)
    assert refused.fits is False
    found = better(refused)
    assert found is None or (found.fits and found.batch == refused.batch)
    return found and changes(refused, found)


def room(config, mesh, **settings):
    """The memory that a plan takes."""
    return plan(config, MeshShape.parse(mesh), **settings).total


def test_advice_is_fsdp_then_microbatches_then_remat_then_tensor_then_more_devices():
    limit = room(GPT3, "data=8,fsdp=16,tensor=8", batch=128)
    assert advice(GPT3, "data=128,tensor=8", batch=128, device_memory=limit) == ["the mesh data=8,fsdp=16,tensor=8"]

    mesh = "fsdp=2"
    two = max(room(SMALL, mesh, batch=64, accumulate=2), room(SMALL, mesh, batch=64, remat=True))  # either would do
    assert advice(SMALL, mesh, batch=64, device_memory=two) == ["2 microbatches per step (accumulate)"]
    again = room(SMALL, mesh, batch=2, remat=True)
    assert advice(SMALL, mesh, batch=2, device_memory=again) == ["remat"]
    narrow = room(SMALL, "tensor=2", batch=2, remat=True)
    assert advice(SMALL, mesh, batch=2, remat=True, device_memory=narrow) == ["the mesh data=1,fsdp=1,tensor=2"]

    limit = room(GPT3, "fsdp=64,tensor=8", batch=64, remat=True)
    words = advice(GPT3, "fsdp=8,tensor=8", batch=64, device_memory=limit)
    assert words[0] == "512 devices instead of 64"
    assert "the mesh data=1,fsdp=64,tensor=8" in words


def test_one_change_comes_before_two_and_what_never_fits_gets_no_advice():
    deep = SMALL.replace(layers=12)
    limit = room(deep, "data=2", batch=16, remat=True)
    assert room(deep, "fsdp=2", batch=16, accumulate=2) < limit
    assert advice(deep, "data=2", batch=16, device_memory=limit) == ["remat"]

    assert advice(GPT3, "tensor=8", batch=1, device_memory=GB) is None

    found = plan(SMALL, MeshShape(), batch=1)
    assert found.fits is None
    assert found.to_dict()["fits"] is None
    assert found.total == sum(found.memory.values())
    assert found.largest == max(found.memory, key=found.memory.get)
