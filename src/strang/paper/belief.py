"""Table 1, lower half: sigmoid belief networks on MNIST, and which of the paper's settings each method survives.

Paper: test negative log likelihoods of 103, 105 and 126 (J = 100), 98, 100 and 110 (J = 200), SGLD on the same grid of
step sizes. We: SGLD on a grid of its own as well, because its limit 2/λ lies far below the paper's smallest step.
"""

from functools import cache
from itertools import product
from typing import Any

import numpy as np

from strang.data import images
from strang.paper.figure import CANNOT_TELL, SIMULATED, Effort, Figure, Part, Verdict
from strang.paper.verdicts import Case, decide, listed, otherwise, partly, reproduced
from strang.report.panels import Table
from strang.run.driver import run_blocks
from strang.run.result import temperatures
from strang.sbn import Score, log_likelihood, paired
from strang.sbn.fitting import DEFAULTS, FRICTIONS, STEP_SIZES, completed, job_of, parameters, split, survey
from strang.sbn.scoring import log_mean_exp
from strang.util.errors import InputError, need
from strang.util.numbers import finite

METHODS: dict[str, dict[str, Any]] = {
    "SGHMC-S": {"dynamics": "sghmc", "integrator": "chen:ABOBA"},
    "SGHMC-E, new momentum": {"dynamics": "sghmc", "integrator": "euler-new"},
    "SGHMC-E, old momentum": {"dynamics": "sghmc", "integrator": "euler-old"},
    "SGLD": {"dynamics": "sgld"},  # with its default, the best of its own grid: three times that ends 5 nats worse
    "SGNHT": {"dynamics": "sgnht"},
}
EULERS = ("SGHMC-E, new momentum", "SGHMC-E, old momentum")
BEST = "SGHMC-S, 10 sweeps, falling steps"  # the variant that helped most of all we tried
FITTED = METHODS | {BEST: {**METHODS["SGHMC-S"], "sweeps": 10, "final_fraction": 0.1}}
SGLD_STEP_SIZES = [1e-7, 3e-7, 1e-6, 3e-6, 1e-5, 3e-5]
PAPER = {100: (103, 105, 126), 200: (98, 100, 110)}  # SGHMC-S, SGHMC-E, SGLD-E
SAMPLES = 5  # of one chain in a predictive: only of SGHMC-S and the first seed, as each anneals all test images
DIVERGED = dict.fromkeys(("last", "change", "predictive", "temperature")) | {"diverged": True}  # such a fit's result
HOT = 1.5  # times the temperature of the coolest of SGHMC's integrators, above which one runs hot
MIN_GAP = 23 / 2  # nats, half of the paper's: from here SGLD is behind as the paper has it


def plan_of(effort: Effort) -> dict[str, Any]:
    """How much is computed: the paper's whole grid, iterations and images if full, a small fraction otherwise."""
    if effort.name == "full":
        grid = {"step_sizes": STEP_SIZES, "scales": FRICTIONS, "own": SGLD_STEP_SIZES, "tried": 500}
        return {**grid, "hidden": (100, 200), "steps": 5000, "seeds": (0, 1, 2), "count": 10_000, "levels": 1000}
    steps = effort.steps // 400
    grid = {"step_sizes": STEP_SIZES[::3], "scales": FRICTIONS[::2], "own": SGLD_STEP_SIZES[-3:], "tried": steps}
    return {**grid, "hidden": (100,), "steps": steps, "seeds": (0,), "count": 2 * effort.runs, "levels": 100}


