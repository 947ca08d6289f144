"""Every page that runs, also as a notebook: its cells, and its sentences with the values of the last build."""

import ast
import json
import re
from pathlib import Path

GLUE = re.compile(r"\{glue:text\}`([^`:]+)(?::([^`]*))?`")
FENCE = re.compile(r"^```\{([\w-]+)\} ?(.*)\n((?::[\w-]+:.*\n)*)((?:.*\n)*?)```\n", flags=re.MULTILINE)


def make_notebook(text: str, values: dict[str, object], folder: Path) -> dict:
    """Return a page as a notebook: `values` stand in its sentences, and included source is read from `folder`."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    cells: list[dict] = []
    at, pieces, inside_solution = 0, [], False

    def write_prose() -> None:
        prose = to_plain_markdown("".join(pieces), values)
        pieces.clear()
        if prose:
            cells.append({"cell_type": "markdown", "metadata": {}, "source": prose})

    for fence in FENCE.finditer(text):
        pieces.append(text[at : fence.start()])
        at = fence.end()
        name, argument, options, body = fence.groups()
        if name == "code-cell":
            opened = "".join(pieces)
            if "details>" in opened:
                inside_solution = opened.rfind("<details") > opened.rfind("</details>")
            write_prose()
            hidden = inside_solution or "remove-" in options or "hide-" in options
            cells += code_cell(body, hidden=hidden)
        elif name == "literalinclude":
            pieces.append(f"```python\n{included_source(folder / argument, options)}\n```\n")
        else:
            pieces.append(f"{argument}\n\n{body}\n" if argument else f"{body}\n")
    pieces.append(text[at:])
    write_prose()
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def code_cell(code: str, *, hidden: bool) -> list[dict]:
    """Return the cell without what only gives values to sentences; nothing where nothing else is left of it."""
    lines, tree = code.rstrip("\n").split("\n"), ast.parse(code)
    found = [node for node in ast.walk(tree) if only_for_the_site(node)]
    for node in sorted(found, key=lambda node: node.lineno, reverse=True):
        kept = [] if node in tree.body else [" " * node.col_offset + "pass"]
        lines[node.lineno - 1 : node.end_lineno] = kept
    source = "\n".join(lines).strip("\n")
    metadata = {"jupyter": {"source_hidden": True}} if hidden else {}
    cell = {"cell_type": "code", "execution_count": None, "metadata": metadata, "outputs": [], "source": source}
    return [cell] if source.strip() else []


def only_for_the_site(node: ast.AST) -> bool:
    """Tell whether a statement gives values to sentences, or imports what does."""
    call = node.value if isinstance(node, ast.Expr) else None
    is_glue = isinstance(call, ast.Call) and getattr(call.func, "id", "") == "glue"
    return is_glue or (isinstance(node, ast.ImportFrom) and node.module == "myst_nb")


def to_plain_markdown(text: str, values: dict[str, object]) -> str:
    """Return prose that a notebook shows as the site does: values for roles, headings for what folds open."""
    # Sphinx itself warns of values that are missing.
    text = GLUE.sub(lambda role: format(values.get(role[1], role[1]), role[2] or ""), text)
    text = re.sub(r"<details[^>]*>\s*<summary>(.*?)</summary>", r"*\1:*", text).replace("</details>", "")
    text = re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)[^)]+\)", r"*\1*", text)
    text = re.sub(r"^:::.*\n", "", text, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n")


def included_source(path: Path, options: str) -> str:
    """Return the file, or its part that `:pyobject:` names."""
    text = path.resolve().read_text(encoding="utf-8")
    node: ast.AST = ast.parse(text)
    for name in re.findall(r"^:pyobject: (\S+)", options, flags=re.MULTILINE):
        for part in name.split("."):
            node = next(each for each in ast.iter_child_nodes(node) if getattr(each, "name", None) == part)
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        text = "\n".join(text.split("\n")[first - 1 : node.end_lineno])
    return text.rstrip("\n")


def value_of(text: str) -> object:
    """Return the value that is written like this, or the text where it is none of Python's own."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def write_notebook(app, pagename, templatename, context, doctree) -> None:
    """Write the notebook of a page that ran, where the theme's download button finds it."""
    if doctree is None or "kernelspec" not in app.env.metadata.get(pagename, {}):
        return
    source = Path(app.env.doc2path(pagename))
    if source.suffix != ".md":
        return
    glued = Path(app.outdir).parent / "jupyter_execute" / f"{pagename}.glue.json"
    outputs = json.loads(glued.read_text(encoding="utf-8")) if glued.exists() else {}
    values = {name: value_of(output["data"]["text/plain"]) for name, output in outputs.items()}
    target = Path(app.outdir) / "_sources" / f"{pagename}.ipynb"
    target.parent.mkdir(parents=True, exist_ok=True)
    made = make_notebook(source.read_text(encoding="utf-8"), values, source.parent)
    target.write_text(json.dumps(made, indent=1, ensure_ascii=False), encoding="utf-8")
    context["ipynb_source"] = f"{pagename}.ipynb"


def setup(app) -> dict[str, bool]:
    """Write a notebook beside every page that ran, before the theme makes its buttons."""
    app.connect("html-page-context", write_notebook, priority=500)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
