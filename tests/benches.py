"""Benchmarks as brief as can be: contenders in this process rather than in one of their own, and a single round."""

import json
from types import SimpleNamespace

from glassformer import dispatch
from glassformer.bench import attention, generate, process, startup, timing, train, worker

_Process = process.Process


class Here(_Process):
    """A contender in this process, with an engine of its own: it takes no time to start, and shares what is loaded."""

    def __init__(self, name, target, settings, **variables):
        self.name, self.first, self.facts = name, [], {}
        self._target, self._settings = target, dict(settings)
        self._server, self._engine = worker.Server(), None

    def ask(self, request):
        outside, dispatch._default = dispatch._default, self._engine
        try:
            return json.loads(json.dumps(self._server.serve(json.loads(json.dumps(request)))))
        finally:
            self._engine, dispatch._default = dispatch._default, outside

    def close(self):
        self._server = None


def contend_here(patch):
    """Let all contenders run in this process, which holds too much to look for garbage before each turn."""
    patch.setattr(worker, "gc", SimpleNamespace(collect=lambda: 0))
    patch.setattr(worker, "settle", lambda: None)
    for module in (process, attention, generate, train, startup):
        patch.setattr(module, "Process", Here)


def be_brief(patch):
    """Warm up once, and let everyone take one turn of one step, whatever the time that is given."""
    for name in ("WARM_UP", "LEAST_ROUNDS", "MOST_ROUNDS", "MOST_STEPS"):
        patch.setattr(timing, name, 1)
