"""Table 1, its upper half: topic models, and the figures of perplexity against documents and against the step size.

Paper: K = 200 and 500 on ten million Wikipedia articles, perplexities of 1168 to 2511 on a split that is not stated.
We: the same comparison on the corpus given, or on one drawn from known topics, because what carries over is the order
of the methods and where they break; each method is tried on steps of its own scale, and SGLD on SGHMC's as well.
"""

import importlib.util
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np

from strang.paper.figure import (
    NOT_REPRODUCED,
    REPRODUCED,
    UNDER_READING,
    Effort,
    Figure,
    Panel,
    Part,
    Point,
    Series,
    Table,
    Verdict,
)
from strang.run.driver import run_blocks
from strang.run.result import temperatures
from strang.util.errors import need

METHODS: dict[str, dict[str, Any]] = {
    "SGHMC-S": {"dynamics": "sghmc", "integrator": "chen:ABOBA"},
    "SGHMC-E, new momentum": {"dynamics": "sghmc", "integrator": "euler-new"},
    "SGHMC-E, old momentum": {"dynamics": "sghmc", "integrator": "euler-old"},
    "SGNHT": {"dynamics": "sgnht"},
    "SGLD": {"dynamics": "sgld"},
    "SGRLD": {"dynamics": "sgrld"},
}
PAPER = {200: (1168, 1180, 2496), 500: (1157, 1187, 2511)}  # SGHMC-S, SGHMC-E, SGLD-E
SECOND_ORDER = [method for method, settings in METHODS.items() if settings["dynamics"] in ("sghmc", "sgnht")]
ON_THE_SAME = "SGLD, on SGHMC's steps"
STRONG = 2.5  # D h: Euler takes so much of the momentum away at once, which is more than twice all of it
DAMPED = {f"{method}, D h = {STRONG}": method for method in SECOND_ORDER[:3]}
SHARES = (0.2, 0.5, 1.0, 2.0, 4.0)  # of `step_sizes`, for SGHMC and SGLD: where each breaks lies among them
RIEMANNIAN = (0.1, 0.3, 1.0)  # of SGRLD's own schedule
HOT = 100.0  # mean p² from which a run is no sample of anything, nor one below its inverse
CLOSE = 0.06  # of a perplexity: two chains of one method differ by less, having a standard deviation of 2 %
LOOKS = 20


