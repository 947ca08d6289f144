"""How processes that run tests side by side share the tests, and what they tell of each."""

from functools import cache
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from xdist.scheduler import LoadFileScheduling

TESTS = Path(__file__).parent
ASKS = ('require("transformers")', "from family_models import", "from fine_tuning import", "from hf_weights import")
"""What a file says that needs a library which takes longer to import than most files to run."""


class FileByFile(LoadFileScheduling):
    """One process runs all tests of a file: what they share is made once, and what they compile nobody waits for.

    All files that need a large library count as one.
    What has been run is forgotten, and where a test stands is looked up: both are asked for after every test.
    """

    def schedule(self):
        self.places = {nodeid: place for place, nodeid in enumerate(next(iter(self.registered_collections.values())))}
        super().schedule()

    def _split_scope(self, nodeid):
        file = nodeid.partition("::")[0]
        return "transformers" if needs_transformers(TESTS.parent / file) else file

    def _assign_work_unit(self, node):
        scope, tests = self.workqueue.popitem(last=False)
        before = self.assigned_work[node]
        self.assigned_work[node] = {name: unit for name, unit in before.items() if not all(unit.values())}
        self.assigned_work[node][scope] = tests
        node.send_runtest_some([self.places[nodeid] for nodeid, done in tests.items() if not done])


@cache
def needs_transformers(path):
    """Tell whether a file of tests compares with `transformers`."""
    return path.is_file() and any(ask in path.read_text(encoding="utf-8") for ask in ASKS)


class BriefReports:
    """Tell of a test how it went, and of what came before and after it only where that did not go well.

    Otherwise five messages go from process to process for every test, four of which say that all is well.
    """

    def pytest_runtest_protocol(self, item, nextitem):
        for report in runtestprotocol(item, nextitem=nextitem, log=False):
            if report.passed:
                report.keywords = {}
            if report.when == "call" or not report.passed:
                item.ihook.pytest_runtest_logreport(report=report)
        return True


def is_brief(option):
    """Return whether nothing that was asked for needs more than `BriefReports`: times, a file of XML, an early end."""
    return not (option.verbose > 0 or option.durations is not None or option.xmlpath or option.maxfail)


class BothEnds:
    """Import the files of a folder from the first to the last, or backwards; the tests stand in the same order then.

    Where nothing is compiled yet, two processes that begin at both ends compile half of the files each, not all twice.
    """

    def __init__(self, *, backwards):
        self.backwards = backwards

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector):
        report = yield
        if self.backwards and isinstance(collector, pytest.Directory):
            report.result.reverse()
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items):
        items.sort(key=lambda item: item.path.parts)
