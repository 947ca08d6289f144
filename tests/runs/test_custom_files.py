"""A run remembers the Python files of its task and parts; they run again only if they are unchanged and trusted."""

import json
import logging

import pytest

import glassformer as gf
from glassformer.api.loading import load
from glassformer.core import registry
from glassformer.core import reporting as trust
from glassformer.core.errors import CheckpointError, DataError
from glassformer.data import TASKS, import_file
from glassformer.runs.folder import checksum
from glassformer.runs.listing import list_runs
from glassformer.runs.run import open_run
from glassformer.runs.start import new_session, resume_session
from own_parts import forgotten

FILE = """
import glassformer as gf

@gf.task(settings={"width": 8, "heads": 2, "layers": 1, "activation": "halved", "feed_forward": 16})
def letters(*, count=60):
    for number in range(count):
        yield f"{number}=", "x" * (number % 3)

gf.register_activation("halved", lambda x: (x / 2, x), lambda dy, x: dy / 2)
"""
SETTINGS = {"steps": 2, "eval_every": 1, "batch": 4}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


@pytest.fixture
def run(path, tmp_path):
    """A finished run, its file forgotten, as in another process."""
    with forgotten():
        (name,) = import_file(path).tasks
        list(new_session(name, tmp_path / "run", settings=SETTINGS).steps())
    assert "letters" not in TASKS
    assert "halved" not in registry.own("activation")
    return tmp_path / "run"


def test_a_run_stores_path_and_hash_and_a_copy(run, path):
    (stored,) = json.loads((run / "config.json").read_text())["own"]
    assert stored == {"path": str(path.resolve()), "sha256": import_file(path).sha256}
    assert (run / "mine.py").read_text() == FILE


def test_a_run_is_opened_asked_and_resumed_as_if_its_parts_were_ours(run, caplog):
    opened = open_run(run)
    assert opened.config.activation == "halved"
    assert opened.task().name == "letters"
    assert isinstance(load(run).generate("3=", max_new_tokens=2).text, str)
    with forgotten():
        assert resume_session(run).state.step == 2
    assert caplog.records == []


def test_a_run_keeps_its_own_parts_when_others_take_their_names(run, path, tmp_path):
    opened = open_run(run)
    other = tmp_path / "other.py"
    other.write_text(FILE.replace("60", "80"))
    import_file(other)
    assert len(TASKS["letters"]().train) > 48
    assert registry.origin("task", "letters") == other.resolve()
    assert opened.model is not None
    assert registry.origin("activation", "halved") == path.resolve()
    assert len(opened.task().train) < len(TASKS["letters"](count=80).train)


def test_a_changed_file_is_refused_unless_the_program_imported_it(run, path, caplog):
    path.write_text(FILE + "\n# changed\n")
    with pytest.raises(CheckpointError, match=r"mine.py has changed since(.|\n)*import_file"):
        open_run(run)
    import_file(path)
    with caplog.at_level(logging.WARNING, logger="glassformer"):
        opened = open_run(run)
        opened.task()
        open_run(run)
    (record,) = caplog.records
    assert "mine.py has changed since" in record.getMessage()


