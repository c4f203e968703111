"""Learning topics from a prepared corpus, streaming: a folder that a killed fit goes on from, and on the way looks
at the perplexity of held-out documents, the temperature, and how fast it goes."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from strang import data as sources
from strang.dynamics import dynamics_class
from strang.dynamics.fields import make
from strang.lda.completion import HeldOut, add_sample, begin, perplexity, split, topic_shares
from strang.lda.corpus import Corpus, open_corpus
from strang.lda.model import TopicModel
from strang.lda.page import write_page
from strang.lda.sample_sums import SampleSums, forget_sums, load_sums, no_samples, save_sums
from strang.lda.settings import IN_JSON, completed, looked_at, spacing
from strang.run.api import request
from strang.run.driver import Look, Observer, drive
from strang.run.result import Run
from strang.sampling.chain import Chain
from strang.sampling.request import Job
from strang.schedule import slowing
from strang.storage.series import latest, read_series
from strang.storage.store import Store, stored_parts
from strang.util.errors import InputError
from strang.util.files import write_npz
from strang.util.front_door import front_door
from strang.util.signatures import defaults, renamed

FILES = ("kept-*.npz", "topics.npz")


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
    """Learn topics in a folder from a corpus; the same call goes on after a kill.

    Args:
        folder: where `topics.npz`, a page and what the fit needs to go on are kept.
        corpus: a folder that `strang lda prepare` made, or a `strang.lda.Corpus` in memory.
        topics: topics K.
        passes: times that the corpus is seen; by default once, or as often as makes 800 batches.
        batch_size: documents per minibatch; by default about 60,000 tokens, at most a tenth of the documents.
        batch_order: `iid`, `reshuffled`, `symmetric` or `cyclic`.
        dynamics: `sgrld`, `sghmc`, `sgnht` or `sgld`.
        integrator: a word or name; by default the dynamics' own.
        step_size: h; by default from the corpus's size.
        decay: a of the step size h (1 + l / d)^-a at step l; by default 0, for sgrld 0.6.
        delay: d of it, in steps; by default 1000, for sgrld 8.
        friction: D; by default from the corpus's size.
        alpha: prior of a document's topic weights.
        beta: prior of a topic's words.
        parametrisation: see `strang.lda.TopicModel`; by default `expanded-natural`, for sgrld `expanded-mean`.
        sweeps: Gibbs sweeps over a document for a gradient.
        samples: posterior samples averaged, spread over the latter half.
        test_documents: documents held out; by default 1000, at most a tenth.
        seed: of start, minibatches, noise and the split of held-out documents.
        parts: what a minibatch is cut in for processes to share; by default one part for each.
        progress: whether to show a progress bar; None: on a terminal.

    Returns:
        The settings and what came out, as `strang lda fit --json` prints it.

    Raises:
        InputError: a setting cannot be, the corpus is damaged, or the folder holds another run.
        OSError: the folder could not be written.
    """
    given = {name: value for name, value in locals().items() if name in DEFAULTS}
    whole = corpus if isinstance(corpus, Corpus) else open_corpus(corpus, verify=True, progress=progress)
    settings = completed(given, whole)
    settings["parts"] = stored_parts(folder, settings["parts"])
    train, held_out = whole.split(settings["test_documents"])
    test = split(held_out.gather(np.arange(held_out.documents)), seed=settings["seed"])
    job = job_of(settings, train)
    place = None if isinstance(corpus, Corpus) else str(Path(corpus).resolve())  # to be found from anywhere
    about = {"command": "lda fit", "options": settings, "corpus": place}
    store = Store(folder, job, None, about, FILES)
    try:
        empty = no_samples(test, job.program.model)
        step = int(store.chain.step) if store.writes else 0
        sums = load_sums(Path(folder), empty, job.program.model, step) if step else empty
        observer = Looks(replace(job, chain=store.chain), store, test, settings)
        outcome = drive(observer.job, observer, kept=sums, store=store, progress=progress)
        chain, sums = outcome.chain, outcome.look.kept
        if store.writes:
            save_topics(Path(folder), job, chain, sums, train.words, test)
        result = summary(Path(folder), job, chain, settings, whole, test) | {"samples": sums.score.samples}
        return result | {"page": write_page(Path(folder), result, whole) if store.writes else None}
    finally:
        store.close()


DEFAULTS = defaults(fit, "progress")


def model_of(settings: dict[str, Any], words: int, tokens: float, documents: Corpus | None = None) -> TopicModel:
    """The model of so many words; `tokens` in all say how large SGRLD's unit is."""
    riemannian = dynamics_class(settings["dynamics"]).__name__ == "SGRLD"
    if riemannian and settings["parametrisation"] != "expanded-mean":
        raise InputError("sgrld's metric is that of expanded-mean; leave out --parametrisation.")
    return TopicModel(
        settings["topics"],
        words,
        alpha=settings["alpha"],
        beta=settings["beta"],
        parametrisation=settings["parametrisation"],
        sweeps=settings["sweeps"],
        scale=tokens / settings["topics"] if riemannian and settings["topics"] > 0 else 0.0,
        documents=documents,
    )


