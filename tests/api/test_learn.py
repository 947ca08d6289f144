"""One call from a name to a trained model: with the numbers of the command, and with what was reached at Ctrl-C."""

import inspect
import signal
from pathlib import Path

import numpy as np
import pytest

import glassformer as gf
from fine_tuning import published
from glassformer.core.errors import ConfigError, DataError, TrainingError
from glassformer.core.quantized import Quantized
from glassformer.runs.session import TrainingSession
from glassformer.training import load_checkpoint
from runs import TINY, assert_same_bits, assert_same_run, tiny_session, write_data

pytestmark = pytest.mark.usefixtures("numpy_engine")

QUICK = {"steps": 4, "eval_every": 2, "show": False}


@pytest.mark.parametrize("task", ["majority", "counting", "sort", "dates"])
def test_it_has_the_bits_of_the_command(task, tmp_path):
    session = tiny_session(task, tmp_path / "run", steps=4, eval_every=2)
    records = list(session.steps())
    model = gf.train(task, **TINY[task], **QUICK)
    assert_same_bits(model.params, session.load_params())
    assert model.history.loss.tolist() == [record.loss for record in records]
    assert model.history.val_step.tolist() == [2, 4]


def test_a_file_of_text_is_data(tmp_path):
    path = write_data("text", tmp_path)
    session = tiny_session("text", tmp_path / "run", steps=4, eval_every=2)
    list(session.steps())
    model = gf.train(path, **TINY["text"], **QUICK)
    assert_same_bits(model.params, session.load_params())
    assert model.origin["name"] == "text"


def test_a_folder_holds_the_run_of_the_command_and_its_recording(tmp_path):
    list(tiny_session("majority", tmp_path / "command", steps=4, eval_every=2).steps())
    model = gf.train("majority", out=tmp_path / "python", **TINY["majority"], **QUICK)
    assert_same_run(tmp_path / "python", tmp_path / "command")
    assert model.source == str(tmp_path / "python")
    assert gf.load(tmp_path / "python").history.loss.tolist() == model.history.loss.tolist()

    model = gf.train("majority", out=tmp_path / "run", record=True, **TINY["majority"], **QUICK)
    frames = list(gf.replay(tmp_path / "run"))
    assert [frame.step for frame in frames] == [0, 1, 2, 3, 4]
    assert [frame.loss for frame in frames[1:]] == model.history.loss.tolist()
    with pytest.raises(ConfigError, match="a training in memory is not recorded"):
        gf.train("majority", record=True, **TINY["majority"], **QUICK)


def test_a_recording_begins_with_the_parameters_that_were_given(tmp_path):
    drawn = gf.train("majority", **TINY["majority"], **QUICK)
    given = {"params": drawn.params, "out": tmp_path / "run", "record": True}
    gf.train("majority", **given, **TINY["majority"], **QUICK)
    found = gf.replay(tmp_path / "run")
    assert found.kept[0] == 0
    assert_same_bits(found.at(0).params, drawn.params)
    assert found.at(3).step == 3


def test_presets_configs_models_and_what_builds_a_task_are_taken():
    small = {"width": 8, "heads": 2, "layers": 1}
    by_name = gf.train("counting", "tiny-decoder", **small, **QUICK)
    config = gf.preset("tiny-decoder", vocab=20, context=6, dropout=0.0, **small)
    by_config, by_model = (gf.train("counting", one, **QUICK) for one in (config, gf.build(config)))
    assert by_name.config == by_config.config
    assert_same_bits(by_config.params, by_name.params)
    assert_same_bits(by_model.params, by_name.params)

    by_name, by_builder = (gf.train(data, **QUICK) for data in ("counting", gf.data.TASKS["counting"]))
    assert by_builder.origin == by_name.origin
    assert_same_bits(by_builder.params, by_name.params)


def test_a_config_reads_text_in_windows_of_its_own_length(tmp_path):
    config = gf.preset("tiny-decoder", width=8, heads=2, layers=1, context=24, vocab=64)
    model = gf.train(write_data("text", tmp_path), config, batch=2, **QUICK)
    assert model.task.train.context == 24


def test_parameters_to_start_from_are_left_alone_and_training_goes_on_from_them():
    config = gf.preset("tiny-decoder", vocab=20, context=6, width=8, heads=2, layers=1)
    params = gf.build(config).init(7)
    before = gf.tree.tree_map(np.array, params)
    model = gf.train("counting", config, params=params, **QUICK)
    assert_same_bits(params, before)
    first = gf.build(config).loss(params, model.task.train.batch(0, 1, 0))
    assert np.isclose(model.history.loss[0], first)

    first = gf.train("counting", steps=60, show=False)
    before = gf.tree.tree_map(np.array, first.params)
    more = gf.train("counting", first, steps=20, lr=1e-3, show=False)
    assert_same_bits(first.params, before)
    assert more.history.loss[-1] < first.history.loss[0] / 2
    assert len(more.history) == 20


