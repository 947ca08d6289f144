"""The promises about how the code is arranged: who imports whom, how long things are, and what stays out."""

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from oracles import refuse

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "glassformer"

# Low to high. A unit imports itself and units on lower levels; units that share a level do not know each other.
LEVELS = [
    {"core"},
    {"config", "text"},
    {"ops"},
    {"layers"},
    {"models"},
    {"data"},
    {"weights"},
    {"training", "generation"},
    {"proofs"},
    {"interpret"},
    {"engines"},
    {"runs"},
    {"plots", "labs", "bugs", "progress"},
    {"web"},
    {"api"},
    {"studies"},
    {"cli"},
]
LEVEL_OF = {unit: level for level, units in enumerate(LEVELS) for unit in units}
EXEMPT = {"__init__", "__main__"}

# Units that may import third-party packages when they are loaded. `import glassformer` loads none of them.
MAY_IMPORT_OTHERS = {
    "cli", "progress", "plots", "web", "engines", "weights", "text", "data", "training", "runs", "labs",
}  # fmt: skip

# What imports the module that a string names; and the one arrow that points upward, by which engines register.
IMPORTERS = ("import_module", "__import__", "later")
REGISTRATION = ("core", "glassformer.engines")
UNKNOWN = "?"
# These import what others name: an engine its methods, a page of the explorer what it includes, a lab what it warms up.
TOLD_WHAT_TO_IMPORT = {"web/derivations.py", "labs/worker.py"}

