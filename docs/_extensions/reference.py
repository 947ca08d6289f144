"""The public names of a namespace, from its source: sections by file, signatures as written, docstrings as RST."""

import ast
import dataclasses
import functools
import importlib
import inspect
import re
import sys
import textwrap
import types
from pathlib import Path

import glassformer

MODULES = [value for name in glassformer.__all__ if inspect.ismodule(value := getattr(glassformer, name))]
NAMESPACES = ("glassformer", *(module.__name__ for module in MODULES), "glassformer.text")
LISTING = re.compile(r"^<!-- names of ([\w.]+)(?:: ([\w\s]+))? -->$", flags=re.MULTILINE)
ROW = re.compile(r"(\*{0,2}\w+(?:, \w+)*) {2,}(\S.*)")


@functools.cache
def public_names() -> dict[str, dict[str, object]]:
    """Return the public names of each namespace and their values; what two of them have belongs to the first."""
    found: dict[str, dict[str, object]] = {}
    for space in NAMESPACES:
        module = importlib.import_module(space)
        names = {name: getattr(module, name) for name in module.__all__}
        found[space] = {
            name: value
            for name, value in names.items()
            if not isinstance(value, types.ModuleType)
            and not any(as_written(value) is as_written(names_before.get(name)) for names_before in found.values())
        }
    return found


def as_written(value: object) -> object:
    """Return a function without what is wrapped around it."""
    return inspect.unwrap(value) if isinstance(value, types.FunctionType) else value


def listing(space: str, chosen: str | None) -> str:
    """Return names of a namespace as Markdown: the chosen ones, or all with a section for each of its files."""
    if chosen:
        return as_markdown(space, chosen.split())
    files: dict[str, list[str]] = {}
    for name, value in public_names()[space].items():
        home = getattr(as_written(value), "__module__", None) or space
        files.setdefault(home if home.startswith("glassformer.") else space, []).append(name)
    if [*files] == [space]:
        return as_markdown(space, files[space])
    parts = []
    for home, names in sorted(files.items(), key=lambda item: (item[0] == space, item[0])):
        about = (inspect.getdoc(sys.modules[home]) or "").partition("\n")[0]
        title = home.rpartition(".")[2].replace("_", " ").capitalize()
        heading = "## Constants\n" if home == space else f"## {title}\n\n{about}\n"
        parts.append(f"{heading}\n{as_markdown(space, names)}")
    return "\n".join(parts)


def as_markdown(space: str, names: list[str]) -> str:
    """Return what lets autodoc document these names."""
    rst = "\n".join(directive(space, name, public_names()[space][name]) for name in names)
    return f"```{{eval-rst}}\n{rst}```\n"


def directive(space: str, name: str, value: object) -> str:
    """Return what documents one name."""
    full = f"{space}.{name}"
    if isinstance(value, type):
        kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
        return f".. {kind}:: {full}\n   :members:\n"
    if isinstance(value, types.FunctionType):
        return f".. autofunction:: {full}\n"
    shown = ", ".join(map(str, value)) if isinstance(value, dict | tuple | list) else repr(value)
    about = textwrap.indent(to_rst(constant_comment(space, name), space), " " * 3)
    values = textwrap.fill(shown, 100, initial_indent=" " * 7, subsequent_indent=" " * 7)
    return f".. py:data:: {name}\n   :module: {space}\n\n{about}\n   ::\n\n{values}\n"


@functools.cache
def parsed(path: Path) -> tuple[str, list[ast.stmt]]:
    text = path.read_text(encoding="utf-8")
    return text, ast.parse(text).body


def constant_comment(space: str, name: str) -> str:
    """Return the text that follows a constant in the file that defines it, or the comment above it."""
    top = Path(sys.modules[space].__file__)
    for path in sorted(top.parent.rglob("*.py")) if top.name == "__init__.py" else [top]:
        text, body = parsed(path)
        for node, after in zip(body, [*body[1:], None], strict=True):
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            if name not in [getattr(target, "id", None) for target in targets]:
                continue
            if isinstance(after, ast.Expr) and isinstance(getattr(after.value, "value", None), str):
                return inspect.cleandoc(after.value.value)
            above = text.split("\n")[: node.lineno - 1]
            comments = []
            while above and above[-1].startswith("# "):
                comments.insert(0, above.pop()[2:])
            return "\n".join(comments)
    return ""