def parts(effort: Effort) -> list[Part]:
    """Surveys of the grids, then fits; none if Numba or MNIST is not there."""
    if unavailable():
        return []
    plan = plan_of(effort)
    sizes, frictions = zip(*((h, c / h**0.5) for h, c in product(plan["step_sizes"], plan["scales"])), strict=True)
    grids: dict[str, Any] = dict.fromkeys(METHODS, ("the paper's grid", list(sizes), list(frictions)))
    grids["SGLD"] = ("the paper's step sizes", list(plan["step_sizes"]), None)
    work = []
    for method, (where, h, friction) in [*grids.items(), ("SGLD", ("step sizes of its own", plan["own"], None))]:
        settings = {"method": method, "sizes": h, "frictions": friction, "steps": plan["tried"]}
        work.append(Part(f"{method} on {where}", try_grid, settings))
    for hidden, seed, method in product(plan["hidden"], plan["seeds"], FITTED):
        settings = {"method": method, "hidden": hidden, "seed": seed}
        settings |= {name: plan[name] for name in ("steps", "count", "levels")}
        settings["samples"] = SAMPLES if seed == 0 and method == "SGHMC-S" else 1
        work.append(Part(f"{method}, J = {hidden}, seed {seed}", learn_and_score, settings))
    return work


@cache
def unavailable() -> str | None:
    """Why there is nothing to compute: Numba is not installed, or MNIST can be neither read nor fetched; else None."""
    try:
        need("numba", "numba")
        images.load()
    except (InputError, OSError) as error:
        return str(error)
    return None


def try_grid(*, method: str, sizes: list[float], frictions: list[float] | None, steps: int) -> list[dict[str, Any]]:
    """Every point of a grid for a few steps, with J = 100, beside the score of independent pixels."""
    rows = survey(sizes, frictions, **{**METHODS[method], "step_size": None}, steps=steps, progress=False)
    baseline = independent_pixels(*split(images.load().train, DEFAULTS["validation"]))
    return [{**row, "independent": baseline} for row in rows]


def independent_pixels(train, held_out) -> float:
    """The negative log likelihood of images whose pixels are independent, each as often on as in training."""
    frequency = np.clip(np.mean(train, 0, dtype=float), 1e-4, 1 - 1e-4)
    return float(-np.where(held_out, np.log(frequency), np.log1p(-frequency)).sum(1).mean())


