"""Time spent in compilers. Kernels are compiled when first needed, and cached for the next start."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator

from ..dispatch import Engine


class Compilation:
    """The time spent compiling so far, and whether something is being compiled now."""

    def __init__(self, what: str = "kernels", begun: Callable[[str], None] | None = None) -> None:
        self.what, self.count = what, 0
        self._begun, self._depth = begun, 0
        self._before, self._since = 0.0, 0.0

    @property
    def running(self) -> bool:
        """Whether something is being compiled now."""
        return self._depth > 0

    @property
    def seconds(self) -> float:
        """The time spent compiling."""
        return self._before + (time.perf_counter() - self._since if self.running else 0.0)

    def begin(self) -> None:
        """Note that a compilation begins, perhaps inside another one."""
        if not self._depth:
            self._since = time.perf_counter()
            self.count += 1
            if self.count == 1 and self._begun is not None:
                self._begun(str(self))
        self._depth += 1

    def end(self) -> None:
        """Note that it ends."""
        if self._depth:
            self._depth -= 1
            if not self._depth:
                self._before += time.perf_counter() - self._since

    def __str__(self) -> str:
        if self.what != "kernels":
            return f"compiling {self.what}"
        number = f", number {self.count:,}" if self.count > 1 else ""
        return f"compiling kernels{number}; they are cached for the next start"


@contextlib.contextmanager
def watched(engine: Engine, begun: Callable[[str], None] | None = None) -> Iterator[Compilation]:
    """Time what an engine compiles inside a `with` block; `begun` is called once, when compiling begins.

    Numba reports every kernel. JAX compiles a whole step when it takes the first one and reports nothing, so the caller
    calls `begin` and `end`.
    """
    found = Compilation("the step" if engine.name == "jax" else "kernels", begun)
    if engine.name != "cpu":
        yield found
        return
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: object) -> None:
            found.begin()

        def on_end(self, event: object) -> None:
            found.end()

    logger = logging.getLogger("glassformer")
    logger.addFilter(_is_news)
    try:
        with event.install_listener("numba:compile", Listener()):
            yield found
    finally:
        logger.removeFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    """Leave out the engine's own message about compiling, which is shown here."""
    return not record.getMessage().startswith("compiling kernels")