def to_rst(text: str, space: str) -> str:
    """Return a docstring as RST: indented lines are formulas, rows `name   meaning` are arguments, names are links."""
    parts, before = [], ""
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        lines = block.split("\n")
        if lines[0].startswith(" "):
            parts.append(("" if before == "formula" else "::\n\n") + textwrap.indent(block, "  "))
            before = "formula"
            continue
        before = ""
        if lines[0].startswith(">>>"):
            parts.append(block)
        elif ROW.fullmatch(lines[0]) and all(line.startswith(" ") or ROW.fullmatch(line) for line in lines):
            rows = re.sub(r"\n\s+", " ", block).split("\n")
            fields = [(name, row[2]) for row in map(ROW.fullmatch, rows) for name in row[1].split(", ")]
            parts.append("\n".join(f":param {escaped(name)}: {with_links(meaning, space)}" for name, meaning in fields))
        else:
            prose = [line for line in lines if not line.startswith("    ")]
            formula = lines[len(prose) :] if lines[: len(prose)] == prose else []
            parts.append(with_links("\n".join(prose if formula else lines), space))
            parts += ["::\n\n" + "\n".join(f"  {line}" for line in formula)] if formula else []
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    return re.sub(r"([*_|\\])", r"\\\1", text)


def with_links(text: str, space: str) -> str:
    """Return prose with its `names` as code, and as links where they are public."""
    pieces = re.split(r"`([^`]+)`", text)
    for index, piece in enumerate(pieces):
        if index % 2 == 0:
            pieces[index] = escaped(piece)
        elif full := full_name(piece, space):
            pieces[index] = f":py:obj:`{piece} <{full}>`"
        else:
            pieces[index] = f"``{piece}``"
    # RST wants a space or punctuation around what it marks.
    return re.sub(r"(?<=[`])(?=\w)", r"\\ ", "".join(pieces)) if "``" in text else "".join(pieces)


def full_name(name: str, space: str = "") -> str | None:
    """Return the full public name that a short one means, looked for in its own namespace first."""
    name = re.sub(r"^(gf|glassformer)\.|\(.*\)$", "", name)
    inner, _, last = name.rpartition(".")
    spaces = sorted(public_names(), key=lambda each: not (space + ".").startswith(each + "."))
    for each in spaces:
        if last in public_names()[each] and (not inner or each.endswith(f".{inner}")):
            return f"{each}.{last}"
        if inner in public_names()[each] and last in vars(public_names()[each][inner]) and not last.startswith("_"):
            return f"{each}.{inner}.{last}"
    return None


def process_docstring(app, what, name, obj, options, lines) -> None:
    """Let autodoc read docstrings that are plain text."""
    lines[:] = to_rst("\n".join(lines), name.rpartition(".")[0]).split("\n")


def process_signature(app, what, name, obj, options, signature, returns):
    """Write signatures with the annotations and the defaults of the source."""
    if dataclasses.is_dataclass(obj):
        fields = [field for field in dataclasses.fields(obj) if field.init]
        return f"({', '.join(map(field_signature, fields))})", None
    function = as_written(obj)
    if not isinstance(function, types.FunctionType) or what not in ("function", "method"):
        return None
    try:
        node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, SyntaxError):
        return None
    if what == "method" and node.args.args:
        del node.args.args[0]
    return f"({ast.unparse(node.args)})", ast.unparse(node.returns) if node.returns else None


def field_signature(field: dataclasses.Field) -> str:
    """Return a field as an argument; a default that is long or made by a function is left to the reader's fancy."""
    kind = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
    text = f"{field.name}: {kind}"
    if field.default_factory is not dataclasses.MISSING:
        return f"{text} = ..."
    if field.default is dataclasses.MISSING:
        return text
    default = repr(field.default)
    return f"{text} = {default if len(default) < 40 and '<' not in default else '...'}"


def skip_member(app, what, name, obj, skip, options):
    """Leave out what says nothing: the fields of named tuples."""
    return True if str(getattr(obj, "__doc__", "")).startswith("Alias for field number") else None


def resolve(app, env, node, contnode):
    """Lead the names of types to where they are documented."""
    target = node.get("reftarget", "")
    full = full_name(target.rpartition(".")[2]) if node.get("refdomain") == "py" and target else None
    domain = env.get_domain("py")
    if full is None or full not in domain.objects or not isinstance(node.get("reftype"), str):
        return None
    if node["reftype"] == "class" and domain.objects[full].objtype not in ("class", "exception"):
        return None
    found = domain.objects[full]
    from sphinx.util.nodes import make_refnode

    return make_refnode(app.builder, node["refdoc"], found.docname, found.node_id, contnode, full)


def expand(app, docname, source) -> None:
    """Put the names of a namespace where a page asks for them."""
    source[0] = LISTING.sub(lambda place: listing(place[1], place[2]), source[0])


def setup(app) -> dict[str, bool]:
    """Connect all of this to autodoc."""
    app.connect("source-read", expand)
    app.connect("autodoc-process-docstring", process_docstring)
    app.connect("autodoc-process-signature", process_signature)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
