"""Table 1, upper half: topic models, with perplexity against documents and against the step size.

Paper: K = 200 and 500 on ten million Wikipedia articles, perplexities of 1168 to 2511 on a split that is not stated.
We: the same comparison on the user's corpus, or on one drawn from known topics, because what carries over is the
ranking of the methods and where they break; each method is tried on steps of its own scale, and SGLD on SGHMC's too.
"""

import importlib.util
from functools import cache
from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np

from strang.paper import belief
from strang.paper.belief import EULERS, paper_table
from strang.paper.figure import CANNOT_TELL, SIMULATED, Effort, Figure, Part, Verdict
from strang.paper.verdicts import Case, decide, listed, otherwise, partly, reproduced
from strang.report.figures import number
from strang.report.panels import Panel, Point, Series, Table
from strang.run.driver import run_blocks
from strang.run.result import temperatures
from strang.util.errors import need
from strang.util.numbers import finite

SECOND_ORDER = ["SGHMC-S", *EULERS, "SGNHT"]
METHODS = {method: belief.METHODS[method] for method in [*SECOND_ORDER, "SGLD"]} | {"SGRLD": {"dynamics": "sgrld"}}
PAPER = {200: (1168, 1180, 2496), 500: (1157, 1187, 2511)}  # SGHMC-S, SGHMC-E, SGLD-E
SGLD_ON_SGHMC_STEPS = "SGLD, on SGHMC's steps"
STRONG = 2.5  # D h: Euler takes that many times the momentum away at once, so that it turns round and grows
DAMPED = {f"{method}, D h = {STRONG}": method for method in SECOND_ORDER[:3]}
LABELS = {method: method for method in METHODS} | {SGLD_ON_SGHMC_STEPS: "SGLD"} | DAMPED  # the method of each label
FACTORS = (0.2, 0.5, 1.0, 2.0, 4.0)  # times `step_sizes`, for SGHMC and SGLD: where each breaks lies among them
SGRLD_FACTORS = (0.1, 0.3, 1.0)  # times SGRLD's own schedule
MAX_HEAT = 100.0  # temperature above which, or below the inverse of which, a run is no sample of anything
MIN_LEAD = 0.06  # of a perplexity: two chains of one method differ by less, having a standard deviation of 2 %
MIN_RATIO = 1.5  # of perplexities, half of the paper's factor 2
CHECKS = 20  # times at which the perplexity is computed during a run
Rows = list[dict[str, Any]]  # one per step size


