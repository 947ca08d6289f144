"""The engine numpy: every op and layer as its source reads, in NumPy alone."""

from typing import Any

from ..dispatch import Engine


class Reference(Engine):
    """An engine without kernels."""

    name = "numpy"
    replaces_methods = False

    def trainer(self, *arguments: Any, **settings: Any) -> Any:
        """Return a trainer of pure steps."""
        from ..training.trainer import ReferenceTrainer

        return ReferenceTrainer(*arguments, **settings)

    def reader(self, *arguments: Any, **settings: Any) -> Any:
        """Return a reader that remembers keys and values."""
        from ..generation.reader import CachedReader

        return CachedReader(*arguments, **settings)

    def check_storage(self, weights: str) -> None:
        """Refuse an unknown way to keep weights."""
        from ..generation.storage import check_storage

        check_storage(weights)

    def stored(self, params: Any, weights: str) -> Any:
        """Return a model's parameters with its matrices kept in such a way."""
        from ..generation.storage import stored

        return stored(params, weights)


ENGINE = Reference()