def test_lora_trains_adapters_beside_frozen_weights(tmp_path):
    path = write_data("text", tmp_path)
    base = gf.load(published("gpt2", tmp_path / "gpt2"))
    tuned = gf.train(path, base, lora=2, steps=3, eval_every=1, context=16, show=False)
    have, want = gf.tree.flatten(tuned.params), gf.tree.flatten(base.params)
    changed = [name for name in have if (have[name] != want[name]).any()]
    assert changed
    assert all(name.endswith(("attention.query.w", "attention.value.w")) for name in changed)
    session_lora = gf.train(path, base, lora=gf.training.LoRA(rank=2), steps=3, eval_every=1, context=16, show=False)
    assert_same_bits(session_lora.params, tuned.params)
    assert (tuned.family, tuned.tokenizer, tuned.end_ids) == (base.family, base.tokenizer, base.end_ids)


def test_a_tuned_run_in_a_folder_starts_from_where_the_model_is(tmp_path):
    path = write_data("text", tmp_path)
    base = gf.load(published("gpt2", tmp_path / "gpt2"))
    tuned = gf.train(path, base, lora=2, steps=2, context=16, out=tmp_path / "run", show=False)
    again = gf.load(tmp_path / "run")
    for name, array in gf.tree.flatten(tuned.params).items():
        np.testing.assert_array_equal(gf.tree.flatten(again.params)[name], array, err_msg=name)
    nowhere = gf.TrainedModel(tuned.config, tuned.params, tuned.tokenizer)
    with pytest.raises(ConfigError, match="this one is nowhere"):
        gf.train(path, nowhere, steps=1, out=tmp_path / "other", show=False)


def test_ctrl_c_returns_what_was_reached(monkeypatch, capsys):
    steps = TrainingSession.steps

    def interrupted(self):
        for record in steps(self):
            yield record
            if record.step == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(TrainingSession, "steps", interrupted)
    model = gf.train("counting", steps=50)
    assert len(model.history) == 3
    assert "interrupted after step 3" in capsys.readouterr().err
    monkeypatch.undo()
    whole = gf.train("counting", steps=50, show=False)
    assert model.history.loss.tolist() == whole.history.loss[:3].tolist()


def test_sigterm_saves_and_ends_the_program(monkeypatch, tmp_path):
    steps = TrainingSession.steps

    def terminated(self):
        for record in steps(self):
            yield record
            if record.step == 3:
                signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(TrainingSession, "steps", terminated)
    with pytest.raises(SystemExit) as caught:
        gf.train("counting", steps=50, out=tmp_path / "run", show=False)
    assert caught.value.code == 143
    assert load_checkpoint(tmp_path / "run").meta["step"] == 3


def test_arrays_are_data():
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 3, (60, 6))
    classes = (tokens == 2).any(axis=1).astype(int)
    model = gf.train((tokens, classes), width=8, heads=2, layers=1, **QUICK)
    assert (model.config.architecture, model.config.classes, model.config.vocab) == ("encoder", 2, 3)
    assert model.labels == ("0", "1")
    assert model.classify(tokens[0]).index == model.classify(" ".join(map(str, tokens[0]))).index
    assert model.evaluate((tokens, classes)).examples == 60
    assert model.evaluate().examples == 6


def test_arrays_that_are_held_out_are_validated_on_and_sources_make_an_encoder_decoder():
    tokens = np.tile(np.arange(8), (20, 1))
    model = gf.train(tokens, "tiny-decoder", validation=tokens[:3], width=8, heads=2, layers=1, **QUICK)
    assert model.evaluate().examples == 3
    assert model.config.context == 7
    assert model.generate("0 1", max_new_tokens=2, temperature=0).ids

    rng = np.random.default_rng(0)
    source = rng.integers(2, 6, (40, 4))
    tokens = np.concatenate([np.ones((40, 1), int), source[:, :-1]], axis=1)
    batch = gf.Batch(tokens, source, source=source)
    model = gf.train(batch, width=8, heads=2, layers=1, **QUICK)
    assert (model.config.architecture, model.start_id) == ("encoder-decoder", 1)
    assert len(model.generate("2 3 4", max_new_tokens=3, temperature=0).ids) == 3


