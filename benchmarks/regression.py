"""Regressions from tables against NUTS, and tables larger than memory.

    .venv/bin/python benchmarks/regression.py [tables] [logistic] [hierarchical] [memory] [--small]

`tables`: families and group terms on real tables of scikit-learn and statsmodels: how far means and standard deviations
are from those of NumPyro's NUTS on the same model, which is written down a second time in
`peers/with_regression_nuts.py`. `logistic`: 1e6 rows x 50 columns from Parquet to an error of 0.05; NUTS's time for 400
effective draws is extrapolated from its gradients on fewer rows and the time of one gradient of all rows.
`hierarchical`: Poisson counts of 1,000 groups with varying intercept and slope: coverage of the effects that were
drawn, and agreement with NUTS on 1e4 rows. `memory`: 1e8 rows in a folder of Parquet files: time and the most memory.
NUTS and statsmodels are in an environment of their own under benchmarks/.peers, made on the first run.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import strang
from strang.regression.families import family_of
from strang.regression.formula import parse
from strang.regression.learning import learn
from strang.regression.tables import open_table

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE))

from peers import python_for  # noqa: E402

PACKAGES = ["jax==0.10.2", "numpyro", "scikit-learn", "statsmodels"]
MEAN_BAR, SD_BAR = 0.1, 0.05
TABLES = {  # table, formula, family
    "diabetes, normal": ("diabetes", "target ~ age + C(sex) + bmi + bp + s5", "normal"),
    "engel, student": ("engel", "foodexp ~ income", "student"),
    "cancer, bernoulli": (
        "cancer", "target ~ mean_texture + mean_smoothness + mean_symmetry + np.log(mean_area)", "bernoulli"
    ),
    "star98, binomial": (
        "star98", "NABOVE ~ LOWINC + PERASIAN + PERBLACK + PERHISP + bs(AVYRSEXP, df=4)", "binomial"
    ),
    "randhie, negative binomial": (
        "randhie", "mdvis ~ lncoins + idp + lpi + fmde + physlm + disea", "negative_binomial"
    ),
    "scotland, gamma": ("scotland", "YES ~ COUTAX + UNEMPF + MOR + ACT", "gamma"),
    "anes96, categorical": ("anes96", "party ~ age + educ + income", "categorical"),
    "fair, ordinal": ("fair", "rate_marriage ~ age + yrs_married + religious + educ", "ordinal"),
    "grunfeld, normal by firm": ("grunfeld", "invest ~ value + capital + (1 + value | firm)", "normal"),
    "randhie, poisson by coinsurance": ("randhie", "mdvis ~ disea + physlm + (1 | lncoins)", "poisson"),
    "fair, bernoulli by occupation": (
        "fair", "affair ~ age + religious + (1 + religious | occupation)", "bernoulli"
    ),
}  # fmt: skip
OPTIONS = {"star98, binomial": {"trials": "tested"}}


def peer(script: str, *arguments: object) -> str:
    """The output of a script in the environment of NUTS."""
    python = python_for("with_regression.py", PACKAGES)
    command = [python, str(HERE / "peers" / script), *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def exported(path: Path, data, formula: str, family: str, options: dict, priors: dict[str, str]) -> None:
    """The raw columns and priors of a regression, for NUTS."""
    table = open_table(data)
    encoding = learn(
        parse(formula), family_of(family), table, {"weights": None, "trials": None, "missing": "error", **options}
    )
    rows = [encoding.rows(frame) for frame in table.frames(encoding.columns)]
    arrays = {name: np.concatenate([part[name] for part in rows]) for name in rows[0]}
    arrays["x"] = arrays["x"] * encoding.scale + encoding.centre
    for k, group in enumerate(encoding.groups):
        z = arrays.get(f"z_{k}")
        arrays[f"z_{k}"] = np.ones((len(arrays["y"]), 1)) if z is None else z * group.scale
    split = {name: text[:-1].split("(") for name, text in priors.items()}
    groups = [{"name": g.name, "names": g.names, "levels": len(g.levels)} for g in encoding.groups]
    about = {
        "names": encoding.names,
        "family": encoding.family.name,
        "priors": {name: (kind, json.loads(f"[{numbers}]")) for name, (kind, numbers) in split.items()},
        "levels": [str(level) for level in encoding.levels],
        "positive": list(encoding.family.positive),
        "groups": groups,
    }
    np.savez(path, about=json.dumps(about), scale=encoding.scale, centre=encoding.centre, **arrays)


def compare(label: str, data, formula: str, family: str, options: dict, folder: Path, draws: int) -> bool:
    """Both on one table; whether they agree, or Strang says that it cannot be trusted."""
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = strang.glm(formula, data, family=family, error=0.02, progress=False, **options)
    seconds = time.perf_counter() - started
    priors = {
        name: f"{p.kind}({', '.join(repr(float(n)) for n in p.numbers)})" for name, p in ours.model.priors.items()
    }
    exported(folder / "nuts.npz", data, formula, family, options, priors)
    theirs = json.loads(peer("with_regression_nuts.py", folder / "nuts.npz", 1500, draws).splitlines()[-1])
    off, wide, noise, worst = 0.0, 0.0, 0.0, ""
    table = ours.summary().to_dict()
    for k, group in enumerate(ours.encoding.groups):
        effects = ours.effects()
        own = effects[effects["group"] == group.name].groupby("term", sort=False)
        for j, (_, part) in enumerate(own):
            for g, row in enumerate(part.itertuples()):
                table[f"effect {k}[{g * len(group.names) + j}]"] = {
                    "mean": row.mean,
                    "sd": row.sd,
                    "mc_error": row.mc_error,
                }
    for name, row in table.items():
        other = theirs["summary"][name]
        distance, ratio = abs(row["mean"] - other["mean"]) / other["sd"], abs(row["sd"] / other["sd"] - 1)
        noise = max(noise, float(np.hypot(row["mc_error"] / other["sd"], other["ess"] ** -0.5)))
        worst = name if distance > off else worst
        off, wide = max(off, distance), max(wide, ratio)
    agree = off <= MEAN_BAR + 2 * noise and wide <= SD_BAR + 2 * noise
    falsely = " FALSELY TRUSTED" if ours.trusted and not agree else ""
    print(
        f"{label}: {ours.rows:,} rows, {len(table)} numbers; means within {off:.3f} sd ({worst}), sds within "
        f"{100 * wide:.1f} % (noise of one number {noise:.3f}); trusted {ours.trusted}{falsely} "
        f"{ours.reasons[:1] or ''}; Strang {seconds:.0f} s, NUTS {theirs['seconds']:.0f} s, {theirs['diverging']} "
        "divergences",
        flush=True,
    )
    return agree or not ours.trusted


def tables(small: bool) -> None:
    """Families and group terms on real tables."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        peer("regression_tables.py", folder)
        for label, (name, formula, family) in list(TABLES.items())[: 3 if small else None]:
            options = OPTIONS.get(label, {})
            try:
                compare(label, folder / f"{name}.csv", formula, family, options, folder, 2500)
            except (subprocess.CalledProcessError, strang.InputError) as error:
                print(f"{label}: FAILED {error} {getattr(error, 'stderr', '')[-600:]}", flush=True)


