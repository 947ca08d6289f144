"""`glassformer params`: exact counts, at once, of models of any size."""

import json

import pytest

from glassformer.core.tree import count
from glassformer.models import build, preset
from runs import command


def params(*args):
    result = command("params", *args, "--json")
    assert result.code == 0, result.err
    return json.loads(result.out)


def test_gpt2_has_its_published_size():
    assert params("gpt2")["parameters"]["total"] == 124_439_808
    assert "124,439,808" in command("params", "gpt2").out


@pytest.mark.parametrize("name", ["majority", "counting", "tiny-decoder", "tiny-seq2seq"])
def test_counts_are_those_of_real_parameters(name):
    assert params(name)["parameters"]["total"] == count(build(preset(name)).init(0))


def test_batch_length_dtype_and_settings_are_taken_into_account():
    found = params("gpt2", "--batch", 4, "--length", 100, "--dtype", "bfloat16")
    assert (found["model"], found["batch"], found["length"], found["dtype"]) == ("gpt2", 4, 100, "bfloat16")
    assert sum(found["parameters"]["parts"].values()) == found["parameters"]["total"]
    memory = found["memory_bytes"]
    assert memory["weights"] == 2 * found["parameters"]["total"]
    assert found["flops_per_token"]["training"] > found["flops_per_token"]["forward"]
    assert all(isinstance(size, int | float) and size > 0 for size in memory.values())

    found = params("gpt2", "--set", "layers=2", "--set", "vocab=100", "--set", "norm=rms")
    assert found["parameters"]["total"] == count(build(preset("gpt2", layers=2, vocab=100, norm="rms")).init(0))
    assert found["config"]["layers"] == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("widht=8", "did you mean 'width'"),
        ("foo=8", "`glassformer settings decoder` lists them all"),
        ("width=9", "width 9 is not divisible by 12 heads"),
        ("width", "cannot read the setting 'width'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given, message):
    result = command("params", "gpt2", "--set", given)
    assert result.code == 2
    assert message in result.err


def test_a_config_file_serves_as_well(tmp_path):
    path = tmp_path / "model.json"
    path.write_text(json.dumps(preset("counting").to_dict()), encoding="utf-8")
    assert params(path)["parameters"] == params("counting")["parameters"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "cannot be read as JSON"),
        (b"\xff\xfe", "cannot be read as JSON"),
        (b"[1]", "holds no JSON object"),
        (b'{"architecture": "decoder", "vocav": 9}', "did you mean 'vocab'"),
    ],
)
def test_a_bad_file_is_refused(content, message, tmp_path):
    path = tmp_path / "model.json"
    path.write_bytes(content)
    result = command("params", path)
    assert result.code == 2
    assert result.err.startswith("error: ")
    assert message in result.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["gpt-2"], "did you mean 'gpt2'"),
        (["gpt2", "--dtype", "float8"], "there is no dtype 'float8'"),
        (["gpt2", "--length", "2000"], "length is 2000"),
    ],
)
def test_misuse_is_answered_with_a_remedy(args, message):
    result = command("params", *args)
    assert result.code == 2
    assert message in result.err
    assert result.out == ""