@pytest.fixture
def gift(run, path, tmp_path, monkeypatch):
    """A run from somebody else, whose file leaves a mark where it runs."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another user"))
    return run


def test_the_file_of_a_strangers_run_runs_only_after_the_user_agreed_once(gift, path):
    for opens in (open_run, load, resume_session):
        with pytest.raises(CheckpointError, match=r"runs the Python file(.|\n)*--trust"):
            opens(gift)
    assert "letters" not in TASKS
    with forgotten():
        gf.load(gift, trust=True)
        assert "letters" in TASKS
    with forgotten():
        assert open_run(gift).task_name == "letters"  # the answer is remembered
    path.write_text(FILE + "\n# changed\n")
    with forgotten(), pytest.raises(CheckpointError, match="has changed"):
        gf.load(gift, trust=True)


def test_trust_ends_where_it_is_taken_back(gift):
    with trust.granted(True), trust.granted(False), pytest.raises(CheckpointError, match="trust"):
        open_run(gift)
    with trust.granted(True), trust.granted(None):
        assert open_run(gift).task_name == "letters"


def test_an_answer_at_the_terminal_is_enough(gift, monkeypatch):
    asked = []
    monkeypatch.setattr(trust, "ask", lambda question: asked.append(question) or True)
    open_run(gift)
    (question,) = asked
    assert "mine.py" in question


def test_a_file_does_not_run_when_the_config_is_damaged_or_has_no_checksum(run):
    config = run / "config.json"
    content = json.loads(config.read_text())
    config.write_text(json.dumps({**content, "recipe": {}}))
    with pytest.raises(CheckpointError, match="checksum"):
        open_run(run)
    config.write_text(json.dumps({name: value for name, value in content.items() if name != "sha256"}))
    with pytest.raises(CheckpointError, match="no checksum"):
        open_run(run)
    assert "letters" not in TASKS


def test_a_list_of_runs_runs_nothing(run, path):
    path.write_text("raise SystemExit")
    (found,) = list_runs(run.parent)
    assert (found.task, found.step, found.steps, found.error) == ("letters", 2, 2, None)
    content = json.loads((run / "config.json").read_text())
    del content["sha256"]
    content["recipe"]["steps"] = "many"
    (run / "config.json").write_text(json.dumps({**content, "sha256": checksum(content)}))
    assert list_runs(run.parent)[0].error is not None


def test_relative_paths_start_at_the_run_folder(run, monkeypatch, tmp_path):
    content = json.loads((run / "config.json").read_text())
    content["own"][0]["path"] = "run/mine.py"
    (run / "config.json").write_text(json.dumps(content))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="is gone"):
        open_run(run)
    content["own"][0]["path"] = "mine.py"
    (run / "config.json").write_text(json.dumps(content))
    with trust.granted(True):
        resume_session("run", steps=3)
    assert open_run("run").recipe.steps == 3


def test_a_file_that_is_gone_is_named_with_the_copy_to_put_back(run, path):
    path.unlink()
    with pytest.raises(DataError, match=rf"{path}, which holds the task(.|\n)*is gone(.|\n)*{run / 'mine.py'}"):
        open_run(run)
    path.write_text((run / "mine.py").read_text())
    assert open_run(run).task().name == "letters"


def test_a_file_that_was_moved_can_be_named_anew(run, path, tmp_path):
    config = run / "config.json"
    path.rename(tmp_path / "moved.py")
    config.write_text(config.read_text().replace(str(path), str(tmp_path / "moved.py")))
    with pytest.raises(CheckpointError, match="trust"):
        open_run(run)
    with trust.granted(True):
        assert open_run(run).task().name == "letters"


def test_a_running_session_does_not_mind_that_its_file_changes(path, tmp_path):
    (name,) = import_file(path).tasks
    session = new_session(name, tmp_path / "run", settings=SETTINGS)
    path.write_text("this is no Python")
    list(session.steps())
    session.load_params()
    session.test(session.state.params)
    assert open_run(tmp_path / "run").task_name == name


def test_a_task_that_a_program_registered_is_missed_by_name(path, tmp_path):
    with forgotten():
        exec(FILE, {"__name__": "mine"})
        new_session("letters", tmp_path / "run", settings=SETTINGS).save()
        assert "own" not in json.loads((tmp_path / "run" / "config.json").read_text())
    exec(FILE.replace("letters", "others"), {"__name__": "mine"})  # the activation, but not the task
    with pytest.raises(DataError, match=r"the task 'letters' of .* is not known here(.|\n)*--task FILE"):
        open_run(tmp_path / "run").task()


def test_built_in_parts_leave_no_trace(tmp_path):
    new_session("sort", tmp_path / "run", settings={**SETTINGS, "held_out": 10}).save()
    assert "own" not in json.loads((tmp_path / "run" / "config.json").read_text())
