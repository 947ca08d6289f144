"""Examine the checker of the labs with solutions and files that were not used to build it: `labs_exam*.toml`.

    python benchmarks/labs_exam.py                    # 100 wrong solutions: which are named rightly
    python benchmarks/labs_exam.py right              # five right ways for each lab: which are called wrong
    python benchmarks/labs_exam.py right --shapes 500 # and each on 500 random shapes, in float64 and float32
    python benchmarks/labs_exam.py hostile            # files that crash, hang or reach outside: which give no message

`--lab NAME` runs those of one lab only. `--exam benchmarks/labs_exam_2.toml` takes another exam; its right ways are its
wrong solutions, mended.
"""

import argparse
import ast
import hashlib
import importlib
import os
import signal
import statistics
import sys
import tempfile
import time
import tomllib
from collections import Counter
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from glassformer.core.errors import GlassformerError
from glassformer.labs import Verdict, check_file, get_lab
from glassformer.labs.answers import Finding

checker = importlib.import_module("glassformer.labs.check")  # its function has the same name
EXAM = Path(__file__).with_suffix(".toml")
SECONDS = 5.0
LONGEST = 60
PLACES = "/tmp", "/var/tmp", "/dev/shm", str(Path.home())


def cases(part: str, lab: str | None = None, exam: Path = EXAM) -> list[dict]:
    """Return what an exam holds of a part: wrong, right or hostile; right is wrong with its mistakes mended, too."""
    held = tomllib.loads(exam.read_text(encoding="utf-8"))
    found = held.get(part, [])
    if part == "right":
        mended = [case for case in held["wrong"] if "mend" in case]
        found = found + [case | {"code": case["code"].replace(*case["mend"])} for case in mended]
    return [case for case in found if lab in (None, case.get("lab"))]


def handed_in(lab: str, code: str) -> str:
    """Return a lab's file with a solution's functions in the place of ours."""
    tree = ast.parse(get_lab(lab).solution)
    written = {node.name for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)}
    kept = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name in written)]
    return ast.unparse(ast.Module(kept, [])) + "\n\n\n" + code


class HungError(BaseException):
    """A check took longer than it may; no code that runs in it should take this for an error of its own."""


def ring(*_: object) -> None:
    raise HungError


def checked(lab: str, code: str, seconds: float = 10.0) -> tuple[Verdict, float]:
    """Return the verdict on a solution, "hung" or "crashed" where there is none, and the processor seconds it took."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{lab}.py"
        path.write_text(handed_in(lab, code), encoding="utf-8")
        start = processor_seconds()
        signal.signal(signal.SIGALRM, ring)
        signal.alarm(LONGEST)
        try:
            verdict = check_file(path, seconds=seconds)
        except HungError:
            verdict = Verdict(lab, False, (Finding("hung", f"no answer within {LONGEST} s"),))
        except Exception as error:  # of the checker, not of the file: it must never raise one
            verdict = Verdict(lab, False, (Finding("crashed", f"{type(error).__name__}: {error}"),))
        finally:
            signal.alarm(0)
        return verdict, processor_seconds() - start


def processor_seconds() -> float:
    """Return what this process and the ended ones that it started have used of the processor."""
    return sum(os.times()[:4])


def examine_wrong(lab: str | None, exam: Path) -> int:
    named, misses, silent, seconds = 0, Counter(), 0, []
    found = cases("wrong", lab, exam)
    for number, case in enumerate(found, start=1):
        verdict, took = checked(case["lab"], case["code"])
        seconds.append(took)
        silent += verdict.ok
        if verdict.kind in case["kinds"]:
            named += 1
            continue
        words = verdict.findings[0].words if verdict.findings else ""
        misses[verdict.kind] += 1
        expected = " or ".join(case["kinds"])
        print(f"  {number:3} {case['lab']}: expected {expected}, said {verdict.kind}: {words}", flush=True)
    print(f"named rightly: {named} of {len(found)}; called right: {silent}; the others: {dict(misses.most_common())}")
    print_times(seconds)
    return misses.total()


def examine_right(lab: str | None, shapes: int, exam: Path) -> int:
    checker.RANDOM = shapes or checker.RANDOM
    seconds, alarms = [], 0
    found = cases("right", lab, exam)
    for number, case in enumerate(found, start=1):
        verdict, took = checked(case["lab"], case["code"], LONGEST if shapes else 10.0)
        seconds.append(took)
        if not verdict.ok:
            alarms += 1
            words = verdict.findings[0].words if verdict.findings else ""
            print(f"  {number:3} {case['lab']}: called {verdict.kind}: {words}\n{case['code']}", flush=True)
    print(f"false alarms: {alarms} of {len(found)}")
    print_times(seconds)
    return alarms


def print_times(seconds: list[float]) -> None:
    later = seconds[1:] or seconds
    slow, most = sum(one > 2 for one in later), sorted(later)[int(0.95 * (len(later) - 1))]
    print(
        f"a check takes {statistics.median(later):.2f} s of the processor (median), {most:.2f} s (95 %), "
        f"{max(later):.2f} s at most; {slow} above 2 s"
    )


def fingerprint(folder: Path) -> str:
    """Return a digest of all that a folder holds."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(f"{path} {path.is_file() and path.read_bytes()}".encode())
    return digest.hexdigest()


