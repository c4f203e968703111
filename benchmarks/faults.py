"""Kill runs with SIGKILL at random moments until each has finished, and compare with runs that were left alone.

    python benchmarks/faults.py --kills 100                  Gaussian, neural network, belief network, topics in turn
    python benchmarks/faults.py --kills 8 --kinds bnn --seed 3
    python benchmarks/faults.py --kills 20 --processes 2     each run as two processes, by strang launch

A killed run goes on by the same command. At its end, what it prints (but times) and every array it saved must be the
same bit for bit. A kill counts as one `before` the first save, `in` a save (which what it left on the disk shows), or
`between` two. It ends with 1 if any run ended otherwise than it should.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

from strang.storage.series import read_series
from strang.storage.store import read_chain

STRANG = [sys.executable, "-c", "from strang.cli import main; main()"]
TIMES = ("seconds", "per_second")  # how the names of times end
PATIENCE = 300  # seconds that a run may take
PAUSE = 0.05  # about as long as there is between two saves


# What is run


def gaussian(scratch: Path) -> list[str]:
    return [*STRANG, "sample", "gaussian", "--step-size", "0.01", "--steps", "400000", "--chains", "20",
            "--batch-order", "full", "--data-size", "50", "--every", "2000", "--thin", "100", "--json"]  # fmt: skip


def bnn(scratch: Path) -> list[str]:
    return [sys.executable, __file__, "--sample-bnn"]


def sample_bnn(folder: Path) -> None:
    """A small neural network, kept with its draws."""
    import jax

    import strang

    strang.parallel.start()  # where it was launched as one of several
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(500, 20)).astype(np.float32), rng.integers(0, 3, 500)
    run = strang.sample(
        strang.models.BNN((20, 30, 3)),
        strang.data.arrays((x, labels), batch_size=25),
        strang.SGHMC(friction=5.0),
        step_size=5e-3,
        steps=3_000,
        average=None,
        thin=10,
        store=folder,
        every=30,
        progress=False,
    )
    total = float(sum(np.sum(leaf, dtype=float) for leaf in jax.tree.leaves(run.samples)))
    print(json.dumps({"temperature": run.temperature, "sum": total, "seconds": run.seconds}))


def sbn(scratch: Path) -> list[str]:
    path = scratch / "pictures.npz"
    made = np.random.default_rng(0).random((600, 36)) < np.linspace(0.1, 0.9, 36)
    np.savez(path, train=made[:500], test=made[500:])
    return [*STRANG, "sbn", "fit", "--data", str(path), "--hidden", "8", "--steps", "1500", "--every", "10",
            "--burn-in", "1300", "--batch-size", "20", "--sweeps", "2", "--validation", "20", "--json"]  # fmt: skip


def lda(scratch: Path) -> list[str]:
    from strang.lda.text.prepare import prepare

    counts = np.random.default_rng(0).poisson(0.4, (400, 100))
    rows, columns = np.nonzero(counts)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=400))])
    np.savez(scratch / "bags.npz", indptr=indptr, indices=columns, counts=counts[rows, columns])
    (scratch / "words.txt").write_text("".join(f"w{chr(97 + i // 26)}{chr(97 + i % 26)}\n" for i in range(100)))
    prepare(scratch / "bags.npz", scratch / "corpus", vocabulary=scratch / "words.txt", progress=False)
    return [*STRANG, "lda", "fit", str(scratch / "corpus"), "--topics", "5", "--passes", "60", "--batch-size", "20",
            "--samples", "60", "--test-documents", "40", "--sweeps", "4", "--json"]  # fmt: skip


KINDS = {"gaussian": gaussian, "bnn": bnn, "sbn": sbn, "lda": lda}


# Killing


def start(command: list[str], folder: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [*command, *([] if "--sample-bnn" in command else ["--store"]), str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def written(folder: Path) -> int:
    """Bytes of what was measured, a line a save: how far a run is."""
    try:
        return (folder / "series.jsonl").stat().st_size
    except FileNotFoundError:
        return 0


def kill_sometime(command: list[str], folder: Path, dice: random.Random, first: float, whole: int) -> str | None:
    """Kill the run at a random moment: one time in four in the seconds before its first save, else somewhere on its way
    to the end, however fast it is today. Gives what it printed if it came to its end before."""
    before, process, killed = written(folder), start(command, folder), False
    if dice.random() < 0.25:
        wait = dice.uniform(0, first)
    else:
        aim, wait = dice.uniform(before, whole), dice.uniform(0, PAUSE)
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and written(folder) <= aim and time.monotonic() < deadline:
            time.sleep(0.002)
    try:
        process.wait(wait)
    except subprocess.TimeoutExpired:
        kill(process, dice)
        killed = True
    printed = process.communicate()[0]
    if process.returncode and not killed:
        raise SystemExit(f"{' '.join(command)} in {folder} ended by itself with {process.returncode}")
    return None if process.returncode else printed


def kill(process: subprocess.Popen, dice: random.Random) -> None:
    """All its processes, as a failing machine would; or where there are several, half of the times one of them, whose
    death must end the others."""
    family = descent(process.pid)
    for pid in [dice.choice(family)] if len(family) > 1 and dice.random() < 0.5 else family:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE
    while set(parents()) & set(family) - {process.pid} or process.poll() is None:
        if time.monotonic() > deadline:
            raise SystemExit("some processes outlived the death of another")
        time.sleep(0.01)


def parents() -> dict[int, int]:
    """The parent of every living process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                found[int(path.parent.name)] = int(parent)
    return found


