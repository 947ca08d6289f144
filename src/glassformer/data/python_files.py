"""Tasks and model parts from Python files: tasks are functions that yield questions and answers.

    own = import_file("my_task.py")     # its tasks, layers, activations and tokenizers are known from here on

A run folder stores the path and the SHA-256 of such a file."""

import contextlib
import functools
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from ..core import registry
from ..core.documents import digest
from ..core.errors import ConfigError, DataError, GlassformerError
from ..core.settings import check_known
from ..text import CharTokenizer, Tokenizer
from .splits import split
from .task import Architecture, Lexicon, Task, question_task, require_text
from .task import recipe as full_recipe
from .tasks import TASKS

_imported: dict[Path, tuple[str, list[tuple[str, str, Any]]]] = {}  # what each file registered, and its SHA-256 then


@dataclass(frozen=True)
class CustomFile:
    """A Python file that registers tasks or model parts, with its hash when it was imported."""

    path: Path
    sha256: str

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks in it."""
        return tuple(name for name in registry.own("task") if registry.origin("task", name) == self.path)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {"path": str(self.path), "sha256": self.sha256}

    @property
    def loaded(self) -> str | None:
        """The SHA-256 of the file as this process imported it; None if it did not, or another file took its names."""
        return _imported[self.path][0] if _is_registered(self.path) else None

    def copy_into(self, folder: Path) -> None:
        """Keep a copy in a run folder, in case the file is lost."""
        (folder / self.path.name).write_bytes(self.path.read_bytes())


def import_file(path: str | Path) -> CustomFile:
    """Run a Python file that registers tasks or parts; again only if it changed, or if others took its names.

    It may import its neighbors in the same folder.
    """
    file = Path(path).expanduser().resolve()
    try:
        content = file.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}", hint="pass a Python file") from error
    sha256 = digest(content)
    if not _is_registered(file) or _imported[file][0] != sha256:
        with registry.reading(file) as made, failing(f"{path} cannot be imported", file):
            run_file(content, file)
        if not made:
            raise DataError(
                f"{path} registers nothing",
                hint="mark a function with @gf.task, or register a part, such as gf.register_activation(…)",
            )
        _imported[file] = sha256, made
    return CustomFile(file, sha256)


def files_of(parts: Iterable[tuple[str, str | None]]) -> tuple[CustomFile, ...]:
    """Return the files that parts, given as (family, name), came from, each once."""
    paths = [registry.origin(family, name) for family, name in parts if name is not None]
    return tuple(
        CustomFile(path, _imported[path][0]) for path in dict.fromkeys(paths) if path is not None and path in _imported
    )


@contextlib.contextmanager
def failing(fact: str, file: Path) -> Iterator[None]:
    """Turn an exception in a file of the user's into an error that names its line."""
    try:
        yield
    except GlassformerError as error:
        raise DataError(f"{fact}: {error.fact}{_line(error, file)}", hint=error.hint) from error
    except Exception as error:
        what = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
        raise DataError(f"{fact}: {what}{_line(error, file)}", hint="correct the file") from error


def _is_registered(file: Path) -> bool:
    """Return whether a file was read and all that it registered is still known."""
    _, parts = _imported.get(file, ("", None))
    return parts is not None and all(registry.own(family).get(name) is part for family, name, part in parts)


def _line(error: Exception, file: Path) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    return "" if line is None else f" ({file.name}, line {line})"


def run_file(content: bytes, file: Path) -> ModuleType:
    """Run exactly these bytes of a file, which may import its neighbors in the same folder; return the module."""
    name = f"{file.stem}_{digest(str(file).encode())[:8]}"
    module = ModuleType(name)
    module.__file__ = str(file)
    sys.modules[name] = module  # where dataclasses look for the names in annotations
    neighbors = str(file.parent)
    sys.path.append(neighbors)
    try:
        exec(compile(content, str(file), "exec"), module.__dict__)
    finally:
        sys.path.remove(neighbors)
    return module


ARCHITECTURES: dict[Architecture, tuple[str, ...]] = {
    "decoder": ("<eos>",),
    "encoder": (),
    "encoder-decoder": ("<bos>", "<eos>"),
}
"""The architectures of custom tasks, and the special tokens that each needs."""

SETTINGS = {"width": 64, "heads": 4, "layers": 2}
DEEPER: dict[str, dict[str, int]] = {"encoder-decoder": {"encoder_layers": 2}}
RECIPE = {"steps": 1000, "batch": 64, "lr": 2e-3, "warmup": 100, "weight_decay": 0.01}
"""A model and a training where a task does not say otherwise."""