def hostile_bytes(case: dict, outside: Path) -> bytes:
    """Return a hostile file: OUTSIDE is a folder that it must not touch, and DEEP a hundred thousand brackets."""
    text = case["code"].replace("OUTSIDE", str(outside)).replace("DEEP", "(" * 100_000)
    if "\\u00" in text:
        return text.encode().decode("unicode_escape").encode("latin-1")
    return text.encode("latin-1" if "latin" in case["what"] else "utf-8")


def examine_hostile() -> int:
    """Run files that misbehave beside a folder that must stay as it is."""
    bad, said, seconds = 0, Counter(), []
    with tempfile.TemporaryDirectory() as name:
        outside = Path(name) / "outside"
        outside.mkdir()
        (outside / "kept.txt").write_text("kept", encoding="utf-8")
        (outside / "link").symlink_to(outside / "kept.txt")
        for case in cases("hostile"):
            path = Path(name) / "softmax_backward.py"
            path.write_bytes(hostile_bytes(case, outside))
            before = fingerprint(outside), {place: set(os.listdir(place)) for place in PLACES if os.path.isdir(place)}
            start = time.perf_counter()
            try:
                verdict = check_file(path, "softmax_backward", seconds=SECONDS)
                kind, words = verdict.kind, verdict.findings[0].words if verdict.findings else ""
            except GlassformerError as error:
                kind, words = "refused", str(error)
            took = time.perf_counter() - start
            after = fingerprint(outside), {place: set(os.listdir(place)) for place in before[1]}
            new = {place: found - before[1][place] for place, found in after[1].items()}
            escaped = after[0] != before[0] or any("escaped" in one for found in new.values() for one in found)
            is_bad = escaped or took > 3 * SECONDS + 2 or (kind == "right" and not case["what"].startswith("harmless"))
            bad += is_bad
            said[kind] += 1
            seconds.append(took)
            line = f"{'BAD ' if is_bad else ''}{'ESCAPED ' if escaped else ''}{kind} ({took:.1f} s): {words[:110]!r}"
            print(f"  {case['what']:44} {line}", flush=True)
    print(f"{len(seconds)} files, {bad} bad; longest {max(seconds):.1f} s; said: {dict(said.most_common())}")
    return bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", default="wrong", choices=("wrong", "right", "hostile"))
    parser.add_argument("--lab", help="those of one lab")
    parser.add_argument("--exam", type=Path, default=EXAM, help="another exam than benchmarks/labs_exam.toml")
    parser.add_argument("--shapes", type=int, default=0, help="how many random shapes, where not 16")
    args = parser.parse_args()
    if args.part == "wrong":
        failed = examine_wrong(args.lab, args.exam)
    elif args.part == "right":
        failed = examine_right(args.lab, args.shapes, args.exam)
    else:
        failed = examine_hostile()
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