def write_logistic(path: Path, rows: int, columns: int) -> None:
    rng = np.random.default_rng(1)
    factor = np.linalg.cholesky(0.5 * np.eye(columns) + 0.5)
    x = (rng.normal(size=(rows, columns)) @ factor.T).astype(np.float32)
    y = rng.random(rows) < 1 / (1 + np.exp(0.5 - x @ (0.2 * rng.normal(size=columns))))
    pd.DataFrame(x, columns=[f"x{k}" for k in range(columns)]).assign(y=y).to_parquet(path)


def logistic(small: bool) -> None:
    """A million rows to an error of 0.05, and what NUTS would take."""
    rows, columns, cut = 100_000 if small else 1_000_000, 50, 20_000
    formula = "y ~ " + " + ".join(f"x{k}" for k in range(columns))
    with tempfile.TemporaryDirectory() as place:
        path, folder = Path(place) / "t.parquet", Path(place)
        write_logistic(path, rows, columns)
        started = time.perf_counter()
        ours = strang.glm(formula, path, family="bernoulli", error=0.05, progress=False)
        seconds = time.perf_counter() - started
        worst = max(float(each.max()) for each in ours.run.estimates.farthest())
        print(
            f"logistic, {rows:,} rows x {columns}: {seconds:.1f} s from Parquet (table {ours.prepared:.1f} s), trusted "
            f"{ours.trusted}, largest error {worst:.3f} posterior sd",
            flush=True,
        )
        print("  " + "\n  ".join(str(ours.run.tuning).splitlines()[:3]))
        part = pd.read_parquet(path).head(cut)
        priors = {
            name: f"{p.kind}({', '.join(repr(float(n)) for n in p.numbers)})" for name, p in ours.model.priors.items()
        }
        exported(folder / "nuts.npz", part, formula, "bernoulli", {}, priors)
        theirs = json.loads(peer("with_regression_nuts.py", folder / "nuts.npz", 500, 250).splitlines()[-1])
        ess = min(each["ess"] for name, each in theirs["summary"].items() if name in ours.encoding.names)
        gradients = theirs["gradients"] * 400 / ess
        one = gradient_seconds(ours)
        tuning = theirs["tuning_gradients"] / 4
        print(
            f"  NUTS on {cut:,} rows: {theirs['gradients']:,} gradients for {ess:.0f} effective draws, after "
            f"{tuning:,.0f} of warm-up per chain; so {gradients:,.0f} for 400, at {one:.3f} s each for all rows. "
            "Extrapolated, in seconds and in times of ours:"
        )
        for what, count in {"without warm-up": 0, "one chain": 1, "four chains, which R-hat needs": 4}.items():
            took = (gradients + count * tuning) * one
            print(f"    {what}: {took:,.0f} s, {took / seconds:.0f} times", flush=True)