def motion_of(settings: dict[str, Any]) -> dict[str, Any]:
    """Dynamics, integrator and step sizes."""
    size, decay, delay = settings["step_size"], settings["decay"], settings["delay"]
    return {
        "dynamics": make(dynamics_class(settings["dynamics"]), friction=settings["friction"]),
        "integrator": settings["integrator"],
        "step_size": slowing(size, decay, delay) if decay else size,
    }


def job_of(settings: dict[str, Any], train: Corpus, chains: int = 1) -> Job:
    """The checked request to the core, whose step size may differ between chains. A datum is a document's number: only
    its batch is ever in memory."""
    batch_size = min(settings["batch_size"], train.documents)
    steps = max(2, round(settings["passes"] * train.documents / batch_size))
    return request(
        model_of(settings, len(train.words), train.tokens, train),
        sources.arrays(
            np.arange(train.documents, dtype=np.uint32), batch_size=batch_size, batch_order=settings["batch_order"]
        ),
        **motion_of(settings),
        steps=steps,
        chains=chains,
        seed=settings["seed"],
        average=None,
        burn_in=steps // 2,
        parts=settings["parts"],
    )


class Looks(Observer):
    """Looks at the held-out documents, at steps that follow from the settings alone; after burn-in the topics join the
    average over posterior samples."""

    label = "learning topics"

    def __init__(self, job: Job, store: Store, test: HeldOut, settings: dict[str, Any]):
        self.job, self.store, self.test, self.settings = job, store, test, settings
        self.every = spacing(job.steps, settings["samples"])
        self.before = latest(read_series(store.folder))
        self.started = time.perf_counter(), time.process_time()

    def look(self, chain: Chain, before: Look) -> Look:
        step, looks = int(chain.step), looked_at(int(chain.step), self.job.steps, self.settings["samples"])
        if not (self.store.writes and looks and chain.alive[0]):
            return before._replace(text=f"{before.text.partition(';')[0]}; {self.rate(step):,.0f} documents/s")
        sums, found = score(self.job, chain, self.test, before.kept, self.settings)
        text = f"perplexity {found['perplexity_last']:.0f}"
        text += "" if found["temperature"] is None else f", temperature {found['temperature']:.3g}"
        return Look(sums, found, f"{text}; {self.rate(step):,.0f} documents/s")

    def line(self, chain: Chain, look: Look, seconds: float) -> dict[str, Any]:
        step = int(chain.step)
        line = {"step": step, "documents": step * self.job.inputs.data.batch_size, **(look.measured or {})}
        spent = time.perf_counter() - self.started[0], time.process_time() - self.started[1]
        for name, value in zip(("spent_seconds", "cpu_seconds"), spent, strict=True):
            line[name] = self.before.get(name, 0.0) + value
        return line

    def write(self, chain: Chain, look: Look) -> None:
        save_sums(self.store.folder, look.kept, int(chain.step))

    def written(self, step: int) -> None:
        forget_sums(self.store.folder, step)

    def rate(self, step: int) -> float:
        """Documents per second in this process."""
        made = (step - int(self.job.chain.step)) * self.job.inputs.data.batch_size
        return made / max(time.perf_counter() - self.started[0], 1e-9)


