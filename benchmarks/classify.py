"""A classifier on frozen sentence embeddings, against scikit-learn's logistic regression on the same embeddings.

pip install scikit-learn && glassformer pull minilm
python benchmarks/classify.py

The texts are sentences of Python's own documentation strings, which every machine has, and the label of each is the
field of the module that it stands in. For each seed, 2,000 of them become a CSV that `glassformer train classify --from
minilm` reads, as a user would; it keeps about a tenth to validate and a tenth to test. scikit-learn gets the vectors of
`gf.load("minilm").embed` and the same training part, and once more the part to validate as well, which it does not need
otherwise. Both are measured on sentences that neither has seen: what is left of the documentation. So that every text
is read once, our head gets the same vectors there; some answers are compared with those of the whole model.
"""

import argparse
import csv
import importlib
import inspect
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import glassformer as gf

FIELDS = {
    "dates": "datetime calendar time zoneinfo _strptime sched",
    "numbers": "decimal fractions statistics math cmath random numbers",
    "mail and web": "email.message email.header email.policy email.utils email.headerregistry smtplib imaplib poplib "
    "http.client http.server http.cookiejar http.cookies urllib.request urllib.parse urllib.robotparser html.parser "
    "wsgiref.handlers wsgiref.util ftplib xmlrpc.client webbrowser mailbox socketserver ssl",
    "processes": "asyncio.base_events asyncio.events asyncio.tasks asyncio.streams asyncio.locks asyncio.queues "
    "asyncio.subprocess threading multiprocessing.pool multiprocessing.managers multiprocessing.connection subprocess "
    "concurrent.futures._base concurrent.futures.process concurrent.futures.thread queue signal selectors",
    "files": "pathlib os shutil tarfile zipfile tempfile glob fnmatch io gzip bz2 lzma stat fileinput filecmp mmap",
    "code": "ast inspect dis tokenize importlib.abc importlib.util importlib.machinery typing types compileall pkgutil "
    "symtable code codeop traceback linecache dataclasses enum abc functools pydoc trace",
    "testing": "unittest.case unittest.mock unittest.suite unittest.loader unittest.runner unittest.result doctest "
    "pdb bdb cProfile pstats timeit faulthandler tracemalloc warnings logging logging.handlers logging.config",
    "text": "argparse optparse configparser csv json.decoder json.encoder textwrap string re difflib gettext locale "
    "shlex cmd getopt pprint codecs plistlib xml.dom.minidom xml.etree.ElementTree xml.sax.handler xml.sax.xmlreader",
}
TRAINED, CHECKED, SEEDS = 2000, 64, (0, 1, 2)


def docstrings(module):
    """Return the documentation strings of a module, and of the classes, functions and methods that it defines."""
    yield inspect.getdoc(module)
    for _, owner in inspect.getmembers(module):
        if getattr(owner, "__module__", None) != module.__name__:
            continue
        yield inspect.getdoc(owner)
        if inspect.isclass(owner):
            for member in vars(owner).values():
                if callable(member) or isinstance(member, property | classmethod | staticmethod):
                    yield getattr(member, "__doc__", None)


def sentences(names):
    """Return the different sentences of some modules, of 4 to 40 words, without code."""
    found = {}
    for name in names.split():
        try:
            module = importlib.import_module(name)
        except ImportError:  # not on every system
            continue
        for text in docstrings(module):
            for part in re.split(r"(?<=[.!?])\s+(?=[A-Z])|\n\s*\n", text or ""):
                line = " ".join(part.split())
                words = line.split()
                if 4 <= len(words) <= 40 and re.fullmatch(r"[A-Z][\w ,;:'()\"./-]*[.!?]", line):
                    found.setdefault(line.lower(), line)
    return list(found.values())


def labeled():
    """Return (sentence, field) pairs; a sentence that stands in two fields is left out."""
    by_field = {field: sentences(names) for field, names in FIELDS.items()}
    counts = {}
    for texts in by_field.values():
        for text in texts:
            counts[text] = counts.get(text, 0) + 1
    return [(text, field) for field, texts in by_field.items() for text in texts if counts[text] == 1]


def trained(rows, seed, folder):
    """Train as the command does, and return the run, its report and its seconds from start to end."""
    path, run = folder / "labels.csv", folder / "run"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    command = [sys.executable, "-m", "glassformer", "train", "classify", "--data", str(path), "--from", "minilm"]
    begin = time.perf_counter()
    done = subprocess.run([*command, "--seed", str(seed), "--out", str(run), "--json"], check=True, capture_output=True)
    return run, json.loads(done.stdout), time.perf_counter() - begin


def split_of(run, rows):
    """Return the rows that the run trained on, and those that it validated with."""
    task, by_ids = gf.load(run).task, {}
    for text, label in rows:
        by_ids[task.encode_input(text).tokens.tobytes()] = text, label
    parts = []
    for part in (task.train, task.validation):
        batches = part.batches(1)
        parts.append([by_ids[np.asarray(batch.tokens, np.int64).tobytes()] for batch in batches])
    return parts


def accuracy(run, embeddings, tested):
    """Return how many of the texts the head of a run gets right; what the whole model says of some must be the same."""
    model = gf.load(run)
    head, width = model.params["classifier"], model.config.width
    vectors = np.stack([embeddings[text] for text, _ in tested]) * np.sqrt(width)  # as its norm leaves them
    ours = [model.labels[i] for i in np.argmax(vectors @ head["w"] + head["b"], axis=-1)]
    checked = model.classify([text for text, _ in tested[:CHECKED]])
    assert [one.label for one in checked] == ours[:CHECKED]
    return np.mean([one == label for one, (_, label) in zip(ours, tested, strict=True)])


def regression(embeddings, rows, tested):
    """Return the accuracy of scikit-learn's logistic regression, as it comes, and its seconds."""
    from sklearn.linear_model import LogisticRegression

    begin = time.perf_counter()
    model = LogisticRegression(max_iter=1000).fit([embeddings[text] for text, _ in rows], [label for _, label in rows])
    seconds = time.perf_counter() - begin
    return model.score([embeddings[text] for text, _ in tested], [label for _, label in tested]), seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    asked = parser.parse_args()
    everything = labeled()
    print(f"{len(everything):,} sentences;", {f: sum(label == f for _, label in everything) for f in FIELDS})
    base = gf.load("minilm")
    begin = time.perf_counter()
    embeddings = dict(zip([text for text, _ in everything], base.embed([text for text, _ in everything]), strict=True))
    print(f"embedded in {time.perf_counter() - begin:.0f} s")
    print("seed  classify  logistic regression  the same, more data   train s (with start)  regression s")
    for seed in asked.seeds:
        rows = random.Random(seed).sample(everything, len(everything))
        rows, tested = rows[:TRAINED], rows[TRAINED:]
        with tempfile.TemporaryDirectory() as folder:
            run, report, seconds = trained(rows, seed, Path(folder))
            train, validation = split_of(run, rows)
            ours = accuracy(run, embeddings, tested)
        (same, took), (more, _) = (
            regression(embeddings, train, tested),
            regression(embeddings, train + validation, tested),
        )
        print(
            f"{seed:4}  {ours:8.4f}  {same:19.4f}  {more:19.4f}   {report['seconds']:7.1f} ({seconds:.0f})  {took:.1f}"
        )


if __name__ == "__main__":
    main()
