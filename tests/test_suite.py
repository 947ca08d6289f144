"""The promises about the tests themselves: where they stand, and that nothing in them is left to chance."""

import ast
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from xdist.remote import Producer

import side_by_side
from long_files import LONG_FILES
from side_by_side import FileByFile

TESTS = Path(__file__).resolve().parent
PACKAGE = TESTS.parent / "src" / "glassformer"


@pytest.mark.parametrize("folder", ["ops", "layers", "models"])
def test_every_file_of_the_mathematics_has_a_test_of_its_name(folder):
    names = sorted(path.name for path in (PACKAGE / folder).glob("*.py") if path.stem != "__init__")
    missing = [f"tests/{folder}/test_{name}" for name in names if not (TESTS / folder / f"test_{name}").is_file()]
    assert names
    assert not missing, f"there is no {missing}"


def test_how_examples_are_drawn_is_said_in_one_place():
    allowed = {"conftest.py", "draws.py", "hunt.py"}
    wrong = [
        str(path.relative_to(TESTS))
        for path in TESTS.rglob("*.py")
        if path.name not in allowed and "hypothesis" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module == "hypothesis"
        if {"settings", "seed", "reproduce_failure"} & {alias.name for alias in node.names}
    ]
    assert not wrong, f"use draws.py instead of hypothesis.settings: {wrong}"


def test_the_files_that_take_longest_are_there():
    assert [name for name in LONG_FILES if not (TESTS / name).is_file()] == []
    assert len(set(LONG_FILES)) == len(LONG_FILES)


# --- side by side ----------------------------------------------------------------------------------------------------


class _Process:
    """A process that notes which tests it is sent."""

    def __init__(self):
        self.sent, self.shutting_down, self.gateway = [], False, SimpleNamespace(id="gw")

    def send_runtest_some(self, places):
        self.sent += places

    def shutdown(self):
        self.shutting_down = True


def _share(tests, *, processes):
    """Let so many processes run these tests, those of whoever was sent most first; return them."""
    config = SimpleNamespace(option=SimpleNamespace(loadscopereorder=False, px=[], tx=["popen"] * processes))
    config.getvalue = partial(getattr, config.option)
    shared = FileByFile(config, Producer("", enabled=False))
    nodes = [_Process() for _ in range(processes)]
    for node in nodes:
        shared.add_node(node)
        shared.add_node_collection(node, tests)
    shared.schedule()
    return shared, nodes


def test_every_test_is_run_once_and_all_of_a_file_by_one_process():
    tests = [f"tests/test_{file}.py::test_{number}" for file in "abcde" for number in range(5)]
    shared, nodes = _share(tests, processes=2)
    done = dict.fromkeys(nodes, 0)
    while not all(done[node] == len(node.sent) for node in nodes):
        node = max(nodes, key=lambda node: len(node.sent) - done[node])
        shared.mark_test_complete(node, node.sent[done[node]])
        done[node] += 1
    assert sorted(nodes[0].sent + nodes[1].sent) == list(range(len(tests)))
    files = [{tests[place].partition("::")[0] for place in node.sent} for node in nodes]
    assert files[0].isdisjoint(files[1])
    assert all(node.shutting_down for node in nodes)
    assert not shared.has_pending


def test_files_that_need_the_same_large_library_are_run_by_one_process():
    files = [
        "weights/test_families.py",
        "ops/test_norm.py",
        "text/test_bpe.py",
        "ops/test_mask.py",
        "cli/test_finetune.py",
    ]
    _, nodes = _share([f"tests/{file}::test_{number}" for file in files for number in "12"], processes=2)
    apart = [{files[place // 2] for place in node.sent} for node in nodes]
    assert {files[0], files[2], files[4]} in apart


def test_what_a_process_that_died_had_not_run_is_run_by_another():
    tests = [f"tests/test_{file}.py::test_{number}" for file in "abc" for number in range(5)]
    shared, (first, second) = _share(tests, processes=2)
    shared.mark_test_complete(first, first.sent[0])
    assert shared.remove_node(first) == tests[first.sent[1]]
    place = 0
    while place < len(second.sent):
        shared.mark_test_complete(second, second.sent[place])
        place += 1
    assert sorted({*second.sent, first.sent[0]}) == list(range(len(tests)))


@pytest.mark.parametrize(
    ("outcomes", "told"),
    [
        ({"setup": "passed", "call": "passed", "teardown": "passed"}, ["call"]),
        ({"setup": "passed", "call": "failed", "teardown": "passed"}, ["call"]),
        ({"setup": "passed", "call": "passed", "teardown": "failed"}, ["call", "teardown"]),
        ({"setup": "failed", "teardown": "failed"}, ["setup", "teardown"]),
        ({"setup": "skipped", "teardown": "passed"}, ["setup"]),
    ],
)
def test_of_a_test_all_is_told_but_that_its_surroundings_passed(outcomes, told, monkeypatch):
    reports = [
        pytest.TestReport("test", ("", 0, ""), {"word": 1}, outcome, None, when) for when, outcome in outcomes.items()
    ]
    monkeypatch.setattr(side_by_side, "runtestprotocol", lambda item, nextitem, log: reports)
    heard = []
    hook = SimpleNamespace(pytest_runtest_logreport=lambda report: heard.append(report))
    assert side_by_side.BriefReports().pytest_runtest_protocol(SimpleNamespace(ihook=hook), None)
    assert [report.when for report in heard] == told
    assert all(report.keywords for report in heard if not report.passed)


def test_tests_stand_in_the_same_order_whichever_file_was_imported_first(request):
    folder = pytest.Dir.from_parent(request.session, path=TESTS / "ops")
    items = [SimpleNamespace(path=TESTS / name) for name in ("ops/test_norm.py", "api/test_loop.py", "test_tree.py")]
    found = {}
    for backwards in (False, True):
        ends = side_by_side.BothEnds(backwards=backwards)
        report = SimpleNamespace(result=["first", "last"])
        wrapped = ends.pytest_make_collect_report(folder)
        next(wrapped)
        with pytest.raises(StopIteration):
            wrapped.send(report)
        collected = items[::-1] if backwards else items
        ends.pytest_collection_modifyitems(collected)
        found[backwards] = (report.result, [item.path.name for item in collected])
    assert found[False] == (["first", "last"], ["test_loop.py", "test_norm.py", "test_tree.py"])
    assert found[True] == (["last", "first"], ["test_loop.py", "test_norm.py", "test_tree.py"])
