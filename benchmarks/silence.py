"""How long each command of README and docs is silent on a terminal: the longest time between two outputs.

python benchmarks/silence.py                   every command, one after the other, in a new folder; trainings are short
python benchmarks/silence.py 'look smollm2'    the commands that contain one of these words
python benchmarks/silence.py --list            the commands only

A command counts from its start to its end, so slow imports count too. Beside the seconds of a gap stand the seconds of
a processor that the command took in it: beside other work, they say how long it would be on a quiet machine. The files
that the pages show are written first. Commands that fail are listed at the end: some are shown for their error. Exit
code 1 if a command is silent for more than LIMIT seconds.
"""

import argparse
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 2.0
STEPS, FEW_STEPS = 60, 6
"""A training whose command names no steps takes this many; that of a published writer a few."""
ROWS, COLUMNS = 40, 100
SERVES = 3.0
"""Seconds after which a command that serves a page gets its Ctrl-C."""
SHELLS = ("", "sh", "bash", "console", "shell")
SYNOPSIS = re.compile(r"\b[A-Z]{3,}\b|…|\[")
NEEDS_MORE = re.compile(r"--engine jax|--mesh data|srun|/shared|hf:|corpus\.")
"""Commands that need other devices, machines or a network."""
FILE = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)
"""A file that a page shows."""
TABLES = ("labels.csv", "new.csv", "test.csv")
"""Tables that pages name; here they are copies of reviews.csv, which make_files.py writes."""
BEFORE = {
    "runs/text": "glassformer train text --data notes.txt --steps 60 --set width=64 --out runs/text",
    "runs/majority": "glassformer train majority --out runs/majority",
    "runs/recorded": "glassformer train induction --record --out runs/recorded",
    "runs/induction": "glassformer train induction --record --out runs/induction",
    "runs/sort": "glassformer train sort --steps 20 --out runs/sort",
    "runs/names": "glassformer train lines --data notes.txt --steps 20 --out runs/names",
    "runs/pairs": "glassformer train pairs --data pairs.tsv --steps 20 --out runs/pairs",
    "runs/plain": "glassformer train majority --steps 60 --out runs/plain",
    "runs/cls": "glassformer train majority --steps 60 --set pooling=cls --out runs/cls",
    "runs/alibi": "glassformer train text --data notes.txt --steps 20 --set positions=alibi --out runs/alibi",
    "runs/classify": "glassformer train classify --data reviews.csv --steps 60 --out runs/classify",
}
"""What makes the runs that commands name."""


class Silence(NamedTuple):
    """What one command did: its exit code, how long it took, and the longest gap with what was printed before it.

    computing   seconds of a processor in the gap in which it took most of them
    """

    line: str
    code: int
    seconds: float
    gap: float
    computing: float
    after: str

    def __str__(self) -> str:
        figures = f"{self.gap:.2f}\t{self.computing:.2f}\t{self.seconds:.1f}\t{self.code}"
        return f"{figures}\t{self.line}\t{self.after}"


def commands() -> list[str]:
    """Return the commands in blocks of the README and the pages of docs, without what cannot be run here."""
    found: dict[str, None] = {}
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        parts = re.split(r"^```", page.read_text(encoding="utf-8"), flags=re.MULTILINE)  # prose and blocks in turns
        blocks = [block.partition("\n") for block in parts[1::2]]
        lines = [line for language, _, text in blocks if language in SHELLS for line in text.splitlines()]
        lines += [" ".join(words.split()) for words in re.findall(r"`(glassformer [^`]+)`", "".join(parts[::2]))]
        for line in lines:
            command = re.split(r"\s{2,}| #", line.removeprefix("$ "))[0].strip()
            if re.match(r"(echo .*\| )?glassformer \w", command) and not re.search(r"\|(?!\s*glass)", command):
                found[command] = None
    return [line for line in found if not SYNOPSIS.search(line) and not NEEDS_MORE.search(line)]


