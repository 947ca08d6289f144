"""`glassformer train --from`: models of our own and published ones, trained on as a whole or by adapters."""

import itertools
import json
import shutil

import numpy as np
import pytest

from fine_tuning import VOCAB, published
from glassformer.api.loading import load, read_model
from glassformer.core.dispatch import use_engine
from glassformer.core.tree import count, flatten, tree_map
from glassformer.generation.answer import samples
from glassformer.runs.run import open_run, read_base
from glassformer.runs.start import new_session, resume_session
from glassformer.training import load_checkpoint
from published_models import pulled
from runs import PROSE, assert_same_bits, assert_same_run, command, options, tiny_session, write_data

pytestmark = pytest.mark.usefixtures("numpy_engine", "unseen_figures")

PLAN = {"steps": 12, "eval_every": 4, "save_every": 5, "warmup": 2, "lr": 0.02, "batch": 4}
LORA = {"lora_rank": 2, "lora_alpha": 8, "lora_targets": "*.w,*.table"}
MODES = {"whole": {}, "lora": LORA}


@pytest.fixture(scope="module")
def prose(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "prose.txt"
    path.write_text(PROSE, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """One model of each kind, made when first asked for."""
    made = {}

    def base(kind):
        if kind not in made:
            folder = tmp_path_factory.mktemp("bases") / kind
            if kind == "run":
                list(tiny_session("text", folder, steps=4, eval_every=2).steps())
            else:
                published(kind, folder)
            made[kind] = folder
        return made[kind]

    return base


def arguments(base, out, mode, *more, data, **settings):
    pairs = {**PLAN, **MODES[mode], **settings}
    changes = [part for name, value in pairs.items() for part in ("--set", f"{name}={value}")]
    lora = ["--lora"] * (mode == "lora")
    return "train", "text", "--from", base, *lora, "--data", data, "--out", out, *changes, *more


def start_session(base, folder, mode, data, **settings):
    pairs = {**PLAN, **MODES[mode], **settings}
    return new_session(
        "text", folder, source=str(base), adapters=mode == "lora", data=str(data), settings=pairs, seed=2
    )


def finish(session):
    return list(session.steps())


def error_of(result, code=2):
    assert result.code == code, result
    assert result.err.startswith("error: ")
    assert "Traceback" not in result.err
    return result.err


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["run", "gpt2", "llama"])
def test_any_model_can_be_taught(kind, mode, bases, prose, tmp_path):
    base = bases(kind)
    before = {path.name: path.read_bytes() for path in base.iterdir() if path.is_file()}
    result = command(*arguments(base, tmp_path / "run", mode, "--json", data=prose, steps=30, eval_every=15))
    assert result.code == 0, result.err
    summary = json.loads(result.out)
    metrics = open_run(tmp_path / "run").metrics()
    assert metrics[-1]["loss"] < 0.9 * metrics[0]["loss"]
    assert summary["from"] == str(base)
    whole = count(read_base(str(base)).params)
    assert summary["parameters"] == whole
    assert (summary["trained_parameters"] == whole) == (mode == "whole")
    assert before == {path.name: path.read_bytes() for path in base.iterdir() if path.is_file()}
    if kind != "run":
        assert read_model(base).config.vocab == VOCAB > load(tmp_path / "run").tokenizer.size
    assert command("eval", tmp_path / "run", "--json").code == 0
    written = command("generate", tmp_path / "run", "The quick", "--max-new-tokens", 4)
    assert written.code == 0, written.err


@pytest.mark.parametrize("kind", ["run", "gpt2", "llama"])
def test_the_first_step_is_taken_from_the_model_as_it_is(kind, bases, prose, tmp_path):
    base = read_base(str(bases(kind)))
    records = []
    for mode in MODES:
        session = start_session(bases(kind), tmp_path / mode, mode, prose, dropout=0.0)
        batch = session.task.train.batch(0, 4, 2)
        records.append(next(session.steps()))
        assert records[-1].loss == float(session.model.loss(base.params, batch))
        assert session.model.config.weight_dropout == session.model.config.input_dropout == 0.0
    assert records[0].grad_norm != records[1].grad_norm


def test_frozen_weights_stay_and_checkpoints_hold_adapters_alone(bases, prose, tmp_path):
    session = start_session(bases("gpt2"), tmp_path / "run", "lora", prose)
    frozen = tree_map(np.copy, session.parametrization.base)
    finish(session)
    assert_same_bits(session.parametrization.base, frozen)
    assert_same_bits(read_base(str(bases("gpt2"))).params, frozen)
    for name in ("latest", "best"):
        arrays = load_checkpoint(tmp_path / "run", name).arrays
        assert all(key.endswith((".a", ".b", "optimizer.step")) for key in arrays)
    trained = flatten(session.run.load_params())
    own = {key.rpartition(".")[0] for key in flatten(session.state.params)}
    for key, array in flatten(frozen).items():
        assert np.array_equal(trained[key], array) == (key not in own)


def test_the_loaded_parameters_are_those_that_were_measured(bases, prose, tmp_path):
    session = start_session(bases("llama"), tmp_path / "run", "lora", prose, ema=0.5)
    finish(session)
    best = min(line["val_loss"] for line in session.run.metrics() if "val_loss" in line)
    assert session.evaluate(open_run(tmp_path / "run").load_params()).loss == best
    assert_same_bits(session.load_params(), open_run(tmp_path / "run").load_params())


def test_a_run_by_adapters_is_a_model_to_start_from(bases, prose, tmp_path):
    finish(start_session(bases("gpt2"), tmp_path / "first", "lora", prose))
    second = start_session(tmp_path / "first", tmp_path / "second", "lora", prose)
    assert_same_bits(second.parametrization.base, open_run(tmp_path / "first").load_params())
    assert second.run.base.family == "gpt2"
    finish(second)
    assert open_run(tmp_path / "second").task().tokenizer == second.task.tokenizer


def test_lines_and_pairs_use_the_tokens_of_the_model(bases, tmp_path):
    names = write_data("lines", tmp_path)
    session = new_session("lines", tmp_path / "lines", source=str(bases("llama")), data=names, settings=PLAN)
    row = session.task.train.rows
    assert set(row.tokens[:, 0].tolist()) == {1}  # <s>
    assert all((targets == 2).sum() == 1 for targets in row.targets)  # </s>
    finish(session)

    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"the fox {n}\tthe dog {n}\n" for n in range(20)))
    session = new_session("pairs", tmp_path / "pairs", source=str(bases("t5")), data=str(pairs), settings=PLAN)
    rows = session.task.train.rows
    assert set(rows.tokens[:, 0].tolist()) == {0}  # <pad> starts answers of T5
    ends = rows.source_mask.sum(axis=1) - 1
    assert set(rows.source[np.arange(len(ends)), ends].tolist()) == {1}  # </s> ends what it reads
    records = finish(session)
    assert records[-1].loss < records[0].loss
    assert isinstance(samples(session.trained, 1)[0][1], str)
    resumed = resume_session(tmp_path / "pairs")
    assert resumed.task.tokenizer == session.task.tokenizer


