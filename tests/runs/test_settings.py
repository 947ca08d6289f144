"""Which settings there are: every one is described, and a mistaken one is answered with what was meant."""

import re
from dataclasses import MISSING
from functools import cache

import pytest

import glassformer as gf
from glassformer.core.errors import ConfigError
from glassformer.data import TASKS
from glassformer.runs.settings import OF_DATA, default_task, groups_of, split_settings
from glassformer.runs.start import new_session

groups_of = cache(groups_of)  # tasks are built to be asked


@pytest.mark.parametrize("task", TASKS)
def test_the_settings_of_a_task_are_those_that_can_be_set(task):
    groups = groups_of(task)
    names = [one.name for group in groups for one in group.settings]
    assert len(set(names)) == len(names)
    sizes = tuple(map(len, split_settings(task, {one.name: one.default for g in groups for one in g.settings})))
    own = len(groups[0].settings) if groups[0].title == f"task {task}" else 0
    assert sizes == (own, *(len(group.settings) for group in groups[-2:]))


def test_defaults_are_those_that_a_run_begins_with_and_tasks_and_presets_show_their_own(tmp_path):
    shown = {one.name: one.default for group in groups_of("majority") for one in group.settings}
    run = new_session("majority", tmp_path / "run").run
    assert shown["vocab"] == shown["classes"] == OF_DATA
    for name in ("width", "layers", "dropout", "pooling", "norm_eps"):
        assert shown[name] == getattr(run.config, name)
    for name in ("steps", "lr", "warmup", "optimizer", "patience"):
        assert shown[name] == getattr(run.recipe, name)
    assert shown["train"] == 1600

    task, model, _ = groups_of("text")
    assert "context" in [one.name for one in task.settings]
    assert "context" not in [one.name for one in model.settings]
    (group,) = groups_of("gpt2")
    shown = {one.name: one.default for one in group.settings}
    assert (shown["width"], shown["activation"], shown["norm"]) == (768, "gelu_tanh", "layer")
    assert {one.name: one.default for one in groups_of("decoder")[0].settings}["width"] is MISSING
    assert default_task("lines").architecture == "decoder"
    assert default_task("pairs").architecture == "encoder-decoder"


def test_mistaken_words_are_answered_with_what_was_meant_or_where_to_look():
    with pytest.raises(ConfigError, match="did you mean 'majority'"):
        groups_of("majorty")
    with pytest.raises(ConfigError, match="`glassformer settings` lists tasks, presets and groups"):
        groups_of("xyzzy")
    assert hint_for("zzz") == "`glassformer settings majority` lists every setting"
    assert hint_for("xyzzy", "text") == "`glassformer settings text` lists every setting"
    hint = hint_for("locales")
    assert hint.startswith("locales is a setting of 'dates', not of 'majority'; `glassformer settings majority`")


def hint_for(name, task="majority"):
    with pytest.raises(ConfigError, match=f"there is no setting '{re.escape(name)}'") as caught:
        split_settings(task, {name: 3})
    return caught.value.hint


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("widht", "did you mean 'width'? "),
        ("learning_rate", "here it is called 'lr'; "),
        ("n_layer", "here it is called 'layers'; "),
        ("batch_size", "here it is called 'batch'; "),
        ("dropout_rate", " or 'dropout' or "),
        ("temperature", "glassformer generate --temperature; "),
        ("top_k", "glassformer generate --top-k; "),
        ("seed", "use --seed"),
        ("data", "use --data"),
        ("lora_rank", "--from MODEL --lora"),
    ],
)
def test_a_mistaken_name_is_answered_with_what_was_meant(name, meant):
    assert meant in hint_for(name)


def test_settings_are_a_table_from_python_too():
    config = gf.preset("gpt2", layers=2)
    for topic in (config, gf.build(config)):
        found = {row.name: row for row in gf.settings(topic)}
        assert (found["layers"].value, found["layers"].group) == (2, "model (decoder)")
    assert [row.name for row in gf.settings("recipe")] == [one.name for one in groups_of("recipe")[0].settings]
    assert "must be given" in repr(gf.settings("decoder"))
    with pytest.raises(ConfigError, match="has no settings"):
        gf.settings(5)