def write_files(folder: Path) -> None:
    """Write what commands read: a text, the files that pages show, and what two of them make."""
    shutil.copy(ROOT / "README.md", folder / "notes.txt")
    for page in sorted((ROOT / "docs").glob("*.md")):
        for name, content in FILE.findall(page.read_text(encoding="utf-8")):
            (folder / name).write_text(content, encoding="utf-8")
    for name in ("make_files.py", "make_big.py"):
        subprocess.run([sys.executable, name], cwd=folder, check=True)
    rows = (folder / "reviews.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    for name in TABLES:
        (folder / name).write_text("".join(rows[:-1]), encoding="utf-8")  # without the last one, which is empty


def shortened(line: str) -> str:
    """Return a command that trains for a few steps only, and needs no browser."""
    if " train " in line and "--steps" not in line:
        return f"{line} --steps {FEW_STEPS if 'smollm2' in line else STEPS}"
    return f"{line} --no-browser" if " explore" in line and "--no-browser" not in line else line


def measure(line: str, folder: Path) -> Silence:
    """Run a command on a terminal of its own and time its outputs."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    words = line.replace("glassformer ", f"{sys.executable} -m glassformer ")
    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT / "src")}
    environment.pop("COLUMNS", None)
    began = last = time.monotonic()
    gap, after, said = 0.0, "", ""
    spent = computing = 0.0
    process = subprocess.Popen(
        ["bash", "-c", words],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=folder,
        env=environment,
        start_new_session=True,
    )
    os.close(slave)
    while True:
        ready, _, _ = select.select([master], [], [], 0.2)
        now = time.monotonic()
        try:
            text = os.read(master, 65536).decode(errors="replace") if ready else None
        except OSError:  # the terminal has no writer any more
            text = ""
        if text is not None:
            used = processor_seconds(process.pid)
            computing, spent = max(computing, used - spent), max(used, spent)
            if now - last > gap:
                gap, after = now - last, said
            last, said = now, plain(text) or said
        if text == "" or (text is None and process.poll() is not None):
            break
        if " explore" in line and now - began > SERVES:
            os.killpg(process.pid, signal.SIGINT)
    code = process.wait()
    os.close(master)
    return Silence(line, code, time.monotonic() - began, gap, computing, after)


def processor_seconds(session: int) -> float:
    """Return the seconds of processors that all processes of a session have taken so far."""
    ticks = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(fields[3]) == session:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def plain(text: str) -> str:
    """Return the last line of an output, without what moves the cursor."""
    lines = [part.strip() for part in re.split(r"[\r\n]+", re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text)) if part.strip()]
    return lines[-1][:60] if lines else ""


def main() -> None:
    """Measure and print one line per command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only commands that contain one of these")
    parser.add_argument("--list", action="store_true", help="print the commands only")
    parser.add_argument("--folder", type=Path, help="run them here; a new folder otherwise")
    given = parser.parse_args()
    lines = [line for line in commands() if not given.words or any(word in line for word in given.words)]
    if given.list:
        print("\n".join(lines))
        return
    folder = given.folder or Path(tempfile.mkdtemp(prefix="silence-"))
    folder.mkdir(parents=True, exist_ok=True)
    write_files(folder)
    worst, failed = 0.0, []
    print("longest gap\tcomputing\tseconds\texit\tcommand\tafter", flush=True)
    for line in map(shortened, lines):
        for place, command in BEFORE.items():
            if place in line and not (folder / place).exists() and f"--out {place}" not in line:
                print(measure(command, folder), flush=True)
        one = measure(line, folder)
        worst = max(worst, one.gap)
        failed += [line] if one.code and " explore" not in line else []
        print(one, flush=True)
    print(f"{len(failed)} of {len(lines)} commands failed:", *failed, sep="\n")
    sys.exit(worst > LIMIT)


if __name__ == "__main__":
    main()
