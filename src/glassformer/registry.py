"""Parts of one's own, by name: what a config may choose beside what is built in.

    register("activation", "square", (square, square_backward))

The functions to call are `register_op`, `register_activation`, `register_norm`, `register_positions` and
`register_block` of the package, which check what they are given and put it here.
"""

from typing import Any

from .errors import ConfigError, did_you_mean

BUILT_IN: dict[str, tuple[str, ...]] = {
    "activation": ("relu", "gelu", "gelu_tanh", "silu"),
    "norm": ("layer", "rms"),
    "positions": ("learned", "sinusoidal", "rotary", "alibi", "relative", "none"),
    "block": ("residual",),
    "op": (),
}
"""What a config may choose without anybody's doing."""

_own: dict[str, dict[str, Any]] = {family: {} for family in BUILT_IN}


def register(family: str, name: Any, part: Any) -> None:
    """Make a part known under a name; the same name again replaces a part of one's own, never a built-in one."""
    if not isinstance(name, str) or not name.isidentifier():
        raise ConfigError(f"the name of a part is {name!r}", hint="use letters, digits and _, such as square_relu")
    if name in BUILT_IN[family]:
        raise ConfigError(f"{name!r} is the name of a built-in {family}", hint="choose another name")
    _own[family][name] = part


def known(family: str) -> tuple[str, ...]:
    """Return the names that a config may choose."""
    return (*BUILT_IN[family], *_own[family])


def own(family: str) -> dict[str, Any]:
    """Return the parts that were registered, by name."""
    return dict(_own[family])


def find(family: str, name: str) -> Any:
    """Return a registered part."""
    if name not in _own[family]:
        raise ConfigError(f"there is no {family} {name!r}", hint=did_you_mean(name, known(family)))
    return _own[family][name]
