"""A game: a function of the package is broken, and you find it with the tools that find real bugs."""

import ast
import inspect
import random

from ..core.errors import GlassformerError
from .checks import CHECKS, run_check
from .exhibits import Exhibit, museum
from .planted import PACKAGE, plant

HELP = """\
  checks             run every check of the museum, and name those that fail
  gradients NAME     compare the gradients of an op or layer with numeric ones: gradients layer_norm
  show NAME          print a function as it runs now: show layer_norm_backward
  guess NAME         name the function that is wrong
  hint               hear what the bug does
  quit               give up"""


class Hunt:
    """One round: `answer` takes what the player types and returns what to print; `over` tells when it ends."""

    def __init__(self, seed: int | None = None) -> None:
        self.exhibit: Exhibit = random.Random(seed).choice(list(museum().values()))
        self.looks = 0
        self.over = False
        self.found = False

    @property
    def culprits(self) -> list[str]:
        """The functions that the bug changes."""
        right = (PACKAGE / self.exhibit.bug.file).read_text(encoding="utf-8")
        before, after = (
            {node.name: ast.dump(node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
            for text in (right, self.exhibit.bug.wrong)
        )
        return [name for name in before if before[name] != after[name]]

    def opening(self) -> str:
        """Return what the player hears first."""
        where = self.exhibit.bug.file.partition("/")[0]
        return f"One function in src/glassformer/{where}/ is wrong now, in this game only. Which one?\n{HELP}"

    def answer(self, line: str) -> str:
        """Return what to print for a line of the player."""
        word, _, rest = line.strip().partition(" ")
        tools = {"checks": self._checks, "gradients": self._gradients, "show": self._show, "guess": self._guess}
        if word in ("quit", "exit"):
            self.over = True
            return self._reveal("The culprit was")
        if word == "hint":
            self.looks += 1
            return self.exhibit.story
        if word not in tools:
            return HELP
        if word != "guess":
            self.looks += 1
        try:
            return tools[word](rest.strip())
        except GlassformerError as error:
            return str(error)

    def _checks(self, _: str) -> str:
        with plant(self.exhibit.bug):
            found = {name: run_check(name) for name in CHECKS}
        failed = [f"  {name}: {finding.evidence}" for name, finding in found.items() if not finding.ok]
        return "\n".join([f"{len(failed)} of {len(found)} checks fail.", *failed])

    def _gradients(self, name: str) -> str:
        with plant(self.exhibit.bug):
            finding = run_check(f"gradients: {name}")
        return f"{'right' if finding.ok else 'WRONG'}: {finding.evidence}"

    def _show(self, name: str) -> str:
        return self._source(name) or f"There is no function {name!r} in {self.exhibit.bug.file.partition('/')[0]}/."

    def _source(self, name: str) -> str | None:
        folder = (PACKAGE / self.exhibit.bug.file).parent
        for path in sorted(folder.rglob("*.py")):
            wrong = path == PACKAGE / self.exhibit.bug.file
            text = self.exhibit.bug.wrong if wrong else path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef) and node.name == name.rpartition(".")[2]:
                    body = ast.get_source_segment(text, node)
                    return f"# {path.relative_to(PACKAGE)}, line {node.lineno}\n{inspect.cleandoc(body or '')}"
        return None

    def _guess(self, name: str) -> str:
        if name.rpartition(".")[2] in self.culprits:
            self.over = self.found = True
            return self._reveal(f"Yes, after {self.looks} looks:")
        return f"No, {name} is right." if self._source(name) else f"There is no function {name!r} there."

    def _reveal(self, opening: str) -> str:
        bug = self.exhibit
        where = f"\n{' '.join(bug.sources)}" if bug.sources else ""
        return f"{opening} {', '.join(self.culprits)}. {bug.title}\n{bug.diff()}\n{bug.story}{where}"
