"""`glassformer plan` and `--rules`: what fits is told from what does not, and misuse from both."""

import json

import pytest

from glassformer.cli.plan import parse_bytes
from glassformer.core.errors import ConfigError
from glassformer.core.execution import MeshShape
from glassformer.engines.mesh.plan import plan
from glassformer.models import preset
from glassformer.runs.run import open_run
from runs import command, options, tiny_session

GPT3 = ["gpt3", "--set", "vocab=50304"]


def test_gpt3_fits_on_four_thousand_devices():
    result = command("plan", *GPT3, "--mesh", "data=8,fsdp=64,tensor=8", "--device-memory", "80GB", "--batch", 1024)
    assert result.code == 0
    assert "gpt3 on 4,096 devices: data=8,fsdp=64,tensor=8" in result.out
    assert "It fits: " in result.err
    for row in ("parameters", "optimizer's memory", "weights in use", "all-gather", "reduce-scatter", "all-reduce"):
        assert row in result.out


def test_what_does_not_fit_ends_with_one_and_advice_that_fits_or_says_that_nothing_does():
    given = [*GPT3, "--device-memory", "80GB", "--batch", 128]
    result = command("plan", *given, "--mesh", "data=128,tensor=8")
    assert result.code == 1
    assert "It does not fit: " in result.err
    assert "Most of it is the optimizer's memory." in result.err
    assert "This fits: the mesh data=16,fsdp=8,tensor=8" in result.err
    assert command("plan", *given, "--mesh", "data=16,fsdp=8,tensor=8").code == 0

    result = command("plan", *GPT3, "--device-memory", "1GB", "--mesh", "tensor=8")
    assert result.code == 1
    assert "No other mesh fits" in result.err

    result = command("plan", "gpt2", "--mesh", "data=2")
    assert result.code == 0
    assert "--device-memory" in result.err
    assert "messages per step" in result.out
    assert "messages per step" not in command("plan", "gpt2", "--mesh", "data=1").out


def test_the_json_has_the_numbers_of_the_plan_or_the_advice():
    given = ["--mesh", "fsdp=2,tensor=2", "--batch", 8, "--length", 32, "--accumulate", 2, "--precision", "float16"]
    result = command("plan", "tiny-decoder", *given, "--optimizer", "lion", "--remat", "--ema", "--json")
    found = json.loads(result.out)
    how = {"batch": 8, "length": 32, "accumulate": 2, "precision": "float16", "remat": True, "ema": True}
    expected = plan(preset("tiny-decoder"), MeshShape(fsdp=2, tensor=2), optimizer="lion", **how)
    assert found == {"model": "tiny-decoder", **json.loads(json.dumps(expected.to_dict())), "advice": None}
    assert sum(message["sent"] for message in found["messages"]) == found["sent_bytes"]

    result = command("plan", "gpt2-xl", "--mesh", "data=8", "--device-memory", "16GB", "--json")
    found = json.loads(result.out)
    assert result.code == 1
    assert found["fits"] is False
    assert found["advice"]["mesh"]["fsdp"] > 1
    assert found["advice"]["total"] <= found["device_memory"] == 16 * 1000**3