def test_a_task_with_the_same_vocabulary_can_be_learned_on(tmp_path):
    finish(tiny_session("majority", tmp_path / "first", steps=4, eval_every=2))
    arguments = ["--from", tmp_path / "first", "--out", tmp_path / "second", "--steps", 3, "--json"]
    sizes = ["--set", "train=48", "--set", "held_out=24", "--set", "batch=8"]
    assert command("train", "majority", *arguments, "--lora", "--set", "lora_rank=2", *sizes).code == 0


def test_the_defaults_of_fine_tuning_are_listed(bases):
    def defaults(*more):
        result = command("settings", "text", "--from", bases("gpt2"), *more)
        assert result.code == 0, result.err
        return {name: default for _, name, default, *_ in (line.split("\t") for line in result.out.splitlines())}

    whole, adapters = defaults(), defaults("--lora")
    assert (whole["steps"], whole["lr"], whole["context"]) == ("200", "5e-05", "48")
    assert (adapters["lr"], adapters["lora_rank"]) == ("0.0005", "8")
    assert "width" not in whole
    assert "tokenizer" not in whole
    assert "needs a model" in error_of(command("settings", "text", "--lora"))
    assert "needs a task" in error_of(command("settings", "--from", bases("gpt2")))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["run", "gpt2"])
def test_resumed_is_uninterrupted(kind, mode, bases, prose, tmp_path):
    settings = {"dropout": 0.2, "ema": 0.9, "accumulate": 2}
    with use_engine("cpu"):
        finish(start_session(bases(kind), tmp_path / "whole", mode, prose, **settings))
        for stop in (0, 3, 7):
            folder = tmp_path / f"cut-{stop}"
            session = start_session(bases(kind), folder, mode, prose, **settings)
            list(itertools.islice(session.steps(), stop))
            assert command("train", "--resume", folder, "--engine", "cpu", "--json").code == 0
            assert_same_run(folder, tmp_path / "whole")


@pytest.mark.parametrize("mode", MODES)
def test_another_base_is_refused(mode, bases, prose, tmp_path):
    base = tmp_path / "base"
    shutil.copytree(bases("gpt2"), base)
    session = start_session(base, tmp_path / "run", mode, prose)
    shutil.rmtree(base)
    published("gpt2", base, seed=1)
    message = error_of(command("train", "--resume", tmp_path / "run"), code=1)
    assert f"{base} is not the model that this run started from" in message
    shutil.rmtree(base)
    shutil.copytree(bases("gpt2"), base)
    finish(session)
    shutil.rmtree(base)
    result = command("eval", tmp_path / "run")
    # What was trained as a whole stands alone; adapters are nothing without what they stand beside.
    assert result.code == (0 if mode == "whole" else 1)
    assert mode == "whole" or f"there is no {base}" in result.err


