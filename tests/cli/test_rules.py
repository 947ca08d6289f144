"""`--rules` of `glassformer train` and `plan`: how parameters are split, as one likes, before the table."""

import json

import pytest

from glassformer.runs.run import open_run
from runs import command, options

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