@pytest.mark.parametrize(
    ("arguments", "settings", "words"),
    [
        (("counting", "tiny"), {}, "there is no preset 'tiny'"),
        (("parity", [3]), {}, r"\[3\] is no model"),
        (("countin",), {}, "there is no task and no file 'countin'(.|\n)*did you mean 'counting'"),
        (("nowhere.txt",), {}, r"there is no task and no file 'nowhere\.txt'(.|\n)*check the path"),
        (("counting",), {"lora": 8}, "LoRA needs a trained model"),
        (("counting",), {"stepz": 8}, "there is no setting 'stepz'"),
        (("counting",), {"lora_rank": 8}, "there is no setting 'lora_rank'"),
        (("majority", "gpt2"), {}, "needs 'encoder'"),
        ((3,), {}, "data of the type int cannot be trained on"),
        (("counting",), {"validation": np.zeros((2, 3), int)}, "holds out data of its own"),
        ((np.tile(np.arange(4), (20, 1)),), {"out": "somewhere"}, "remembers its data by the name"),
        (("counting", gf.preset("tiny-decoder", vocab=3)), {}, "its model knows 3"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, settings, words):
    with pytest.raises((ConfigError, DataError), match=words) as error:
        gf.train(*arguments, show=False, **settings)
    assert error.value.hint


def test_a_table_is_data_and_its_columns_are_named(tmp_path, monkeypatch):
    rows = [f"{number},{('billing', 'sales')[number % 2]},text {number}" for number in range(40)]
    (tmp_path / "tickets.csv").write_text("\n".join(["id,queue,text", *rows]))
    monkeypatch.chdir(tmp_path)
    model = gf.train("tickets.csv", label="queue", **QUICK)
    assert model.labels == ("billing", "sales")
    with pytest.raises(ConfigError, match=r"there is no setting 'labels'(.|\n)*by label='queue'"):
        gf.train("tickets.csv", labels="queue", **QUICK)


@pytest.mark.parametrize(
    ("arguments", "settings", "call"),
    [
        ((None, "majority"), {"steps": 3}, "gf.train('majority', steps=3, show=False)"),
        ((None, "tickets.csv"), {"label": "queue"}, "gf.train('tickets.csv', label='queue', show=False)"),
        (
            ("shakespeare", "notes.txt"),
            {"out": Path("run")},
            "gf.train('notes.txt', 'shakespeare', out='run', show=False)",
        ),
        (("counting", "text"), {}, "gf.train('text', 'counting', show=False)"),
        (("counting", [[1, 2]]), {}, "gf.train([[1, 2]], 'counting', show=False)"),
        (("counting", np.ones((2, 3), int)), {}, "gf.train(data, 'counting', show=False)"),
        ((gf.preset("counting"), "counting"), {"params": {}}, "gf.train('counting', model, params={}, show=False)"),
        (
            (gf.build("counting"), Path("notes.txt")),
            {"lr": [0.1]},
            "gf.train('notes.txt', model, lr=[0.1], show=False)",
        ),
        ((None,), {}, "gf.train(data, show=False)"),
        (("gpt2",), {}, "gf.train(data, 'gpt2', show=False)"),
        ((gf.build("counting"),), {"callbacks": [print]}, "gf.train(data, model, callbacks=callbacks, show=False)"),
    ],
)
def test_the_old_order_of_arguments_is_refused_with_the_call_as_it_is_now(arguments, settings, call):
    with pytest.raises(ConfigError, match="takes the data first") as error:
        gf.train(*arguments, show=False, **settings)
    assert error.value.hint == f"write {call}"
    if "callbacks" not in settings:
        with pytest.raises(ConfigError, match="takes the data first") as error:
            gf.Loop(*arguments, **settings)
        assert error.value.hint == f"write {call}".replace("gf.train", "gf.Loop").replace(", show=False", "")


def test_a_name_of_a_task_is_the_data_and_train_and_the_loop_show_the_same_arguments():
    suited, preset = gf.train("counting", **QUICK), gf.train("counting", "counting", **QUICK)
    assert (suited.config.positions, preset.config.positions) == ("sinusoidal", "learned")
    ours, theirs = (list(inspect.signature(one).parameters) for one in (gf.train, gf.Loop))
    assert ours[:3] == ["data", "model", "steps"]
    assert [name for name in ours if name not in ("callbacks", "show")] == theirs


def test_weights_in_blocks_are_refused_and_a_training_that_fails_says_so():
    model = gf.train("counting", steps=1, show=False).kept_as("int8")
    assert any(isinstance(leaf, Quantized) for leaf in gf.tree.flatten(model.params).values())
    with pytest.raises(ConfigError, match="cannot be trained"):
        gf.train("counting", model, steps=1, show=False)
    with pytest.raises(TrainingError, match="were refused"):
        gf.train("counting", steps=40, lr=1e30, show=False)


def test_it_is_quiet_when_asked(capsys):
    gf.train("counting", steps=2, show=False)
    assert capsys.readouterr() == ("", "")
    gf.train("counting", steps=2)
    out, err = capsys.readouterr()
    assert not out
    assert "step 2/2" in err
