"""Learning topics from a prepared corpus, streaming from disk into a folder from which a killed fit resumes.

Along the way the perplexity of held-out documents, the temperature and the speed are recorded.
"""

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from strang.data import arrays
from strang.dynamics import dynamics_class
from strang.dynamics.fields import make
from strang.lda.completion import HeldOut, Score, add_sample, begin, perplexity, split, topic_sizes
from strang.lda.corpus import Corpus, open_corpus
from strang.lda.model import TopicModel, current_topics
from strang.lda.page import write_page
from strang.lda.settings import IN_JSON, completed, is_scored, scoring_interval
from strang.run.api import request
from strang.run.driver import Look, Observer, drive
from strang.sampling.job import Job
from strang.sampling.record import Chain
from strang.schedule import slowing
from strang.storage.series import latest, read_series
from strang.storage.store import Store, stored_parts
from strang.util.errors import InputError
from strang.util.files import damaged, read_npz, write_npz
from strang.util.front_door import front_door
from strang.util.signatures import defaults, renamed

FILES = ("kept-*.npz", "topics.npz")
ADVICE = "the fit cannot go on from it. Begin in another folder."


@front_door
def fit(
    folder: str | Path,
    corpus: str | Path | Corpus,
    *,
    topics: int = 100,
    passes: float | None = None,
    batch_size: int | None = None,
    batch_order: str = "reshuffled",
    dynamics: str = "sgrld",
    integrator: str | None = None,
    step_size: float | None = None,
    decay: float | None = None,
    delay: float | None = None,
    friction: float | None = None,
    alpha: float = 0.1,
    beta: float = 0.01,
    parametrisation: str | None = None,
    sweeps: int = 10,
    samples: int = 20,
    test_documents: int | None = None,
    seed: int = 0,
    parts: int | None = None,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Learn topics from a corpus in a folder; the same call resumes after a kill.

    Args:
        folder: for `topics.npz`, a page, and the state from which the fit resumes.
        corpus: a folder made by `strang lda prepare`, or a `strang.lda.Corpus` in memory.
        topics: the number of topics K.
        passes: passes over the corpus; by default 1, or enough for 800 batches.
        batch_size: documents per minibatch; by default about 60,000 tokens, at most a tenth of the documents.
        batch_order: `iid`, `reshuffled`, `symmetric` or `cyclic`.
        dynamics: `sgrld`, `sghmc`, `sgnht` or `sgld`.
        integrator: a word or name; by default the dynamics' own.
        step_size: h; by default from the corpus's size.
        decay: a of the step size h (1 + l / d)^-a at step l; by default 0, for sgrld 0.6.
        delay: d of it, in steps; by default 1000, for sgrld 8.
        friction: D; by default from the corpus's size.
        alpha: the Dirichlet prior of a document's topic weights.
        beta: the Dirichlet prior of a topic's words.
        parametrisation: see `strang.lda.TopicModel`; by default `expanded-natural`, for sgrld `expanded-mean`.
        sweeps: Gibbs sweeps over a document per gradient.
        samples: posterior samples to average, spread over the latter half.
        test_documents: documents held out; by default 1000, at most a tenth.
        seed: of start, minibatches, noise and the split of held-out documents.
        parts: parts of each minibatch, for processes to share; by default one per process.
        progress: whether to show a progress bar; None: on a terminal.

    Returns:
        The settings and results, as `strang lda fit --json` prints them.

    Raises:
        InputError: a setting is out of range, the corpus is damaged, or the folder holds another run.
        OSError: the folder could not be written.

    Example:
        >>> import tempfile, strang.lda
        >>> corpus = strang.lda.from_matrix(np.random.default_rng(0).poisson(1.0, (40, 12)))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = strang.lda.fit(folder, corpus, topics=2, passes=2)
        >>> result["topics"], result["vocabulary"], result["finished"]
        (2, 12, True)
    """
    options = {name: value for name, value in locals().items() if name in DEFAULTS}
    whole = corpus if isinstance(corpus, Corpus) else open_corpus(corpus, verify=True, progress=progress)
    settings = completed(options, whole)
    settings["parts"] = stored_parts(folder, settings["parts"])
    train, held_out = whole.split(settings["test_documents"])
    test = split(held_out.gather(np.arange(held_out.documents)), seed=settings["seed"])
    job = job_of(settings, train)
    settings["parts"] = job.program.parts  # also if none was asked for, so that the spec is that of a resumed fit
    place = None if isinstance(corpus, Corpus) else str(Path(corpus).resolve())  # valid in any working directory
    about = {"command": "lda fit", "options": settings, "corpus": place}
    with closing(Store(folder, job, None, about, FILES)) as store:
        folder, model = store.folder, job.program.model
        sums = load_sums(folder, test, model, int(store.chain.step) if store.writes else 0)
        observer = HeldOutObserver(replace(job, chain=store.chain), store, test, settings)
        outcome = drive(observer.job, observer, kept=sums, store=store, progress=progress)
        chain, sums = outcome.chain, outcome.look.kept
        if store.writes and chain.alive[0]:
            save_topics(folder, model, chain, sums, train.words, test)
        result = summary(folder, job, chain, settings, whole, test) | {"samples": sums.score.samples}
        return result | {"page": write_page(folder, result, whole) if store.writes else None}


DEFAULTS = defaults(fit, "progress")


def model_of(settings: dict[str, Any], vocabulary: int, tokens: float, documents: Corpus | None = None) -> TopicModel:
    """The model; the number of tokens sets SGRLD's scale."""
    riemannian = dynamics_class(settings["dynamics"]).__name__ == "SGRLD"
    if riemannian and settings["parametrisation"] != "expanded-mean":
        raise InputError("sgrld's metric is that of expanded-mean; leave out --parametrisation.")
    scale = tokens / settings["topics"] if riemannian and settings["topics"] > 0 else 0.0
    same = {name: settings[name] for name in ("topics", "alpha", "beta", "parametrisation", "sweeps")}
    return TopicModel(vocabulary=vocabulary, scale=scale, documents=documents, **same)


def motion_of(settings: dict[str, Any]) -> dict[str, Any]:
    """Dynamics, integrator and step sizes, as arguments."""
    size, decay, delay = settings["step_size"], settings["decay"], settings["delay"]
    return {
        "dynamics": make(dynamics_class(settings["dynamics"]), friction=settings["friction"]),
        "integrator": settings["integrator"],
        "step_size": slowing(size, decay, delay) if decay else size,
    }


def job_of(settings: dict[str, Any], train: Corpus, chains: int = 1) -> Job:
    """The checked request to the sampler. A datum is a document's number: only its batch is ever in memory."""
    batch_size = min(settings["batch_size"], train.documents)
    steps = max(2, round(settings["passes"] * train.documents / batch_size))
    numbers = np.arange(train.documents, dtype=np.uint32)
    return request(
        model_of(settings, len(train.words), train.tokens, train),
        arrays(numbers, batch_size=batch_size, batch_order=settings["batch_order"]),
        **motion_of(settings),
        steps=steps,
        chains=chains,
        seed=settings["seed"],
        average=None,
        burn_in=steps // 2,
        parts=settings["parts"],
    )


class SampleSums(NamedTuple):
    """Sums over posterior samples of the held-out words' probabilities, the topics, and their squares."""

    score: Score
    mean: np.ndarray  # Σ φ, (V, K)
    square: np.ndarray  # Σ φ²


class HeldOutObserver(Observer):
    """Scores the held-out documents at steps that follow from the settings alone; after burn-in the topics are added
    to the sums over posterior samples."""

    label = "learning topics"

    def __init__(self, job: Job, store: Store, test: HeldOut, settings: dict[str, Any]):
        self.job, self.store, self.test, self.settings = job, store, test, settings
        self.every = scoring_interval(job.steps, settings["samples"])
        self.before = latest(read_series(store.folder))
        self.started = time.perf_counter(), time.process_time()

    def look(self, chain: Chain, before: Look) -> Look:
        step = int(chain.step)
        due = is_scored(step, self.job.steps, self.settings["samples"]) and self.store.writes and chain.alive[0]
        sums, measured = self.score(chain, before.kept) if due else (before.kept, None)
        text = before.text.partition(";")[0]
        if measured is not None:
            text = f"perplexity {measured['perplexity_last']:.0f}"
            text += f", temperature {heat:.3g}" if (heat := measured["temperature"]) is not None else ""
        documents = (step - int(self.job.chain.step)) * self.job.inputs.data.batch_size
        rate = documents / max(time.perf_counter() - self.started[0], 1e-9)
        return Look(sums, measured, f"{text}; {rate:,.0f} documents/s")

    def score(self, chain: Chain, sums: SampleSums) -> tuple[SampleSums, dict[str, Any]]:
        """Score the current topics; after burn-in, add them to the sums."""
        step, phi = int(chain.step), current_topics(self.job.program.model, chain)
        averaging, key = step > self.job.steps // 2, [self.settings["seed"], step]
        before = sums.score if averaging else begin(self.test)
        scored = add_sample(self.test, before, phi, alpha=self.settings["alpha"], key=key)
        temperature = getattr(self.job.inputs.dynamics, "kinetic_temperature", None)
        measured = {
            "perplexity_last": perplexity(self.test, scored, last=True),
            "perplexity": perplexity(self.test, scored) if averaging else None,
            "temperature": temperature and float(temperature(jax.tree.map(lambda x: x[0], chain.state))),
        }
        return SampleSums(scored, sums.mean + phi, sums.square + phi**2) if averaging else sums, measured

    def line(self, chain: Chain, look: Look, seconds: float) -> dict[str, Any]:
        step, before = int(chain.step), self.before
        return {
            "step": step,
            "documents": step * self.job.inputs.data.batch_size,
            **(look.measured or {}),
            "spent_seconds": before.get("spent_seconds", 0.0) + time.perf_counter() - self.started[0],
            "cpu_seconds": before.get("cpu_seconds", 0.0) + time.process_time() - self.started[1],
        }

    def write(self, chain: Chain, look: Look) -> None:
        """Save the sums beside the chain that they belong to."""
        score, mean, square = look.kept
        path = self.store.folder / f"kept-{int(chain.step)}.npz"
        write_npz(path, {**score._asdict(), "mean": mean, "square": square})

    def written(self, step: int) -> None:
        for path in self.store.folder.glob("kept-*.npz"):  # those of chains that have been replaced
            if path.name != f"kept-{step}.npz":
                path.unlink()


def load_sums(folder: Path, test: HeldOut, model: TopicModel, step: int) -> SampleSums:
    """Load and check the sums of this step; at step 0 they are empty."""
    zeros = np.zeros((model.vocabulary, model.topics), np.float32)
    empty, path = SampleSums(begin(test), zeros, zeros), folder / f"kept-{step}.npz"
    if step == 0:
        return empty
    arrays = read_npz(path, ADVICE)
    try:
        score = Score(arrays["topics"], arrays["total"], arrays["last"], int(arrays["samples"]))
        sums = SampleSums(score, arrays["mean"], arrays["square"])
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path, error, ADVICE) from None
    same = jax.tree.map(np.shape, sums) == jax.tree.map(np.shape, empty) and score.topics.dtype == np.int32
    if not (same and np.isin(score.topics, np.arange(model.topics)).all()):
        raise damaged(path, "other shapes or topics", ADVICE)
    return sums