def counts(effort: Effort) -> dict[str, Any]:
    """How much is done: topics, documents held out, batches."""
    if effort.name == "full":
        return {"topics": (200, 500), "held_out": 1000, "steps": 2000}
    return {"topics": (20,), "held_out": 200, "steps": effort.steps // 400}


@cache
def corpus_of(path: str | None):
    """The corpus given, or 5,000 documents of about 80 tokens from 20 topics over 1,000 words; and those topics."""
    corpora = need("strang.lda", "lda")
    if path is not None:
        return corpora.open_corpus(path), None
    rng = np.random.default_rng(0)
    common = 1 / np.arange(1, 1001)  # words as frequent as Zipf has them
    phi = rng.dirichlet(40 * common / common.sum(), 20)
    shares = rng.dirichlet(np.full(20, 0.1), 5000)
    rows = [rng.multinomial(rng.poisson(80), share @ phi) for share in shares]
    return corpora.from_matrix(np.array(rows)), phi.T


def parts(effort: Effort) -> list[Part]:
    """Each method on its steps, all of them side by side as chains of one run; none where Numba is not installed."""
    if importlib.util.find_spec("numba") is None:
        return []
    from strang.lda.settings import step_sizes

    how, corpus = counts(effort), corpus_of(effort.corpus)[0]
    first, second = step_sizes(corpus)
    found = []
    for topics in how["topics"]:
        for label, method in [*zip(METHODS, METHODS, strict=True), (ON_THE_SAME, "SGLD"), *DAMPED.items()]:
            own = {"SGLD": first, "SGRLD": 1.0}.get(label, second)
            shares = (1.0,) if label in DAMPED else RIEMANNIAN if method == "SGRLD" else SHARES
            friction = STRONG / second if label in DAMPED else second / first
            settings = {
                "method": method,
                "sizes": [own * share for share in shares],
                "friction": friction if method in SECOND_ORDER else None,
                "topics": topics,
                "steps": how["steps"],
                "held_out": how["held_out"],
                "corpus": effort.corpus,
                "fingerprint": corpus.fingerprint,
            }
            found.append(Part(f"{label}, K = {topics}", try_steps, settings))
    return found


def try_steps(
    *,
    method: str,
    sizes: list[float],
    friction: float | None,
    topics: int,
    steps: int,
    held_out: int,
    corpus: str | None,
    fingerprint: str,
) -> list[dict[str, Any]]:
    """A method with every step size: perplexity along the way (of one sample), at the end, and averaged over the latter
    half; mean p² at the end."""
    from strang.lda.completion import add_sample, begin, perplexity, score_topics, split
    from strang.lda.fitting import DEFAULTS, job_of
    from strang.lda.settings import completed

    train, rest = corpus_of(corpus)[0].split(held_out)
    test = split(rest.gather(np.arange(rest.documents)), seed=0)
    given = {**DEFAULTS, **METHODS[method], "topics": topics, "batch_size": 100, "friction": friction}
    given |= {"step_size": jnp.asarray(sizes, jnp.float32), "passes": steps * 100 / train.documents}
    settings = completed(given, train)
    job = job_of(settings, train, chains=len(sizes))
    model, alpha = job.program.model, settings["alpha"]
    scores, curves = [begin(test) for _ in sizes], [list[Any]() for _ in sizes]
    for chain, _ in run_blocks(job, max(1, steps // LOOKS)):
        step = int(chain.step)
        for k in range(len(sizes)):
            phi = np.asarray(model.topics_of(chain.state.position[k]), np.float32)
            if not (chain.alive[k] and np.isfinite(phi).all()):
                curves[k].append([step * 100, None])
                continue
            curves[k].append([step * 100, number(score_topics(test, phi, alpha=alpha, key=step))])
            if step > steps // 2:
                scores[k] = add_sample(test, scores[k], phi, alpha=alpha, key=step)
    heat = temperatures(job, chain)
    return [
        {
            "step_size": size,
            "curve": curves[k],
            "last": curves[k][-1][1],
            "perplexity": number(perplexity(test, scores[k])) if curves[k][-1][1] else None,
            "temperature": number(heat[k]),
        }
        for k, size in enumerate(sizes)
    ]


def number(value: float) -> float | None:
    """As JSON has it."""
    return float(value) if np.isfinite(value) else None


def true_perplexity(effort: Effort) -> float | None:
    """What the topics that a corpus was drawn from come to."""
    corpus, phi = corpus_of(effort.corpus)
    if phi is None:
        return None
    from strang.lda.completion import score_topics, split

    rest = corpus.split(counts(effort)["held_out"])[1]
    return score_topics(split(rest.gather(np.arange(rest.documents)), seed=0), phi, alpha=0.1)


def best(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The step size with the least averaged perplexity, of those that are not broken."""
    known = [row for row in rows if row["perplexity"] is not None and not is_broken(row)]
    return min(known, key=lambda row: row["perplexity"]) if known else None


def figure(effort: Effort, results: list[Any]) -> Figure:
    panels, tables, verdicts = judged(effort, results)
    rows = [[topics, *PAPER[topics]] for topics in PAPER]
    return Figure(
        "topics",
        "Table 1, upper half: topic models",
        "The splitting (SGHMC-S) is ahead of Euler (SGHMC-E), and both are far ahead of SGLD.",
        "Look at how hot each method runs (mean p², 1 where the law is right), at the steps at which each breaks, and "
        "at SGLD on steps of its own. The paper's perplexities are of another corpus and split.",
        {"corpus": effort.corpus or "drawn from known topics"},
        panels=panels,
        tables=[Table("The paper's numbers", ["K", "SGHMC-S", "SGHMC-E", "SGLD-E"], rows), *tables],
        verdicts=verdicts,
    )


def judged(effort: Effort, results: list[Any]) -> tuple[list[Panel], list[Table], list[Verdict]]:
    """Panels, tables and verdicts of the topic models."""
    how, names = counts(effort), [*METHODS, ON_THE_SAME, *DAMPED]
    panels: list[Panel] = []
    tables: list[Table] = []
    verdicts: list[Verdict] = []
    for i, topics in enumerate(how["topics"] if results else ()):
        found = dict(zip(names, results[i * len(names) : (i + 1) * len(names)], strict=True))
        panels += [against_documents(topics, found), against_steps(topics, found)]
        tables.append(table(effort, topics, found))
        verdicts += [order(topics, found), explosion(topics, found), langevin(topics, found)]
    return panels, tables, verdicts


def point(x: float, value: float | None) -> Point:
    """A cross above the axes where there is no value."""
    return {"x": x, "value": value, "se": None, "exact": value, "diverged": 0 if value else 1}


def against_documents(topics: int, found: dict[str, list[dict[str, Any]]]) -> Panel:
    series = []
    for method in METHODS:
        row = best(found[method])
        if row:
            series.append(Series(method, [point(x, y) for x, y in row["curve"] if y], method == "SGHMC-S"))
    return Panel(
        f"K = {topics}: each method at its best step", "documents", "perplexity, one sample", series, log_x=False
    )


def against_steps(topics: int, found: dict[str, list[dict[str, Any]]]) -> Panel:
    series = [
        Series(
            method,
            [point(row["step_size"], None if is_broken(row) else row["last"]) for row in found[method]],
            method == "SGHMC-S",
        )
        for method in [*SECOND_ORDER, ON_THE_SAME]
    ]
    return Panel(f"K = {topics}: after as many documents", "step size h", "perplexity, last sample", series)


def table(effort: Effort, topics: int, found: dict[str, list[dict[str, Any]]]) -> Table:
    corpus, truth = corpus_of(effort.corpus)[0], true_perplexity(effort)
    rows: list[list[Any]] = []
    for method, tried in found.items():
        row = best(tried)
        broken = [f"{each['step_size']:.3g}" for each in tried if is_broken(each)]
        cells = (
            [None] * 4 if row is None else [row[name] for name in ("step_size", "perplexity", "last", "temperature")]
        )
        rows.append([method, *cells, ", ".join(broken) or "none"])
    of = "drawn from 20 known topics" if effort.corpus is None else "given"
    known = "" if truth is None else f"; the topics it was drawn from have {truth:.0f}"
    title = (
        f"K = {topics}, a corpus {of} ({corpus.documents:,} documents, {corpus.tokens:,} tokens, {len(corpus.words):,} "
        f"words), {counts(effort)['steps']:,} batches of 100: perplexity of held-out words (half of each document seen)"
        f" at the best of the steps tried{known}"
    )
    columns = ["method", "h", "averaged over samples", "last sample", "mean p²", "steps at which it breaks"]
    return Table(title, columns, rows)


def is_broken(row: dict[str, Any]) -> bool:
    """Beyond the numbers, or so hot or so still that nothing is left of the posterior."""
    heat = row["temperature"]
    return row["last"] is None or (heat is not None and not 1 / HOT < heat < HOT)


def order(topics: int, found: dict[str, list[dict[str, Any]]]) -> Verdict:
    """Whether the splitting is ahead of Euler, with either momentum."""
    rows = {name: best(found[name]) for name in METHODS}
    values = {name: float(row["perplexity"]) if row else np.inf for name, row in rows.items()}
    splitting, eulers = values["SGHMC-S"], SECOND_ORDER[1:3]
    behind = [name for name in eulers if splitting < (1 - CLOSE) * values[name]]
    ahead = [name for name in values if values[name] < (1 - CLOSE) * splitting]
    return Verdict(
        f"Topic model, K = {topics}: SGHMC-S is ahead of SGHMC-E",
        "Table 1",
        REPRODUCED if len(behind) == len(eulers) else UNDER_READING if behind else NOT_REPRODUCED,
        f"{' and '.join(behind)}: behind by more than {CLOSE:.0%}, each at the best of its own steps" if behind else "",
        {name: round(value, 1) if value < np.inf else None for name, value in values.items()},
        "The new momentum's step is the splitting's up to order h."
        + (f" Ahead of the splitting: {', '.join(ahead)}." if ahead else ""),
    )


def explosion(topics: int, found: dict[str, list[dict[str, Any]]]) -> Verdict:
    """A step at which Euler breaks and the splitting does not, with the friction of all and with a strong one."""
    eulers = SECOND_ORDER[1:3]
    broken = {name: broken_alone(found["SGHMC-S"], found[name]) for name in eulers}
    calm, *damped = (found[name] for name in DAMPED)
    strong = {name: broken_alone(calm, rows) for name, rows in zip(eulers, damped, strict=True)}
    some = [name for name in eulers if broken[name] or strong[name]]
    heat = {name: {f"{row['step_size']:.3g}": row["temperature"] for row in found[name]} for name in SECOND_ORDER[:3]}
    at_all = ", ".join(name for name in eulers if broken[name]) or "neither"
    return Verdict(
        f"Topic model, K = {topics}: Euler explodes at step sizes at which the splitting works",
        "Section 5",
        NOT_REPRODUCED if not some else REPRODUCED if all(broken.values()) else UNDER_READING,
        f"at the friction of the table: {at_all}; where D h = {STRONG}: "
        + (", ".join(name for name in eulers if strong[name]) or "neither")
        if some
        else "",
        {"Euler breaks, the splitting does not": broken, f"where D h = {STRONG}": strong, "mean p²": heat},
        "The new momentum's step is the splitting's up to order h and breaks about where it does, unless friction is "
        "strong: Euler then turns the momentum round and makes it larger, the splitting solves friction exactly. The "
        "old momentum's step adds energy at every step. Minibatch noise heats all of them.",
    )


def broken_alone(calm: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[float]:
    """The steps at which these are broken and those are not."""
    safe = {row["step_size"] for row in calm if not is_broken(row)}
    return [row["step_size"] for row in rows if is_broken(row) and row["step_size"] in safe]


def langevin(topics: int, found: dict[str, list[dict[str, Any]]]) -> Verdict:
    """How much of SGLD's gap is its grid. Twice is taken for half as much again at least."""
    rows = {name: best(found[name]) for name in ("SGHMC-S", "SGLD", ON_THE_SAME)}
    value = {name: row["perplexity"] if row else None for name, row in rows.items()}
    splitting, own, same = (value[name] for name in ("SGHMC-S", "SGLD", ON_THE_SAME))

    def times(perplexity: float | None) -> float:
        return perplexity / splitting if perplexity and splitting else np.inf

    everywhere, there = splitting is not None and times(own) > 1.5, same is not None and times(same) > 1.5
    breaks = " On SGHMC's steps SGLD has no perplexity: it breaks at all that were tried." if same is None else ""
    return Verdict(
        f"Topic model, K = {topics}: SGLD has twice the perplexity of SGHMC",
        "Table 1",
        REPRODUCED if everywhere else UNDER_READING if there else NOT_REPRODUCED,
        f"on SGHMC's step sizes, {times(same):.1f} times" if there and not everywhere else "",
        {"SGHMC-S": splitting, "SGLD, own steps": own, "SGLD, SGHMC's steps": same},
        "h / D of SGHMC is what corresponds to SGLD's step, so that one grid cannot serve both."
        + (f" On steps of its own SGLD has {times(own):.2f} times SGHMC's perplexity." if own and splitting else "")
        + breaks,
    )