def task(
    function: Callable[..., Any] | None = None,
    *,
    architecture: Architecture = "decoder",
    tokenizer: Tokenizer | None = None,
    settings: dict[str, Any] | None = None,
    recipe: dict[str, Any] | None = None,
) -> Any:
    """Make a task of a function that yields pairs of texts: a question and its answer.

        @gf.task
        def double(*, seed=0, longest=6):
            \"\"\"write every letter twice\"\"\"
            rng = np.random.default_rng(seed)
            for _ in range(5000):
                word = "".join(rng.choice(list("abcde"), size=rng.integers(1, longest + 1)))
                yield word + "=", "".join(2 * letter for letter in word)

    Its name is the task's, the first line of its docstring the summary, and its keyword arguments, which need
    defaults, the settings: --set longest=8. A `seed` says which data is drawn, `data` is what --data names. Each
    different question counts once. A hash of it decides whether it is trained on, or one of the two tenths that are
    held out.

    architecture   decoder: reads the question, writes the answer behind it; let questions end in a sign such as = where
                   their lengths differ. encoder: the answer is a class. encoder-decoder: another text
    tokenizer      the characters that occur unless given; special tokens needed: see `ARCHITECTURES`
    settings       of the model, and `recipe` of the training, where they differ from the defaults

    A function that wants more returns a whole `Task` instead.
    """
    options: Any = {"architecture": architecture, "tokenizer": tokenizer, "settings": settings, "recipe": recipe}
    if function is None:
        return functools.partial(task, **options)
    if not hasattr(function, "__name__"):
        raise ConfigError(f"{function!r:.80} is no function", hint="mark one that yields pairs of texts with @gf.task")
    check_known("the architecture is", architecture, ARCHITECTURES)
    full_recipe(**(recipe or {}))  # refuses what a recipe does not have
    name, summary = function.__name__, (inspect.getdoc(function) or "").partition("\n")[0]
    signature = _signature(name, function)
    file = Path(inspect.getsourcefile(function) or name)
    takes_seed = "seed" in inspect.signature(function).parameters

    @functools.wraps(function)
    def build(**chosen: Any) -> Task:
        if not takes_seed:
            chosen.pop("seed", None)
        with failing(f"the task {name!r} cannot be built", file):
            made = function(**chosen)
            if isinstance(made, Task):
                return replace(made, name=name, summary=made.summary or summary)
            pairs = list(_checked(made))
        return _from_pairs(name, summary, pairs, **options)

    build.__signature__ = signature  # type: ignore[attr-defined]
    registry.register("task", name, build)
    TASKS[name] = build
    return build


def _signature(name: str, function: Callable[..., Any]) -> inspect.Signature:
    """Return the settings of the task; a seed is always one of them."""
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ConfigError(f"the task {name!r} takes {parameter}", hint="name each of its settings")
        if parameter.default is parameter.empty:
            raise ConfigError(
                f"the setting {parameter.name!r} of the task {name!r} has no default", hint=f"{parameter.name}=…"
            )
    if all(parameter.name != "seed" for parameter in parameters):
        parameters.append(inspect.Parameter("seed", inspect.Parameter.KEYWORD_ONLY, default=0))
    named = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    return inspect.Signature(named, return_annotation=Task)


def _checked(made: Any) -> Iterable[tuple[str, str]]:
    if not isinstance(made, Iterable) or isinstance(made, str):
        raise DataError(
            f"it returned {made!r:.80}", hint='yield pairs of texts, such as ("2+3=", "5"), or return a Task'
        )
    for pair in made:
        is_pair = isinstance(pair, tuple | list) and len(pair) == 2
        if not is_pair or not all(isinstance(text, str) for text in pair) or not pair[0]:
            raise DataError(f"it yielded {pair!r:.80}", hint='yield pairs of texts, such as ("2+3=", "5")')
        yield pair[0], pair[1]


def _from_pairs(
    name: str,
    summary: str,
    pairs: Sequence[tuple[str, str]],
    *,
    architecture: Architecture,
    tokenizer: Tokenizer | None,
    settings: dict[str, Any] | None,
    recipe: dict[str, Any] | None,
) -> Task:
    answers: dict[str, str] = {}
    for question, answer in pairs:
        answers.setdefault(question, answer)
    splits = split(answers).answered(answers.__getitem__)
    if not all(splits):
        raise DataError(
            f"the task {name!r} yields {len(answers):,} different questions, too few for three splits",
            hint="yield more",
        )
    known = _characters(architecture, answers) if tokenizer is None else tokenizer
    missing = [special for special in ARCHITECTURES[architecture] if special not in known.specials]
    if missing:
        raise ConfigError(
            f"the tokenizer of the task {name!r} has no special token {missing[0]!r}",
            hint=f"a task for the architecture {architecture!r} needs {' and '.join(ARCHITECTURES[architecture])}",
        )
    bos, eos = (known.specials[word] if word in ARCHITECTURES[architecture] else None for word in ("<bos>", "<eos>"))
    repeated = f"{len(pairs) - len(answers):,} repeated questions left out, the first answer of each stays"
    return question_task(
        name,
        architecture,
        Lexicon(known, None, bos, eos),
        splits,
        require_text,
        classes=sorted(set(answers.values())) if architecture == "encoder" else (),
        settings={**SETTINGS, **DEEPER.get(architecture, {}), **(settings or {})},
        recipe=full_recipe(**{**RECIPE, **(recipe or {})}),
        summary=summary,
        notes=(splits.note, *([repeated] if len(pairs) > len(answers) else [])),
    )


def _characters(architecture: Architecture, answers: dict[str, str]) -> Tokenizer:
    """Return a tokenizer of the characters that occur."""
    texts = answers if architecture == "encoder" else [*answers, *answers.values()]
    # Padding is 0, masked, and better seen as what it is. Behind a decoder's answer stands its end.
    pad = () if architecture == "decoder" else ("<pad>",)
    return CharTokenizer("".join(texts), specials=(*pad, *ARCHITECTURES[architecture]))
