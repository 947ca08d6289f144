"""`glassformer tasks`."""

import json

from glassformer.data import TASKS
from runs import command


def test_tasks_are_listed():
    result = command("tasks")
    assert result.code == 0
    assert all(name in result.out for name in TASKS)
    assert list(json.loads(command("tasks", "--json").out)) == list(TASKS)