def learn_and_score(
    *, method: str, hidden: int, seed: int, steps: int, count: int, levels: int, samples: int
) -> dict[str, Any]:
    """Fits a network and scores it on `count` test images with `levels` annealing temperatures: the last sample, and
    the predictive of `samples` evenly spaced samples of the second half, whose mean temperature is returned too."""
    loaded = images.load()
    settings = completed({**DEFAULTS, **FITTED[method], "hidden": hidden, "seed": seed, "steps": steps})
    job = job_of(settings, split(loaded.train, settings["validation"])[0])
    every = max(1, steps // 2 // samples)
    scores, heat = [], []
    for chain, _ in run_blocks(job, every):
        step = int(chain.step)
        if not chain.alive[0]:
            return dict(DIVERGED)
        if step > steps // 2 and (steps - step) % every == 0:
            test, own = loaded.test[:count], 10_000 * seed + step
            scores.append(log_likelihood(parameters(chain, 0), test, temperatures=levels, seed=own, progress=False))
            heat.append(float(temperatures(job, chain)[0]))
    if not np.isfinite(scores).all():  # beyond what can be scored
        return dict(DIVERGED)
    few = test[: change_images(count)]
    finer = log_likelihood(parameters(chain, 0), few, temperatures=4 * levels, seed=own, progress=False)
    return {
        "diverged": False,
        "last": np.round(-scores[-1], 3).tolist(),
        "change": np.round(scores[-1][: len(few)] - finer, 3).tolist(),
        "predictive": np.round(-log_mean_exp(scores, axis=0), 3).tolist(),
        "temperature": finite(float(np.mean(heat))),
    }


def change_images(count: int) -> int:
    """On how many of the test images the last sample is also scored with four times the temperatures."""
    return max(1, min(500, count // 10))


def figure(effort: Effort, results: list[Any]) -> Figure:
    tables, verdicts = [paper_table("J", PAPER)], list[Verdict]()
    if results:
        plan, grids = plan_of(effort), len(METHODS) + 1
        surveys = dict(zip([*METHODS, "SGLD, its own grid"], results[:grids], strict=True))
        fits: dict[tuple[int, str], list[dict[str, Any]]] = {}
        keys = product(plan["hidden"], plan["seeds"], FITTED)
        for (hidden, _, method), result in zip(keys, results[grids:], strict=True):
            fits.setdefault((hidden, method), []).append(result)
        tables += [likelihoods(plan, fits), explosion_map(surveys)]
        verdicts += [splitting_ahead(hidden, plan["steps"], fits) for hidden in plan["hidden"]]
        verdicts += [explosions(tables[-1].rows), langevin(surveys, fits)]
    return Figure(
        "belief",
        "Table 1, lower half: sigmoid belief networks on MNIST",
        "The splitting (SGHMC-S) is ahead of Euler (SGHMC-E), and both are far ahead of SGLD.",
        "Look at the temperature of each method (should be 1), at which settings each survives, and at SGLD on a grid "
        "of its own." + ("" if results else f" All of it is left out: {unavailable()}"),
        {"data": "MNIST, one Bernoulli draw per pixel", "minibatches": "200, iid", "prior": "N(0, 1)"},
        tables=tables,
        verdicts=verdicts,
    )


def paper_table(size: str, numbers: dict[int, tuple[int, int, int]]) -> Table:
    rows = [[number, *scores] for number, scores in numbers.items()]
    return Table("The paper's numbers", [size, "SGHMC-S", "SGHMC-E", "SGLD-E"], rows)


def score(fits: list[dict[str, Any]], which: str = "last", mixture: bool = False) -> Score | None:
    """The score of each image: its mean over the fits, or of the mixture of their predictions; None if one diverged."""
    if any(fit["diverged"] for fit in fits):
        return None
    each = np.array([fit[which] for fit in fits])
    return Score(-log_mean_exp(-each, axis=0) if mixture else each.mean(0))


def annealing_change(fits: list[dict[str, Any]], than: list[dict[str, Any]]) -> float:
    """The change of the difference of two methods' scores with four times the temperatures."""
    return float(np.mean([fit["change"] for fit in fits]) - np.mean([fit["change"] for fit in than]))


def format_score(score: Score | None) -> str:
    return "diverged" if score is None else f"{score.nll:.2f} ± {score.se:.2f}"


def likelihoods(plan: dict[str, Any], fits) -> Table:
    rows = []
    for (hidden, method), results in fits.items():
        last, splitting, difference, predictive = score(results), score(fits[hidden, "SGHMC-S"]), "-", "-"
        if method == "SGHMC-S":
            predictive = format_score(score(results[:1], "predictive"))
        elif last is not None and splitting is not None:
            difference = "{:+.2f} ± {:.2f} (4T: {:+.2f})".format(
                *paired(last, splitting), annealing_change(results, fits[hidden, "SGHMC-S"])
            )
        seeds = ", ".join(f"{np.mean(fit['last']):.2f}" for fit in results if not fit["diverged"])
        heat = [fit["temperature"] for fit in results if fit["temperature"] is not None]
        cells = [format_score(last), difference, predictive, format_score(score(results, mixture=True)), seeds]
        rows.append([hidden, method, *cells, float(np.mean(heat)) if heat else None])
    title = (
        f"Test negative log likelihood, {plan['steps']:,} iterations, the first {plan['count']:,} test images, AIS "
        f"with {plan['levels']:,} temperatures (above the truth on average), binarisation bernoulli:0, mean of "
        f"{len(plan['seeds'])} seed(s). ± is the standard error over images; the difference to SGHMC-S is taken image "
        f"by image, and in brackets is its change with {4 * plan['levels']:,} temperatures on the first "
        f"{change_images(plan['count'])} images: about what AIS errs by, which ± leaves out"
    )
    predictives = [f"predictive of {SAMPLES} samples, one seed", "predictive of all seeds' last samples"]
    columns = ["J", "method", "last sample", "minus SGHMC-S", *predictives, "last sample, by seed", "temperature"]
    return Table(title, columns, rows)


def explosion_map(surveys: dict[str, list[dict[str, Any]]]) -> Table:
    """Which settings each method survives, and how hot it runs there."""
    rows: list[list[Any]] = []
    grids = [surveys[method] for method in ("SGHMC-S", *EULERS)]
    coolest = [
        min((row["temperature"] for row in same if row["temperature"] is not None), default=None)
        for same in zip(*grids, strict=True)
    ]
    for method, points in surveys.items():
        references = coolest if len(points) == len(coolest) else [None] * len(points)  # same grid, or no friction
        for row, reference in zip(points, references, strict=True):
            scale = None if row["friction"] is None else round(row["friction"] * row["step_size"] ** 0.5, 3)
            rows.append([method, row["step_size"], scale, row["nll"], row["temperature"], fate(row, reference)])
    columns = ["method", "h", "D √h", "NLL of held-out images (rough)", "temperature", ""]
    title = "Explosion map, J = 100: the paper's grid and SGLD's own, after a few hundred iterations"
    return Table(title, columns, rows)


def fate(row: dict[str, Any], reference: float | None) -> str:
    """What became of a chain, given the least temperature of SGHMC's integrators at the same point."""
    if row["diverged"]:
        return "explodes"
    if row["nll"] is None:
        return "lost: log odds beyond what can be scored"
    if row["nll"] > row["independent"]:
        return "lost: worse than independent pixels"
    if reference is not None and row["temperature"] is not None and row["temperature"] > HOT * reference:
        return f"hot: {row['temperature'] / reference:.1f} times the coolest of SGHMC's integrators"
    return "survives"


def splitting_ahead(hidden: int, steps: int, fits) -> Verdict:
    """Whether the splitting is ahead of Euler, with either momentum."""
    scores = {method: score(fits[hidden, method]) for method in METHODS}
    leads = {euler: lead(fits[hidden, euler], fits[hidden, "SGHMC-S"]) for euler in EULERS}
    behind = [euler for euler, (nats, error) in leads.items() if nats > 2 * error]
    ahead = [euler for euler, (nats, error) in leads.items() if nats < -2 * error]
    claimed = PAPER[hidden][1] - PAPER[hidden][0]
    unresolved = [euler for euler, (_, error) in leads.items() if 2 * error > claimed]
    made = "; ".join(f"{euler} is behind by {nats:.2f} ± {error:.2f} nats" for euler, (nats, error) in leads.items())
    made += (
        f", in the paper by {claimed}. The new momentum equals the splitting up to terms of order h; the old one adds "
    )
    made += "energy at each step. Standard errors are over images, and over seeds where there are several."
    made += "" if steps >= 5000 else " These runs are short: --full makes the paper's 5000 iterations."
    level = f"{listed(ahead)} ahead" if ahead else "level within two standard errors"
    return decide(
        f"Belief network, J = {hidden}: SGHMC-S ({PAPER[hidden][0]}) is ahead of SGHMC-E ({PAPER[hidden][1]})",
        "Table 1",
        {method: None if each is None else round(each.nll, 3) for method, each in scores.items()},
        reproduced(len(behind) == len(EULERS), "both momenta: behind by more than two standard errors", made),
        partly(behind, f"{listed(behind)}: behind by more than two standard errors", made),
        Case(unresolved and not ahead, CANNOT_TELL, f"two standard errors are more than {claimed} nats", made),
        otherwise(level, made),
        basis=SIMULATED,
    )


def lead(fits: list[dict[str, Any]], than: list[dict[str, Any]]) -> tuple[float, float]:
    """By how many nats fits are worse than others, infinite if they diverged, with its standard error: over images and,
    if there are several seeds, over seeds, and half of what AIS may err by."""
    first, second = score(fits), score(than)
    if first is None or second is None:
        return np.inf if second is not None else -np.inf, 0.0
    difference, error = paired(first, second)
    for each in (fits, than):
        if len(each) > 1:
            error = np.hypot(error, np.std([np.mean(fit["last"]) for fit in each], ddof=1) / len(each) ** 0.5)
    return float(difference), float(error + abs(annealing_change(fits, than)) / 2)


def explosions(rows: list[list[Any]]) -> Verdict:
    """Theory: the old momentum is stable below h = (D √h / λ)^(2/3), 3.6e-4 at D √h = 0.9 with λ = 1.3e5."""
    by_method = {method: [row[1:] for row in rows if row[0] == method] for method in ("SGHMC-S", *EULERS)}
    failing = {
        method: [f"h = {h:g}, D √h = {scale:.2g}: {end}" for h, scale, *_, end in points if end != "survives"]
        for method, points in by_method.items()
    }
    exploding = [euler for euler in EULERS if any(point[-1] == "explodes" for point in by_method[euler])]
    hot = [euler for euler in EULERS if failing[euler]]
    made = ", ".join(f"{method} fails at {len(points)}" for method, points in failing.items())
    made = f"Of {len(by_method['SGHMC-S'])} settings {made}. The old momentum adds energy at each step; friction of "
    made += "D √h = 5 takes it out again."
    safe = not failing["SGHMC-S"]
    return decide(
        "On the paper's grid Euler explodes and the splitting does not",
        "Section 5",
        {f"{method}: not surviving": points for method, points in failing.items()},
        reproduced(safe and len(exploding) == len(EULERS), "both momenta, and exploding as overflowing", made),
        partly(
            safe and hot,
            f"{listed(hot)}, and exploding as running hot: the gradients of this model are bounded, so that nothing "
            "overflows",
            made,
        ),
        otherwise("the splitting fails as well" if not safe else "neither Euler fails", made),
        basis=SIMULATED,
    )


def langevin(surveys: dict[str, list[dict[str, Any]]], fits) -> Verdict:
    """How far SGLD is behind on the paper's grid of step sizes, and on one of its own."""
    known = {name: [row["nll"] for row in rows if row["nll"] is not None] for name, rows in surveys.items()}
    best = {name: min(scores, default=np.inf) for name, scores in known.items()}
    paper, own, splitting = (best[name] for name in ("SGLD", "SGLD, its own grid", "SGHMC-S"))
    gaps = [paper - splitting, own - splitting]
    by = [f"by {gap:.1f} nats" if np.isfinite(gap) else "where it diverges beyond what can be scored" for gap in gaps]
    ends = {
        f"J = {hidden}: SGLD minus SGHMC-S, by seed": [
            None if one["diverged"] or other["diverged"] else float(np.mean(one["last"]) - np.mean(other["last"]))
            for one, other in zip(results, fits[hidden, "SGHMC-S"], strict=True)
        ]
        for (hidden, method), results in fits.items()
        if method == "SGLD"
    }
    made = f"On the paper's grid SGLD is behind {by[0]}, on its own {by[1]}, where the paper has 23 and more than "
    made += (
        f"{MIN_GAP} counts. SGLD's step corresponds to h / D of SGHMC, so that one grid cannot serve both: the paper's "
    )
    made += "steps lie above SGLD's limit. The grids are scored after a few hundred iterations, the fits at their end."
    return decide(
        "Belief network: SGLD is behind by 23 nats (J = 100)",
        "Table 1",
        finite({"paper's grid": paper, "its own grid": own, "SGHMC-S": splitting}) | ends,
        reproduced(gaps[1] > MIN_GAP, "also on a grid of its own", made),
        partly(gaps[0] > MIN_GAP, f"on the paper's step sizes, {by[0]}; on its own {by[1]}", made),
        otherwise("on both grids", made),
        basis=SIMULATED,
    )
