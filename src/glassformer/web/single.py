"""The modules of the page as one script, and the page as one file that holds its data and needs no server.

    bundle()        all modules of the page joined into one script, each in a room of its own after those it imports
    styles()        all its styles
    ExportedAnswers answers and tiles by the keys under which the page looks for them
    one_file(kept)  the page, its styles, its script and what is kept; its policy names the two by their hashes

A key is the word of a question and the question as JSON with sorted names. The state of the file itself is written "@".
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "page"
LARGEST = 4_800_000
"""Bytes of a file, at most: with what a notebook writes around it, it stays below five million."""

IMPORT = re.compile(r'^import \{ ([\w$]+(?:, [\w$]+)*) \} from "\./([\w]+\.js)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async function|function|const|class) ([\w$]+))", re.MULTILINE)
SHARED = "style.css"
OWN_STATE = "@"


def imports_of(source: str) -> list[str]:
    """Return the modules that a module imports."""
    return [found[2] for found in IMPORT.finditer(source)]


def ordered(first: str = "main.js", folder: Path = PAGE) -> list[str]:
    """Return the modules of the page, each after those that it imports."""
    found: list[str] = []

    def visit(name: str) -> None:
        if name not in found:
            for other in imports_of((folder / name).read_text(encoding="utf-8")):
                visit(other)
            found.append(name)

    visit(first)
    return found


def bundle() -> str:
    """Return all modules of the page as one script: a browser would fetch some dozens of files one behind the other."""
    rooms = (_room(name, (PAGE / name).read_text(encoding="utf-8")) for name in ordered())
    return "\n".join(['"use strict";', *rooms])


def _room(name: str, source: str) -> str:
    """Return a module as a value with what it exports; names inside are its own."""
    exports = ", ".join(found[1] for found in EXPORT.finditer(source))
    body = IMPORT.sub(lambda found: f"const {{ {found[1]} }} = {_value(found[2])};\n", source)
    return f"// {name}\nconst {_value(name)} = (() => {{\n{EXPORT.sub('', body)}\nreturn {{ {exports} }};\n}})();\n"


def _value(module: str) -> str:
    return f"module_{module.removesuffix('.js')}"


def styles() -> str:
    """Return all styles of the page: what every view shares, then those of single views."""
    names = sorted((path.name for path in PAGE.glob("*.css")), key=lambda name: (name != SHARED, name))
    return "\n".join((PAGE / name).read_text(encoding="utf-8") for name in names)


# --- what is kept ----------------------------------------------------------------------------------------------------


def key_of(word: str, question: dict[str, Any], state: dict[str, Any]) -> str:
    """Return the key of a question of whole numbers and texts; kept.js makes the same."""
    asked = {**question, "state": OWN_STATE} if question.get("state") == state else question
    return f"{word} {json.dumps(asked, sort_keys=True, separators=(',', ':'), ensure_ascii=False)}"


class ExportedAnswers:
    """Answers and tiles by their keys; `told` is what the address of the page would say."""

    def __init__(self, told: dict[str, Any], state: dict[str, Any]) -> None:
        self.told, self.state = told, state
        self.answers: dict[str, Any] = {}
        self.tiles: dict[str, bytes] = {}
        self.refused: dict[str, tuple[str, str | None]] = {}  # facts and hints

    def packed(self) -> str:
        """Return all of it as text: the length of an index, the index as JSON, the tiles; deflated, in base64."""
        places: dict[str, tuple[int, int]] = {}
        end = 0
        for key, tile in self.tiles.items():
            places[key] = (end, len(tile))
            end += len(tile)
        index = {"told": self.told, "state": self.state, "answers": self.answers, "refused": self.refused,
                 "tiles": places}  # fmt: skip
        head = json.dumps(index, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        head += b" " * (-(len(head) + 4) % 8)
        whole = struct.pack("<I", len(head)) + head + b"".join(self.tiles.values())
        return base64.b64encode(zlib.compress(whole, 6)).decode()


def one_file(kept: ExportedAnswers) -> str:
    """Return the page with what is kept as one file."""
    style, script = styles(), bundle()
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    page = (PAGE / "index.html").read_text(encoding="utf-8")
    page = re.sub(r"<(link|script) [^\n]*\n", "", page)
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>\n</head>'
    tail = f'<script type="text/plain" id="kept">{kept.packed()}</script>\n<script>{script}</script>\n</body>'
    return page.replace("</head>", head).replace("</body>", tail)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