def gradient_seconds(ours) -> float:
    """Of one gradient of all rows, as one compiled function of arrays in memory."""
    import jax
    import jax.numpy as jnp

    rows = ours.run.job.inputs.data.rows

    @jax.jit
    def gradient(b, rows):
        return jax.grad(lambda b: jnp.sum(rows["y"] * (eta := rows["x"] @ b) - jax.nn.softplus(eta)))(b)

    b = jnp.zeros(rows["x"].shape[1])
    jax.block_until_ready(gradient(b, rows))
    started = time.perf_counter()
    for _ in range(10):
        jax.block_until_ready(gradient(b, rows))
    return (time.perf_counter() - started) / 10


def write_hierarchical(path: Path, rows: int, groups: int, columns: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Draws a table; returns the effects of its groups, and their own coefficients."""
    rng = np.random.default_rng(1)
    x, g = rng.normal(size=(rows, columns)).astype(np.float32), rng.integers(0, groups, rows)
    u = rng.normal(size=(groups, 2)) @ np.linalg.cholesky([[0.25, 0.06], [0.06, 0.09]]).T
    beta = 0.2 * rng.normal(size=columns)
    y = rng.poisson(np.exp(0.3 + x @ beta + u[g, 0] + u[g, 1] * x[:, 0]))
    pd.DataFrame(x, columns=[f"x{k}" for k in range(columns)]).assign(g=g, y=y).to_parquet(path)
    return u, u + np.array([0.3, beta[0]])


def hierarchical(small: bool) -> None:
    """Counts by groups: coverage of what was drawn, and agreement with NUTS on a cut."""
    rows, groups = (100_000, 100) if small else (1_000_000, 1_000)
    formula = "y ~ " + " + ".join(f"x{k}" for k in range(10)) + " + (1 + x0 | g)"
    with tempfile.TemporaryDirectory() as place:
        path, folder = Path(place) / "t.parquet", Path(place)
        u, own = write_hierarchical(path, rows, groups)
        started = time.perf_counter()
        ours = strang.glm(formula, path, family="poisson", error=0.05, progress=False)
        seconds = time.perf_counter() - started
        order = [ours.encoding.groups[0].levels.index(str(g)) for g in range(groups)]
        draws = {
            name: np.asarray(ours.run.samples[name], float)[ours.run.alive] for name in ("coefficient", "effect_0")
        }
        covered = {}
        for j, name in enumerate(("Intercept", "x0")):
            effect = draws["effect_0"][..., order, j].reshape(-1, groups)
            common = draws["coefficient"][..., ours.encoding.names.index(name)].reshape(-1, 1)
            for what, values, truth in (("effects of", effect, u[:, j]), ("levels' own", common + effect, own[:, j])):
                low, high = np.quantile(values, [0.05, 0.95], axis=0)
                covered[f"{what} {name}"] = f"{100 * np.mean((low <= truth) & (truth <= high)):.1f} %"
        print(
            f"hierarchical Poisson, {rows:,} rows, {groups:,} groups: {seconds:.0f} s, trusted {ours.trusted} "
            f"{ours.reasons[:1] or ''}; 90 % intervals hold {covered}",
            flush=True,
        )
        print("  " + "\n  ".join(str(ours.run.tuning).splitlines()[:3]))
        part = folder / "cut.parquet"
        pd.read_parquet(path).head(10_000 // (10 if small else 1)).to_parquet(part)
        compare("  the first 1e4 rows", part, formula, "poisson", {}, folder, 1000)


def memory(small: bool) -> None:
    """Rows in many files, each the same chunk, in a process of its own whose memory is measured."""
    files = 5 if small else 100
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "table"
        folder.mkdir()
        rng = np.random.default_rng(2)
        x = rng.normal(size=(1_000_000, 5)).astype(np.float32)
        y = rng.random(len(x)) < 1 / (1 + np.exp(0.3 - x @ np.array([0.5, -0.2, 0.1, 0.0, 0.3])))
        first = folder / "000.parquet"
        pd.DataFrame(x, columns=[f"x{k}" for k in range(5)]).assign(y=y).to_parquet(first, row_group_size=250_000)
        for k in range(1, files):
            os.link(first, folder / f"{k:03d}.parquet")
        code = (
            "import resource, strang, sys, time; started = time.perf_counter();"
            "fitted = strang.glm('y ~ x0 + x1 + x2 + x3 + x4', sys.argv[1], family='bernoulli', cache=sys.argv[2],"
            "error=0.05, progress=False);"
            "print(fitted); print(f'{fitted.rows:,} rows in {time.perf_counter() - started:.0f} s, at most',"
            "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 'GB')"
        )  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", code, folder, Path(place) / "cache"], capture_output=True, text=True
        )
        print("memory:", *(done.stdout or done.stderr).strip().splitlines()[-12:], sep="\n  ", flush=True)


PARTS = {"tables": tables, "logistic": logistic, "hierarchical": hierarchical, "memory": memory}


def main() -> None:
    small, names = "--small" in sys.argv, [name for name in sys.argv[1:] if not name.startswith("--")]
    for name in names or PARTS:
        PARTS[name](small)


if __name__ == "__main__":
    main()
