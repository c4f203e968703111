"""The same work in Strang, BlackJAX and posteriors in one go:  .venv/bin/python benchmarks/peers.py [gaussian logistic]

Each peer has an environment of its own under benchmarks/.peers, made on the first run. Steps per second count all
chains; "times" is Strang's rate over the peer's. The variance error is that of the posterior variance, whose sign and
size are the bias of the method where the run is long enough (posteriors' runs are short: a Python loop).
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent / "peers"
ENVIRONMENTS = HERE.parent / ".peers"
PEERS = {  # script: packages of its environment (None: this one)
    "with_strang.py": None,
    "with_blackjax.py": ["blackjax==1.7.1"],
    "with_posteriors.py": ["torch==2.13.0", "posteriors==0.1.3"],
}


def python_for(script: str, packages: list[str] | None) -> str:
    """The interpreter that runs a peer, in an environment made for it if need be."""
    if packages is None:
        return sys.executable
    environment = ENVIRONMENTS / script.removeprefix("with_").removesuffix(".py")
    python = environment / "bin" / "python"
    ready = environment / ".ready"
    if not ready.exists():
        print(f"making {environment.relative_to(HERE.parent.parent)} ...", file=sys.stderr)
        shutil.rmtree(environment, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        for package in packages:  # one by one, so that a pinned dependency is there before what needs it
            install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package]
            subprocess.run(install, check=True)
        ready.touch()
    return str(python)


def main() -> None:
    problems = sys.argv[1:] or ["gaussian", "logistic"]
    for problem in problems:
        rows = []
        for script, packages in PEERS.items():
            try:
                python = python_for(script, packages)
                done = subprocess.run([python, HERE / script, problem], check=True, capture_output=True, text=True)
            except subprocess.CalledProcessError as error:
                print(f"{script}: failed\n{error.stderr}", file=sys.stderr)
                continue
            rows += [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        best = next(row["rate"] for row in rows if row["peer"] == "strang chen:ABOBA")
        print(f"\n{problem}: chain-steps per second, Strang's rate over it, relative error of the posterior variance")
        for row in rows:
            print(
                f"  {row['peer']:28}{row['rate']:>14,.0f}{best / row['rate']:>9.2f} times"
                f"{row['variance_error']:>+12.4f}{row['peak_mb']:>9.0f} MB"
            )


if __name__ == "__main__":
    main()