# The mathematics does not know who executes it, not even in its comments.
MATHEMATICS = ("ops", "layers", "models")
NOT_THERE = re.compile(r"\b(engines?|kernels?|numba|jax|gpus?|cuda|cudnn|pallas|triton|traced|jit)\b", re.IGNORECASE)

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 40


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def unit_of(path: Path) -> str:
    """The first name below the package: `ops` for ops/norm.py, `tree` for tree.py."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(parse(path)))


def where(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{node.lineno}"


def imported_names(path: Path, node: ast.AST) -> list[str]:
    """The absolute dotted names an import statement, or a call that imports by name, asks for; none for any other node.

    `from a.b import c` asks for a.b.c: whether c is a module makes no difference to the questions asked here.
    """
    if isinstance(node, ast.Call):
        return named_by_string(path, node)
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = node.module or ""
    if node.level:
        package = ["glassformer", *path.relative_to(PACKAGE).parent.parts]
        above = package[: len(package) - (node.level - 1)]
        base = ".".join([*above, base]) if base else ".".join(above)
    return [f"{base}.{alias.name}" for alias in node.names]


def named_by_string(path: Path, call: ast.Call) -> list[str]:
    """The module that a call imports by its name, relative ones made absolute; what is not written out is UNKNOWN."""
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if called not in IMPORTERS or not call.args:
        return []
    name = written(path, call.args[0])
    if name.startswith("."):
        package = ["glassformer", *path.relative_to(PACKAGE).parent.parts]
        above = len(name) - len(name.lstrip(".")) - 1
        name = ".".join([*package[: len(package) - above], name.lstrip(".")])
    return [name]


def written(path: Path, node: ast.expr) -> str:
    """The text that an expression stands for; what a text is put together from only at run time is UNKNOWN."""
    if isinstance(node, ast.JoinedStr):
        return "".join(written(path, value) for value in node.values)
    if isinstance(node, ast.FormattedValue):
        return written(path, node.value)
    if isinstance(node, ast.Name):
        return constants(path).get(node.id, UNKNOWN)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else UNKNOWN


@cache
def constants(path: Path) -> dict[str, str]:
    """The texts that a module calls by a name."""
    package = ".".join(["glassformer", *path.relative_to(PACKAGE).parent.parts])
    found = {"__package__": package, "__name__": module_name(path)}
    for node in parse(path).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found |= {target.id: node.value.value for target in node.targets if isinstance(target, ast.Name)}
    return found


def nodes_run_on_import(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node that runs when the module loads: not the bodies of functions, not what only type checkers read."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        yield node
        yield from nodes_run_on_import(node)


def code_lines(source: str) -> set[int]:
    """The numbers of the lines that hold code: not blank, not only a comment."""
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in silent:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines


def function_length(function: ast.FunctionDef | ast.AsyncFunctionDef, lines: set[int]) -> int:
    """Lines of code from `def` to the last statement, without the docstring."""
    own = lines & set(range(function.lineno, function.end_lineno + 1))
    if ast.get_docstring(function, clean=False) is not None:
        docstring = function.body[0]
        own -= set(range(docstring.lineno, docstring.end_lineno + 1))
    return len(own)


def forbidden(unit: str, name: str) -> str | None:
    """Why a module of `unit` must not import the dotted `name`, or None when it may."""
    package, *rest = name.split(".")
    if (unit, name) == REGISTRATION:
        return None
    if package != "glassformer" or (rest and rest[0].startswith("__")):
        return None
    if not rest or rest[0] not in LEVEL_OF:
        return None if unit == "cli" else f"{unit} imports {name}: name the unit, not the package, which sits above it"
    other = rest[0]
    if other == unit or LEVEL_OF[other] < LEVEL_OF[unit]:
        return None
    return f"{unit} imports {other}, which is not below it"


def test_every_unit_has_a_place_in_the_order():
    unplaced = {unit_of(path) for path in modules()} - LEVEL_OF.keys() - EXEMPT
    assert not unplaced, f"add to LEVELS in {Path(__file__).name}: {sorted(unplaced)}"


def test_imports_point_downward_even_inside_functions():
    wrong = [
        f"{where(path, node)} {reason}"
        for path in modules()
        if unit_of(path) in LEVEL_OF
        for node in nodes(path)
        for name in imported_names(path, node)
        if (reason := forbidden(unit_of(path), name))
    ]
    assert not wrong, "\n".join(wrong)


def test_strings_that_name_modules_are_imports():
    path = PACKAGE / "models" / "model.py"  # which may import neither of these
    for call, name in {
        'import_module("glassformer.interpret.run")': "glassformer.interpret.run",
        'importlib.import_module("..api.loading", __package__)': "glassformer.api.loading",
        '__import__(f"{__package__}.{name}")': "glassformer.models.?",
        'import_module(f"glassformer.{name}")': "glassformer.?",
    }.items():
        assert imported_names(path, ast.parse(call, mode="eval").body) == [name]
        assert bool(forbidden("models", name)) == (not name.startswith("glassformer.models"))


def test_only_those_that_are_told_import_what_no_string_says():
    free = {
        path.relative_to(PACKAGE).as_posix()
        for path in modules()
        if unit_of(path) not in EXEMPT
        for node in nodes(path)
        if any(name.startswith(UNKNOWN) for name in imported_names(path, node))
    }
    assert free == TOLD_WHAT_TO_IMPORT


def test_the_picture_of_the_imports_is_the_order_that_is_checked():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    picture = re.search(r"<!-- levels -->\n```\n(.*?)```", text, flags=re.DOTALL)
    assert picture is not None
    levels = [set(line.partition("│")[0].split()) for line in picture[1].splitlines()]
    assert levels[::-1] == LEVELS


def file_imports() -> dict[str, set[str]]:
    """For every module of the package, the modules of it that it imports anywhere, by dotted names."""
    names = {path: module_name(path) for path in modules()}
    known = set(names.values())
    graph: dict[str, set[str]] = {name: set() for name in known}
    for path, name in names.items():
        for node in nodes(path):
            for asked in imported_names(path, node):
                target = asked if asked in known else asked.rpartition(".")[0]
                if target in known and target != name and UNKNOWN not in asked and asked != REGISTRATION[1]:
                    graph[name].add(target)
    return graph


def module_name(path: Path) -> str:
    return ".".join(["glassformer", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__")


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the sets of modules in which each leads to each other."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        left = [start]
        while left:
            for target in graph[left.pop()] - seen:
                seen.add(target)
                left.append(target)
        return seen

    from_each = {name: reached(name) for name in graph}
    found = {frozenset({a} | {b for b in from_each[a] if a in from_each[b]}) for a in graph if a in from_each[a]}
    return sorted(map(set, found), key=sorted)


def test_no_file_imports_itself_by_way_of_others():
    assert circles(file_imports()) == []


def test_the_mathematics_mentions_nobody_who_executes_it():
    wrong = [
        f"{path.relative_to(ROOT)}:{number} says {found.group(0)!r}"
        for path in modules()
        if unit_of(path) in MATHEMATICS
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if (found := NOT_THERE.search(line))
    ]
    assert not wrong, "\n".join(wrong)


def test_precision_is_nowhere_inside_the_formulas():
    wrong = [
        f"{where(path, node)} {node.id}"
        for path in modules()
        if unit_of(path) == "ops"
        for node in nodes(path)
        if isinstance(node, ast.Name) and node.id in ("widen", "narrow", "cast", "is_half")
    ]
    assert not wrong, "\n".join(wrong)


def test_only_edge_units_import_third_party_packages_when_loaded():
    known = sys.stdlib_module_names | {"numpy", "glassformer"}
    wrong = [
        f"{where(path, node)} imports {name}; do it inside the function that needs it"
        for path in modules()
        if unit_of(path) not in MAY_IMPORT_OTHERS
        for node in nodes_run_on_import(parse(path))
        for name in imported_names(path, node)
        if name.split(".")[0] not in known
    ]
    assert not wrong, "\n".join(wrong)


def test_files_are_short():
    sources = [
        path
        for folder in ("src", "tests", "benchmarks", "examples")
        for pattern in ("*.py", "*.js")
        for path in (ROOT / folder).rglob(pattern)
    ]
    lengths = {path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines()) for path in sources}
    long = [f"{path}: {length} lines" for path, length in lengths.items() if length > MAX_FILE_LINES]
    assert not long, f"more than {MAX_FILE_LINES} lines:\n" + "\n".join(long)


def test_functions_are_short():
    long = []
    for path in modules():
        functions = [node for node in nodes(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        # No function has more lines of code than lines: what is short as it stands need not be read.
        tall = [node for node in functions if node.end_lineno - node.lineno >= MAX_FUNCTION_LINES]
        lines = code_lines(path.read_text(encoding="utf-8")) if tall else set()
        for node in tall:
            length = function_length(node, lines)
            if length > MAX_FUNCTION_LINES:
                long.append(f"{where(path, node)} {node.name}: {length} lines")
    assert not long, f"more than {MAX_FUNCTION_LINES} lines of code:\n" + "\n".join(long)


LOADED = """
import json, sys
before = set(sys.modules)
import glassformer
print(json.dumps(sorted({name.split(".")[0] for name in set(sys.modules) - before})))
"""


def test_importing_glassformer_loads_numpy_and_nothing_else():
    result = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    loaded = set(json.loads(result.stdout))
    assert loaded - sys.stdlib_module_names - {"numpy", "glassformer"} == set()


# Where packages come from is the business of whoever installs them, and no machine's folders are anyone else's.
STAYS_OUT = {
    "the host of a package registry": re.compile(
        r"pypi\.org|pythonhosted\.org|npmjs\.(org|com)|anaconda\.org|index[-]url"
    ),
    "an absolute path of one machine": re.compile(r"(?<![\w.~})\]/-])/(?:work|root)\b"),
}


def repository_files() -> list[Path]:
    """The files git tracks, or would once they are added."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        refuse("this is not a git checkout")
    return [path for name in result.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_file_names_a_registry_or_a_path_of_one_machine():
    found = []
    for path in repository_files():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:  # not text
            continue
        for number, line in enumerate(lines, start=1):
            found += [
                f"{path.relative_to(ROOT)}:{number} names {what}"
                for what, pattern in STAYS_OUT.items()
                if pattern.search(line)
            ]
    assert not found, "\n".join(found)
