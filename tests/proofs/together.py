"""Cases that JAX compiles together, in half the time that their own programs take."""

from contextlib import suppress

from glassformer.dispatch import use_engine
from glassformer.proofs.computed import TOGETHER


class Together:
    """Verdicts of JAX on those cases that the tests of a session ask for; some are found as soon as one is asked for.

    `prove` returns the verdicts on several cases, and `seen` the case that JAX gets in place of another.
    """

    def __init__(self, request, test, prove, seen=lambda case: case) -> None:
        items = [item for item in request.session.items if item.path == request.path and item.originalname == test]
        cases = [item.callspec.params["case"] for item in items if item.callspec.params["engine"] == "jax"]
        self._cases = {case.name: seen(case) for case in cases}
        self._prove = prove
        self._found = {}

    def verdict(self, case):
        """Return the verdict on a case."""
        if case.name not in self._found:
            place = list(self._cases).index(case.name) // TOGETHER * TOGETHER
            some = list(self._cases.values())[place : place + TOGETHER]
            with use_engine("jax"):
                with suppress(Exception):  # where one of them fails, the others are not to fail with it
                    self._found |= {check.name: check for check in self._prove(some)}
                if case.name not in self._found:
                    self._found[case.name] = self._prove([self._cases[case.name]])[0]
        return self._found[case.name]
