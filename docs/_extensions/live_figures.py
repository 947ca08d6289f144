"""Live figures beside their page: a file each, loaded when the reader comes near."""

import re
from html import unescape
from pathlib import Path

FRAME = re.compile(r'<iframe ([^>]*?)\bsrcdoc="([^"]*)"([^>]*)>')


def move_out(app, pagename, templatename, context, doctree) -> None:
    """Write the pages that frames hold as files, so that a chapter opens before its figures are there."""
    folder = Path(app.outdir) / Path(pagename).parent
    name = Path(pagename).name

    def frame(match: re.Match) -> str:
        nonlocal count
        count += 1
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}-live-{count}.html").write_text(unescape(match[2]), encoding="utf-8")
        return f'<iframe {match[1]} class="live" loading="lazy" src="{name}-live-{count}.html"{match[3]}>'

    count = 0
    context["body"] = FRAME.sub(frame, context.get("body", ""))


def setup(app) -> dict[str, bool]:
    """Move them out when a page is written."""
    app.connect("html-page-context", move_out)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