def save_topics(folder: Path, model: TopicModel, chain: Chain, sums: SampleSums, words: list[str], test: HeldOut):
    """Write topics.npz: the posterior mean and standard deviation of φ over the samples, the last sample, the words,
    and each topic's fraction of the held-out documents' seen tokens."""
    last, count = current_topics(model, chain), sums.score.samples
    mean = sums.mean / count if count else last
    sd = np.sqrt(np.maximum(sums.square / count - mean**2, 0)) if count > 1 else np.full_like(last, np.nan)
    sizes = topic_sizes(test.seen, mean, alpha=model.alpha)
    named = {"mean": mean, "sd": sd, "last": last, "words": np.array(words), "share": sizes, "samples": count}
    write_npz(folder / "topics.npz", named)


def summary(folder: Path, job: Job, chain: Chain, settings, corpus: Corpus, test: HeldOut) -> dict[str, Any]:
    """The settings and results of a fit."""
    last = latest(read_series(folder))
    return {
        **renamed(settings, IN_JSON),
        **{name: last.get(name) for name in ("perplexity", "perplexity_last", "cpu_seconds", "temperature")},
        "documents": int(chain.step) * job.inputs.data.batch_size,
        "corpus_documents": corpus.documents,
        "corpus_tokens": corpus.tokens,
        "vocabulary": len(corpus.words),
        "held_out": test.how,
        "integrator": job.program.step.name,
        "steps": int(chain.step),
        "seconds": last.get("spent_seconds"),
        "diverged": int((~np.asarray(chain.alive)).sum()),
        "finished": int(chain.step) >= job.steps,
    }


def resume(folder: Path, spec: dict[str, Any], more: int | None) -> dict[str, Any]:
    """Continue a stored fit to its end."""
    options, corpus = spec["about"].get("options"), spec["about"].get("corpus")
    if not isinstance(options, dict) or {*options, "parts"} != set(DEFAULTS) or not isinstance(corpus, str):
        raise InputError(f"{folder / 'spec.json'} has no corpus to go on with, or is damaged.")
    if more is not None:
        raise InputError("the length of a fit is its passes; write another folder with more of them.")
    return fit(folder, corpus, **options)