def test_a_run_folder_and_a_config_file_serve_as_well(tmp_path):
    session = tiny_session("counting", tmp_path / "run", steps=1)
    list(session.steps())
    path = tmp_path / "model.json"
    path.write_text(json.dumps(session.model.config.to_dict()), encoding="utf-8")
    run, file = (
        json.loads(command("plan", name, "--mesh", "data=2", "--json").out) for name in (tmp_path / "run", path)
    )
    assert run["memory_bytes"] == file["memory_bytes"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["gpt-2", "--mesh", "data=2"], "did you mean 'gpt2'"),
        (["gpt2"], "--mesh"),
        (["gpt2", "--mesh", "dota=2"], "did you mean 'data'"),
        (["gpt2", "--mesh", "tensor=8"], "12 heads cannot be shared evenly by tensor=8"),
        (["gpt2", "--mesh", "tensor=2"], "pad the vocabulary, vocab=50258"),
        (["smollm2-135m", "--mesh", "tensor=9"], "3 key/value heads cannot be shared evenly by tensor=9"),
        (["gpt2", "--mesh", "data=3", "--batch", "4"], "a batch of 4 sequences cannot be shared evenly by 3 devices"),
        (["gpt2", "--mesh", "data=2", "--precision", "float8"], "there is no precision 'float8'"),
        (["gpt2", "--mesh", "data=2", "--optimizer", "adm"], "there is no optimizer 'adm'"),
        (["gpt2", "--mesh", "data=2", "--device-memory", "80 apples"], "cannot read the size '80 apples'"),
    ],
)
def test_misuse_is_answered_with_a_remedy(args, message):
    result = command("plan", *args)
    assert result.code == 2
    assert message in result.err
    assert result.out == ""


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("80GB", 80 * 1000**3),
        ("80 gib", 80 * 1024**3),
        ("80G", 80 * 1000**3),
        ("1.5TiB", 3 * 1024**4 // 2),
        ("123", 123),
        ("85899345921", 85_899_345_921),
    ],
)
def test_sizes_are_read_exactly(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1e9", "80GX", "0", "0.0001B", "80GB80"])
def test_sizes_that_are_none_are_refused(text):
    with pytest.raises(ConfigError, match="size"):
        parse_bytes(text)


pytestmark = pytest.mark.usefixtures("unseen_figures")

SIZES = ["--mesh", "fsdp=2,tensor=2", "--batch", 8, "--json"]


def parameters(*given):
    """The bytes of parameters on each device."""
    result = command("plan", "tiny-decoder", *SIZES, *given)
    assert result.code == 0, result.err
    return json.loads(result.out)["memory_bytes"]["parameters"]


def test_a_plan_counts_what_the_rules_leave_in_one_piece(tmp_path):
    assert parameters("--rules", "*=") > 3 * parameters()
    path = tmp_path / "rules.json"
    path.write_text(json.dumps({"embedding.tokens.table": [None, "fsdp"]}), encoding="utf-8")
    assert parameters() < parameters("--rules", path) == parameters("--rules", "embedding.tokens.table=none,fsdp")


@pytest.mark.parametrize(
    ("rules", "message", "hint"),
    [
        ("head.w=fsdp,model", "the rule for head.w names the axis 'model'", "known: data, fsdp"),
        ("head.w", "cannot read the rule 'head.w'", "*attention.key.w=fsdp,none"),
        ("nowhere.json", "cannot read the rules in nowhere.json", "check the file"),
    ],
)
@pytest.mark.parametrize("words", [["plan", "tiny-decoder", *SIZES], ["train", "majority", "--engine", "jax"]])
def test_rules_that_cannot_be_read_are_refused(jax, words, rules, message, hint):
    result = command(*words, "--rules", rules)
    assert result.code == 2
    assert message in result.err
    assert hint in result.err


def test_rules_decide_what_a_mesh_can_hold_and_a_run_keeps_them(jax, tmp_path):
    place = ["--engine", "jax", "--mesh", "fsdp=4", "--out", tmp_path / "run"]
    words = ["train", "majority", *options("majority"), *place]
    assert "needs 4 devices, but there are 1" in command(*words).err
    assert "does not divide evenly over fsdp=4" in command(*words, "--rules", "classifier.w=none,fsdp").err
    assert not (tmp_path / "run").exists()

    words = ["train", "majority", *options("majority"), "--steps", 1, "--engine", "jax", "--out", tmp_path / "run"]
    result = command(*words, "--rules", "cls=; *attention.query.w=none,tensor", "--json")
    assert result.code == 0, result.err
    assert open_run(tmp_path / "run").execution.rules == (("cls", ()), ("*attention.query.w", (None, "tensor")))
    again = command("train", "--resume", tmp_path / "run", "--rules", "cls=")
    assert again.code == 2
    assert "--resume continues a run with its own settings" in again.err