def plan_of(effort: Effort) -> dict[str, Any]:
    """How much is computed: topics, documents held out, batches."""
    if effort.name == "full":
        return {"topics": (200, 500), "held_out": 1000, "steps": 2000}
    return {"topics": (20,), "held_out": 200, "steps": effort.steps // 400}


@cache
def corpus_of(path: str | None):
    """The user's corpus, or 5,000 documents of about 80 tokens from 20 topics over 1,000 words; and those topics."""
    corpora = need("strang.lda", "lda")
    if path is not None:
        return corpora.open_corpus(path), None
    rng = np.random.default_rng(0)
    zipf = 1 / np.arange(1, 1001)
    phi = rng.dirichlet(40 * zipf / zipf.sum(), 20)
    topic_weights = rng.dirichlet(np.full(20, 0.1), 5000)
    return corpora.from_matrix(np.array([rng.multinomial(rng.poisson(80), w @ phi) for w in topic_weights])), phi.T


def parts(effort: Effort) -> list[Part]:
    """Each method on its step sizes, all of them side by side as chains of one run; none if Numba is not installed."""
    if importlib.util.find_spec("numba") is None:
        return []
    from strang.lda.settings import step_sizes

    plan, corpus = plan_of(effort), corpus_of(effort.corpus)[0]
    first, second = step_sizes(corpus)
    common = {"steps": plan["steps"], "held_out": plan["held_out"], "corpus": effort.corpus}
    common["fingerprint"] = corpus.fingerprint
    work = []
    for topics, (label, method) in product(plan["topics"], LABELS.items()):
        scale = {"SGLD": first, "SGRLD": 1.0}.get(label, second)
        factors = (1.0,) if label in DAMPED else SGRLD_FACTORS if method == "SGRLD" else FACTORS
        friction = STRONG / second if label in DAMPED else second / first
        settings = {"method": method, "sizes": [scale * factor for factor in factors], "topics": topics, **common}
        settings["friction"] = friction if method in SECOND_ORDER else None
        work.append(Part(f"{label}, K = {topics}", try_steps, settings))
    return work


def try_steps(
    *, method: str, sizes: list[float], steps: int, held_out: int, corpus: str | None, fingerprint: str, **options: Any
) -> Rows:
    """A method with every step size: perplexity of single samples along the way, of the last one, and averaged over the
    second half of the run; the temperature at the end. `options` are the number of topics and the friction."""
    from strang.lda.completion import add_sample, begin, perplexity, score_topics, split
    from strang.lda.fitting import DEFAULTS, job_of
    from strang.lda.settings import completed

    train, rest = corpus_of(corpus)[0].split(held_out)
    test = split(rest.gather(np.arange(rest.documents)), seed=0)
    options |= {"step_size": jnp.asarray(sizes, jnp.float32), "passes": steps * 100 / train.documents}
    settings = completed({**DEFAULTS, **METHODS[method], "batch_size": 100, **options}, train)
    job = job_of(settings, train, chains=len(sizes))
    model, alpha = job.program.model, settings["alpha"]
    scores, curves = [begin(test) for _ in sizes], [list[Any]() for _ in sizes]
    for chain, _ in run_blocks(job, max(1, steps // CHECKS)):
        step = int(chain.step)
        for k in range(len(sizes)):
            phi = np.asarray(model.topics_of(chain.state.position[k]), np.float32)
            if not (chain.alive[k] and np.isfinite(phi).all()):
                curves[k].append([step * 100, None])
                continue
            curves[k].append([step * 100, finite(float(score_topics(test, phi, alpha=alpha, key=step, sweeps=20)))])
            if step > steps // 2:
                scores[k] = add_sample(test, scores[k], phi, alpha=alpha, key=step)
    heat = temperatures(job, chain)
    return [
        {
            "step_size": size,
            "curve": curves[k],
            "last": curves[k][-1][1],
            "perplexity": finite(float(perplexity(test, scores[k]))) if curves[k][-1][1] else None,
            "temperature": finite(float(heat[k])),
        }
        for k, size in enumerate(sizes)
    ]


def true_perplexity(effort: Effort) -> float | None:
    """The perplexity of the topics that a corpus was drawn from; None if they are not known."""
    corpus, phi = corpus_of(effort.corpus)
    if phi is None:
        return None
    from strang.lda.completion import score_topics, split

    rest = corpus.split(plan_of(effort)["held_out"])[1]
    return score_topics(split(rest.gather(np.arange(rest.documents)), seed=0), phi, alpha=0.1)


def figure(effort: Effort, results: list[Any]) -> Figure:
    panels, tables, verdicts = list[Panel](), [paper_table("K", PAPER)], list[Verdict]()
    for i, topics in enumerate(plan_of(effort)["topics"] if results else ()):
        by_label = dict(zip(LABELS, results[i * len(LABELS) : (i + 1) * len(LABELS)], strict=True))
        panels += [against_documents(topics, by_label), against_steps(topics, by_label)]
        tables.append(best_step_table(effort, topics, by_label))
        verdicts += [splitting_ahead(topics, by_label), explosion(topics, by_label), langevin(topics, by_label)]
    return Figure(
        "topics",
        "Table 1, upper half: topic models",
        "The splitting (SGHMC-S) is ahead of Euler (SGHMC-E), and both are far ahead of SGLD.",
        "Look at the temperature of each method (should be 1), at the steps at which each breaks, and at SGLD on steps "
        "of its own. The paper's perplexities are of another corpus and split."
        + ("" if results else " All of it is left out: it needs Numba; write pip install 'strang[lda]'."),
        {"corpus": effort.corpus or "drawn from known topics"},
        panels=panels,
        tables=tables,
        verdicts=verdicts,
    )


def is_broken(row: dict[str, Any]) -> bool:
    """Diverged, or so hot or so cold that nothing is left of the posterior."""
    heat = row["temperature"]
    return row["last"] is None or (heat is not None and not 1 / MAX_HEAT < heat < MAX_HEAT)


def best(rows: Rows) -> dict[str, Any] | None:
    """The step size with the least averaged perplexity, of those that are not broken."""
    usable = [row for row in rows if row["perplexity"] is not None and not is_broken(row)]
    return min(usable, key=lambda row: row["perplexity"]) if usable else None


def point(x: float, value: float | None) -> Point:
    """A cross above the axes where there is no value."""
    return {"x": x, "value": value, "se": None, "exact": value, "diverged": 0 if value else 1}


def against_documents(topics: int, by_label: dict[str, Rows]) -> Panel:
    series = [
        Series(method, [point(x, y) for x, y in row["curve"] if y], method == "SGHMC-S")
        for method in METHODS
        if (row := best(by_label[method]))
    ]
    title = f"K = {topics}: each method at its best step"
    return Panel(title, "documents", "perplexity, one sample", series, log_x=False)


def against_steps(topics: int, by_label: dict[str, Rows]) -> Panel:
    series = []
    for label in [*SECOND_ORDER, SGLD_ON_SGHMC_STEPS]:
        points = [point(row["step_size"], None if is_broken(row) else row["last"]) for row in by_label[label]]
        series.append(Series(label, points, label == "SGHMC-S"))
    return Panel(f"K = {topics}: at the end of the run", "step size h", "perplexity, last sample", series)


def best_step_table(effort: Effort, topics: int, by_label: dict[str, Rows]) -> Table:
    corpus, truth = corpus_of(effort.corpus)[0], true_perplexity(effort)
    rows: list[list[Any]] = []
    for label, tried in by_label.items():
        cells = [(best(tried) or {}).get(name) for name in ("step_size", "perplexity", "last", "temperature")]
        broken = [f"{each['step_size']:.3g}" for each in tried if is_broken(each)]
        rows.append([label, *cells, ", ".join(broken) or "none"])
    source = "a corpus drawn from 20 known topics" if effort.corpus is None else "the user's corpus"
    known = "" if truth is None else f"; the topics it was drawn from have {truth:.0f}"
    title = (
        f"K = {topics}, {source} ({corpus.documents:,} documents, {corpus.tokens:,} tokens, {len(corpus.words):,} "
        f"words), {plan_of(effort)['steps']:,} batches of 100: perplexity of held-out words (half of each document "
        f"seen) at the best of the steps tried{known}"
    )
    columns = ["method", "h", "averaged over samples", "last sample", "temperature", "steps at which it breaks"]
    return Table(title, columns, rows)


def least_perplexity(by_label: dict[str, Rows], label: str) -> float | None:
    return (best(by_label[label]) or {}).get("perplexity")


def splitting_ahead(topics: int, by_label: dict[str, Rows]) -> Verdict:
    """Whether the splitting is ahead of Euler, with either momentum."""
    values = {method: least_perplexity(by_label, method) or np.inf for method in METHODS}
    splitting = values["SGHMC-S"]
    behind = [euler for euler in EULERS if splitting < (1 - MIN_LEAD) * values[euler]]
    ahead = [method for method, value in values.items() if value < (1 - MIN_LEAD) * splitting]
    leads = ", ".join(f"{euler} has {values[euler] / splitting:.3f} times" for euler in EULERS)
    paper = ", ".join(f"{100 * (euler / own - 1):.1f} %" for own, euler, _ in PAPER.values())
    made = f"{leads} the splitting's perplexity, each at the best of its own steps; the paper's leads are {paper}, "
    made += "and two "
    made += (
        f"chains of one method differ by up to {MIN_LEAD:.0%}. Ahead of the splitting by more: {listed(ahead)}. The "
    )
    made += "new momentum's step is the splitting's up to order h."
    return decide(
        f"Topic model, K = {topics}: SGHMC-S is ahead of SGHMC-E",
        "Table 1",
        {method: finite(round(value, 1)) for method, value in values.items()},
        reproduced(len(behind) == len(EULERS), f"both momenta: behind by more than {MIN_LEAD:.0%}", made),
        partly(
            behind, f"{listed(behind)}: behind by more than {MIN_LEAD:.0%}, each at the best of its own steps", made
        ),
        Case(
            np.isfinite(splitting) and not set(ahead) & set(EULERS),
            CANNOT_TELL,
            f"all three within {MIN_LEAD:.0%}, which one chain each does not resolve",
            made,
        ),
        otherwise(f"{listed([euler for euler in EULERS if euler in ahead])} ahead of the splitting", made),
        basis=SIMULATED,
    )


def explosion(topics: int, by_label: dict[str, Rows]) -> Verdict:
    """Step sizes at which Euler breaks and the splitting does not, with the friction of all and with a strong one."""
    broken = {euler: broken_alone(by_label["SGHMC-S"], by_label[euler]) for euler in EULERS}
    damped, *others = (by_label[label] for label in DAMPED)
    strong = {euler: broken_alone(damped, rows) for euler, rows in zip(EULERS, others, strict=True)}
    heat = {
        method: {f"{row['step_size']:.3g}": row["temperature"] for row in by_label[method]}
        for method in SECOND_ORDER[:3]
    }
    named = [listed([euler for euler in EULERS if sizes[euler]], "neither") for sizes in (broken, strong)]
    reading = f"at the friction of the table: {named[0]}; where D h = {STRONG}: {named[1]}"
    count = ", ".join(f"{euler} alone at {len(sizes)}" for euler, sizes in broken.items())
    made = f"Of {len(by_label['SGHMC-S'])} step sizes {count}. The new momentum's step is the splitting's up to "
    made += "order h and "
    made += "breaks about where it does, unless friction is strong: Euler then turns the momentum round and makes it "
    made += "larger, "
    made += "the splitting solves friction exactly. The old momentum's step adds energy at every step."
    return decide(
        f"Topic model, K = {topics}: Euler explodes at step sizes at which the splitting works",
        "Section 5",
        {"Euler breaks, the splitting does not": broken, f"where D h = {STRONG}": strong, "temperature": heat},
        reproduced(all(broken.values()), "both momenta, at the friction of the table", made),
        partly(any(broken.values()) or any(strong.values()), reading, made),
        otherwise(reading, made),
        basis=SIMULATED,
    )


def broken_alone(stable: Rows, rows: Rows) -> list[float]:
    """The step sizes at which `rows` are broken and `stable` is not."""
    safe = {row["step_size"] for row in stable if not is_broken(row)}
    return [row["step_size"] for row in rows if is_broken(row) and row["step_size"] in safe]


def langevin(topics: int, by_label: dict[str, Rows]) -> Verdict:
    """How much of SGLD's gap is due to its grid."""
    splitting, own, same = (least_perplexity(by_label, label) for label in ("SGHMC-S", "SGLD", SGLD_ON_SGHMC_STEPS))

    def times(perplexity: float | None) -> float:
        return perplexity / splitting if perplexity and splitting else np.inf

    made = f"SGLD has {number(finite(times(own)))} times SGHMC's perplexity on steps of its own and "
    made += f"{number(finite(times(same)))} times on SGHMC's (– where it breaks at all that were tried); more than "
    made += (
        f"{MIN_RATIO} counts. h / D of SGHMC is what corresponds to SGLD's step, so that one grid cannot serve both."
    )
    return decide(
        f"Topic model, K = {topics}: SGLD has twice the perplexity of SGHMC",
        "Table 1",
        {"SGHMC-S": splitting, "SGLD, own steps": own, "SGLD, SGHMC's steps": same},
        reproduced(splitting is not None and times(own) > MIN_RATIO, "also on steps of its own", made),
        partly(same is not None and times(same) > MIN_RATIO, f"on SGHMC's step sizes, {times(same):.1f} times", made),
        otherwise("on both grids", made),
        basis=SIMULATED,
    )