def descent(pid: int) -> list[int]:
    """The process, its children, theirs, ..."""
    known, found = parents(), [pid]
    for each in found:
        found += [child for child, parent in known.items() if parent == each]
    return found


def where(folder: Path) -> str:
    """What the kill came into the middle of, by what is left on the disk."""
    if not (folder / "chain.npz").exists():
        return "before"
    step = int(read_chain(folder / "chain.npz")[".step"])
    unfinished = list(folder.rglob(".*.*.[0-9]*")) or any(line["step"] > step for line in read_series(folder))
    ahead = any(int(path.stem.split("-")[1]) > step for path in folder.rglob("kept-*.npz"))
    return "in" if unfinished or ahead else "between"


# Comparing


def outcome(folder: Path, printed: str) -> dict:
    """What was printed but times, and the bytes of all that was saved but times."""
    told = json.loads(printed.replace(str(folder), "FOLDER"))
    told = {name: value for name, value in told.items() if not name.endswith(TIMES)}
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.np[yz]")}
    return {"told": told, "steps": [line["step"] for line in read_series(folder)], **files}


def left_alone(command: list[str], folder: Path) -> tuple[dict, float]:
    """The outcome of a run that nobody kills, and the seconds to its first save."""
    started, first = time.monotonic(), None
    process = start(command, folder)
    while process.poll() is None and first is None:
        time.sleep(0.01)
        first = time.monotonic() - started if written(folder) else None
    printed, _ = process.communicate(timeout=PATIENCE)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return outcome(folder, printed), first or 0.0


def torture(kind: str, kills: int, seed: int, prefix: list[str]) -> dict:
    """So many kills of runs of one kind; every run is brought to its end."""
    dice, hits, runs, equal = random.Random(f"{kind} {seed}"), Counter(), 0, 0
    with tempfile.TemporaryDirectory() as place:
        scratch = Path(place)
        command = [*prefix, *KINDS[kind](scratch)]
        left_alone(command, scratch / "compiled")  # so that the next one starts as fast as all that follow
        expected, first = left_alone(command, scratch / "whole")
        whole = written(scratch / "whole")
        while hits.total() < kills:
            folder, printed, runs = scratch / f"run{runs}", None, runs + 1
            folder.mkdir()
            while printed is None:
                if hits.total() == kills:
                    process = start(command, folder)
                    printed, _ = process.communicate(timeout=PATIENCE)
                    break
                printed = kill_sometime(command, folder, dice, first, whole)
                if printed is None:
                    hits[where(folder)] += 1
            found = outcome(folder, printed)
            equal += found == expected
            for name in expected if found != expected else ():
                if found.get(name) != expected[name]:
                    print(f"{kind}, seed {seed}, run {runs}: {name} differs", file=sys.stderr)
    return {"kind": kind, "kills": hits.total(), **{k: hits[k] for k in ("before", "in", "between")},
            "runs": runs, "equal": equal}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="of all kinds together")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--processes", type=int, default=1, help="run each by strang launch -n so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sample-bnn", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.sample_bnn:
        return sample_bnn(given.sample_bnn)
    prefix = [*STRANG, "launch", "-n", str(given.processes), "--"] if given.processes > 1 else []
    wrong = False
    with tempfile.TemporaryDirectory() as cache:
        os.environ |= {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        print(f"{'kind':10}{'kills':>7}{'before the first save':>24}{'in a save':>12}{'between saves':>16}"
              f"{'runs':>7}{'bitwise equal':>16}", flush=True)  # fmt: skip
        for number, kind in enumerate(given.kinds):
            share = (given.kills + number) // len(given.kinds)
            row = torture(kind, share, given.seed, prefix)
            print(f"{row['kind']:10}{row['kills']:>7}{row['before']:>24}{row['in']:>12}{row['between']:>16}"
                  f"{row['runs']:>7}{row['equal']:>16}", flush=True)  # fmt: skip
            wrong |= row["equal"] != row["runs"]
    sys.exit(wrong)


if __name__ == "__main__":
    main()