def score(job: Job, chain: Chain, test: HeldOut, sums: SampleSums, settings) -> tuple[SampleSums, dict[str, Any]]:
    """Score the topics as they stand; after burn-in they join the average."""
    step, model = int(chain.step), job.program.model
    phi = np.asarray(model.topics_of(chain.state.position[0]), np.float32)
    averaging = step > job.steps // 2
    scored = sums.score if averaging else begin(test)
    scored = add_sample(test, scored, phi, alpha=settings["alpha"], key=[settings["seed"], step])
    dynamics = job.inputs.dynamics
    temperature = None
    if hasattr(dynamics, "temperature"):
        temperature = float(dynamics.temperature(jax.tree.map(lambda x: x[0], chain.state)))
    found = {
        "perplexity_last": perplexity(test, scored, last=True),
        "perplexity": perplexity(test, scored) if averaging else None,
        "temperature": temperature,
    }
    return SampleSums(scored, sums.mean + phi, sums.square + phi**2) if averaging else sums, found


def save_topics(folder: Path, job: Job, chain: Chain, sums: SampleSums, words: list[str], test: HeldOut) -> None:
    """topics.npz: the posterior mean and standard deviation of φ over the samples, the last sample, the words, and the
    topics' shares of the held-out documents' seen tokens."""
    if not chain.alive[0]:
        return
    last = np.asarray(job.program.model.topics_of(chain.state.position[0]), np.float32)
    count = sums.score.samples
    mean = sums.mean / count if count else last
    spread = np.sqrt(np.maximum(sums.square / count - mean**2, 0)) if count > 1 else np.full_like(last, np.nan)
    share = topic_shares(test.seen, mean, alpha=job.program.model.alpha)
    arrays = {"mean": mean, "sd": spread, "last": last, "words": np.array(words), "share": share, "samples": count}
    write_npz(folder / "topics.npz", arrays)


def summary(folder: Path, job: Job, chain: Chain, settings, corpus: Corpus, test: HeldOut) -> dict[str, Any]:
    """What came out."""
    last = latest(read_series(folder))
    return {
        **renamed(settings, IN_JSON),
        "parts": job.program.parts,  # also where none was asked for
        "perplexity": last.get("perplexity"),
        "perplexity_last": last.get("perplexity_last"),
        "documents": int(chain.step) * job.inputs.data.batch_size,
        "corpus_documents": corpus.documents,
        "corpus_tokens": corpus.tokens,
        "vocabulary": len(corpus.words),
        "held_out": test.how,
        "integrator": job.program.step.name,
        "steps": int(chain.step),
        "seconds": last.get("spent_seconds"),
        "cpu_seconds": last.get("cpu_seconds"),
        "temperature": last.get("temperature"),
        "diverged": Run(job, chain, 0.0, None, False).diverged,
        "finished": int(chain.step) >= job.steps,
    }


def resume(folder: Path, spec: dict[str, Any], more: int | None) -> dict[str, Any]:
    """Go on with a stored fit to its end."""
    about = spec["about"]
    options, corpus = about.get("options"), about.get("corpus")
    if not isinstance(options, dict) or {*options, "parts"} != set(DEFAULTS) or not isinstance(corpus, str):
        raise InputError(f"{folder / 'spec.json'} has no corpus to go on with, or is damaged.")
    if more is not None:
        raise InputError("the length of a fit is its passes; write another folder with more of them.")
    return fit(folder, corpus, **options)