@pytest.mark.parametrize(
    ("args", "message", "hint"),
    [
        (["--set", "width=64"], "width is set, but", "only dropout"),
        (["--set", "vocab=99"], "vocab is set, but", "leave vocab out"),
        (["--set", "tokenizer=bytes"], "brings its own tokenizer", "leave tokenizer out"),
        (["--set", "context=49"], "reads 49 tokens at a time, but", "lower context"),
        (["--preset", "gpt2"], "--preset builds a new model", "leave out one of them"),
        (["--set", "lora_rank=4"], "lora_rank is set, but there are no adapters", "add --lora"),
        (["--lora", "--set", "lora_rnak=4"], "LoRA has no setting 'rnak'", "did you mean 'rank'"),
        (["--lora", "--set", "lora_rank=17"], "rank of LoRA is 17", "at most 16"),
        (["--lora", "--set", "lora_targets=*query"], "matches no parameter", "query.w"),
    ],
)
def test_settings_that_do_not_fit_are_refused(args, message, hint, bases, prose, tmp_path):
    base = bases("gpt2")
    found = error_of(command("train", "text", "--from", base, "--data", prose, "--out", tmp_path / "run", *args))
    assert message in found
    assert hint in found
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("kind", "task", "message", "hint"),
    [
        ("gpt2", "majority", "the task 'majority' has a vocabulary of its own", "text, lines, pairs, classify"),
        ("run", "lines", "no token that ends a text", "the task 'text'"),
        ("bert", "text", "is 'encoder', but 'text' needs 'decoder'", "another model"),
        ("t5", "text", "is 'encoder-decoder', but 'text' needs 'decoder'", "another task"),
    ],
)
def test_tasks_that_do_not_fit_are_refused(kind, task, message, hint, bases, tmp_path):
    data = write_data(task, tmp_path / "data")
    given = [] if data is None else ["--data", data]
    found = error_of(command("train", task, "--from", bases(kind), *given, "--out", tmp_path / "run"))
    assert message in found
    assert hint in found
    assert not (tmp_path / "run").exists()


def test_models_that_are_not_there_are_named(prose, tmp_path):
    data = ["--data", prose, "--out", tmp_path / "run"]
    assert "there is no gtp2" in error_of(command("train", "text", "--from", "gtp2", *data), code=1)
    bare = published("gpt2", tmp_path / "bare", tokenizer=False)
    assert "has no tokenizer" in error_of(command("train", "text", "--from", bare, *data), code=1)
    (tmp_path / "model.pt").write_bytes(b"PK")
    assert "pickle" in error_of(command("train", "text", "--from", tmp_path / "model.pt", *data), code=1)
    assert "--lora needs a model" in error_of(command("train", "text", "--lora", *data))
    message = error_of(command("train", "text", *options("text"), "--set", "lora_rank=2", *data))
    assert "there is no setting 'lora_rank'" in message
    assert "--from MODEL --lora" in message
    for extra in (["--from", "x"], ["--lora"]):
        assert "its own settings" in error_of(command("train", "--resume", tmp_path, *extra))


def test_a_tokenizer_larger_than_the_model_is_refused(bases, prose, tmp_path):
    base = tmp_path / "base"
    shutil.copytree(bases("gpt2"), base)
    content = json.loads((base / "tokenizer.json").read_text())
    token = {**content["added_tokens"][0], "id": VOCAB, "content": "<|one too many|>"}
    content["added_tokens"].append(token)
    content["model"]["vocab"]["<|one too many|>"] = VOCAB
    (base / "tokenizer.json").write_text(json.dumps(content))
    message = error_of(command("train", "text", "--from", base, "--data", prose, "--out", tmp_path / "run"))
    assert f"has {VOCAB + 1} ids, but its model knows {VOCAB}" in message


@pytest.mark.slow
def test_smollm2_learns_by_adapters(prose, tmp_path):
    base = pulled("smollm2")
    settings = {"context": 16, "batch": 1, "steps": 2, "warmup": 0, "lr": 2e-3, "eval_every": 2}
    session = new_session("text", tmp_path / "run", source=str(base), adapters=True, data=str(prose), settings=settings)
    before = session.evaluate(session.trained.params).loss
    finish(session)
    assert session.evaluate(session.load_params()).loss < before
    assert sum(path.stat().st_size for path in (tmp_path / "run").glob("*.safetensors")) < 10e6
