"""Topics of one corpus by Strang, gensim, scikit-learn and tomotopy, judged alike.

    .venv/bin/python benchmarks/lda.py CORPUS [--topics 50 200] [--seconds 60] [--passes P] [--out DIR]

CORPUS is a folder that `strang lda prepare` made. The last 1,000 documents are held out; of these half the tokens are
seen and half scored. All get alpha = 0.1 and beta = 0.01, the documents in memory, and so many CPU seconds of training
(or passes, if these are over first); perplexity is document completion by `strang.lda.completion` for every one.
Strang runs with the defaults of `strang lda fit`. `last` is one set of topics, `averaged` the mean of predictive
probabilities over up to 20 sets of the latter half so far, which the others do not offer. Strang's compilation is not
in its time, but printed beside it; nor are the others' imports and conversions. The other libraries have an environment
of their own under benchmarks/.peers.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

from peers import HERE, python_for
from strang.lda import fitting as learning
from strang.lda import open_corpus
from strang.lda.completion import add_sample, begin, perplexity, score_topics, split
from strang.lda.settings import completed
from strang.run.driver import run_blocks

ALPHA, HELD_OUT = 0.1, 1000
LOOKS, AVERAGED = 16, 20  # times at which topics are scored, and sets of topics in an average
KEPT = 128  # sets of topics in memory
PACKAGES = ["gensim==4.4.0", "scikit-learn==1.9.1", "tomotopy==0.14.0"]


def with_strang(train, topics: int, seconds: float, passes: float | None):
    """(CPU seconds, passes, topics) as training goes on, and what compilation took."""
    settings = completed({**learning.DEFAULTS, "topics": topics, "passes": passes or 1e4}, train)
    begun = time.process_time()
    job = learning.job_of(settings, train)
    every = max(1, train.documents // settings["batch"] // 4)
    blocks = run_blocks(job, every)
    chain, _ = next(blocks)
    compiling, a_step = time.process_time() - begun, job.inputs.data.batch_size / train.documents
    started = time.process_time()
    first = int(chain.step)
    spent, found = 0.0, []
    for chain, _ in blocks:
        spent += time.process_time() - started
        own = spent * int(chain.step) / (int(chain.step) - first)  # the first block compiled as well
        phi = np.asarray(job.program.model.topics_of(chain.state.position[0]), np.float32)
        over = own >= seconds or int(chain.step) == job.steps
        if over or int(chain.step) % every == 0:
            found.append((own, int(chain.step) * a_step, phi))
        if over:
            break
        if len(found) == KEPT:  # every second one, and memory is bounded
            every *= 2
            found = [entry for entry in found if round(entry[1] / a_step) % every == 0]
        started = time.process_time()
    return found, compiling


def with_peer(library: str, bags: Path, topics: int, seconds: float, passes: float | None):
    """The same of another library, from the files it leaves."""
    python = python_for("with_topics.py", PACKAGES)
    with tempfile.TemporaryDirectory() as folder:
        command = [python, HERE / "topics.py", library, bags, folder, "--topics", str(topics)]
        command += ["--seconds", str(seconds), *(["--passes", str(max(1, int(passes)))] if passes else [])]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        subprocess.run(command, check=True, env=environment, stdout=sys.stderr)
        found = []
        for path in Path(folder).glob("phi-*.npy"):
            _, cpu, done = path.stem.split("-")
            found.append((float(cpu), float(done), np.load(path).T))
    return sorted(found, key=lambda entry: entry[0])


def curve(test, found: list, averaging: bool) -> list[dict]:
    """Perplexities at some times, dense at the beginning. The average is over some sets of the latter half until then,
    evenly spaced."""
    rows = []
    for i in np.unique(np.geomspace(1, len(found), LOOKS).round().astype(int)) - 1:
        cpu, passes, phi = found[i]
        row = {"cpu": cpu, "passes": passes, "last": score_topics(test, phi, alpha=ALPHA)}
        if averaging and i:
            score = begin(test)
            for number in np.unique(np.linspace((i + 1) // 2, i, AVERAGED).round().astype(int)):
                score = add_sample(test, score, found[number][2], alpha=ALPHA, key=number)
            row["averaged"] = perplexity(test, score)
        rows.append(row)
    return rows


def at(rows: list[dict], cpu: float, name: str) -> float | None:
    """What a curve has come to after so many CPU seconds."""
    before = [row.get(name) or row["last"] for row in rows if row["cpu"] <= cpu]
    return before[-1] if before else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--topics", type=int, nargs="+", default=[50, 200])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--passes", type=float)
    parser.add_argument("--libraries", nargs="*", default=["gensim", "scikit-learn", "tomotopy"])
    parser.add_argument("--out", type=Path, help="A file for all numbers, as JSON.")
    given = parser.parse_args()
    train, held_out = open_corpus(given.corpus).split(HELD_OUT)
    test = split(held_out.gather(np.arange(held_out.documents)), seed=0)
    results: dict = {}
    with tempfile.TemporaryDirectory() as folder:
        bags = Path(folder) / "bags.npz"
        indptr, indices, counts = train.gather(np.arange(train.documents))
        np.savez(bags, indptr=indptr, indices=indices, counts=counts, words=len(train.words))
        for topics in given.topics:
            here = results[topics] = {}
            found, compiling = with_strang(train, topics, given.seconds, given.passes)
            here["strang"] = curve(test, found, averaging=True)
            jax.clear_caches()
            for library in given.libraries:
                peer = with_peer(library, bags, topics, given.seconds, given.passes)
                here[library] = curve(test, peer, averaging=False)
            show(topics, here, compiling)
    if given.out:
        given.out.write_text(json.dumps(results, indent=1))


def show(topics: int, curves: dict[str, list[dict]], compiling: float) -> None:
    print(f"\nK = {topics}: perplexity of held-out words; Strang's compilation took {compiling:.1f} CPU s besides")
    print("  library       CPU s  passes     last  averaged  |  Strang at that time: last, averaged")
    for library, rows in curves.items():
        for row in rows:
            beside = ""
            if library != "strang":
                ours = [at(curves["strang"], row["cpu"], name) for name in ("last", "averaged")]
                beside = "  |  " + ", ".join("-" if value is None else f"{value:.0f}" for value in ours)
            averaged = f"{row['averaged']:10.1f}" if "averaged" in row else " " * 10
            print(f"  {library:12}{row['cpu']:7.1f}{row['passes']:8.2f}{row['last']:9.1f}{averaged}{beside}")
    best = {name: min(row.get("averaged", row["last"]) for row in rows) for name, rows in curves.items()}
    print("  best: " + ", ".join(f"{name} {value:.1f}" for name, value in best.items()), flush=True)


if __name__ == "__main__":
    main()
