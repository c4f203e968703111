"""Learning topics from a prepared corpus, streaming: a folder that a killed fit goes on from, and on the way looks
at the perplexity of held-out documents, the temperature, and how fast it goes."""

import io
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from .. import data
from ..chain import Chain
from ..dynamics import SGRLD
from ..errors import InputError, choose, first_line
from ..files import replace_file
from ..models import LDA
from ..prepare import Job, prepare
from ..progress import bar
from ..run import Run, run_blocks
from ..schedule import slowing
from ..store import Store, cuts, latest, read_series
from ..words import dynamics_class, with_friction
from .corpus import Corpus, open_corpus
from .page import write_page
from .score import HeldOut, Score, add_sample, begin, perplexity, split, topic_shares
from .settings import DEFAULTS, completed, looked_at, spacing


class Kept(NamedTuple):
    """What is averaged over posterior samples: the held-out words' probabilities, the topics, and their squares."""

    score: Score
    mean: np.ndarray  # Σ φ, (V, K)
    square: np.ndarray  # Σ φ²


def job_of(settings: dict[str, Any], train: Corpus, chains: int = 1) -> Job:
    """The checked request to the core, whose step size may differ between chains. A datum is a document's number: only
    its batch is ever in memory."""
    kind = dynamics_class(settings["dynamics"])
    if kind.__name__ == "SGRHMC":
        raise InputError("sgrhmc needs a metric, which is a function: use strang.sample in Python, or choose sghmc.")
    riemannian = kind is SGRLD
    if riemannian and settings["parametrisation"] != "expanded-mean":
        raise InputError("sgrld's metric is that of expanded-mean; leave out --parametrisation.")
    model = LDA(
        settings["topics"],
        len(train.words),
        alpha=settings["alpha"],
        beta=settings["beta"],
        parametrisation=settings["parametrisation"],
        sweeps=settings["sweeps"],
        scale=train.tokens / settings["topics"] if riemannian and settings["topics"] > 0 else 0.0,
        documents=train,
    )
    batch = min(settings["batch"], train.documents)
    steps = max(2, round(settings["passes"] * train.documents / batch))
    size, decay, delay = settings["step_size"], settings["decay"], settings["delay"]
    return prepare(
        model,
        data.arrays(np.arange(train.documents, dtype=np.uint32), batch=batch, order=settings["batches"]),
        with_friction(kind, settings["friction"]),
        integrator=settings["integrator"],
        step_size=slowing(size, decay, delay) if decay else size,
        steps=steps,
        chains=chains,
        seed=settings["seed"],
        average=None,
        burn_in=steps // 2,
        parts=settings["parts"],
    )


def fit(folder: str | Path, corpus: str | Path | Corpus, *, progress: bool | None = None, **given) -> dict[str, Any]:
    """Learn topics in a folder from a corpus (prepared, or in memory) and report; the same call goes on after a kill.
    Settings as in DEFAULTS."""
    unknown = set(given) - set(DEFAULTS)
    if unknown:
        raise choose("setting", sorted(unknown)[0], DEFAULTS)
    whole = corpus if isinstance(corpus, Corpus) else open_corpus(corpus, verify=True, progress=progress)
    settings = completed({**DEFAULTS, **given}, whole)
    settings["parts"] = cuts(folder, {"parts": settings["parts"]})["parts"]
    train, held_out = whole.split(settings["test_documents"])
    test = split(held_out.gather(np.arange(held_out.documents)), seed=settings["seed"])
    job = job_of(settings, train)
    place = None if isinstance(corpus, Corpus) else str(Path(corpus).resolve())  # to be found from anywhere
    about = {"command": "lda fit", "options": settings, "corpus": place}
    store = Store(folder, job, None, about)
    try:
        kept = load_kept(Path(folder), test, job, int(store.chain.step) if store.writes else 0)
        chain, kept = learn(replace(job, chain=store.chain), store, test, kept, settings, progress)
        if store.writes:
            save_topics(Path(folder), job, chain, kept, train.words, test)
        result = summary(Path(folder), job, chain, settings, whole, test) | {"samples": kept.score.samples}
        return result | {"page": write_page(Path(folder), result, whole) if store.writes else None}
    finally:
        store.close()


def learn(job: Job, store: Store, test: HeldOut, kept: Kept, settings, progress: bool | None) -> tuple[Chain, Kept]:
    """Advance to the end or until Ctrl-C, with looks at the held-out documents at steps that follow from the settings
    alone; saved after each look, some seconds, and at the end."""
    text, found = "", dict[str, Any]()
    reached = job.chain, kept, found
    before = latest(read_series(store.folder))
    started = time.perf_counter(), time.process_time()

    def save(chain: Chain, kept: Kept, found: dict[str, Any]) -> None:
        step, spent = int(chain.step), (time.perf_counter() - started[0], time.process_time() - started[1])
        line = {"step": step, "documents": step * job.inputs.data.batch, **found}
        for name, seconds in zip(("spent_seconds", "cpu_seconds"), spent, strict=True):
            line[name] = before.get(name, 0.0) + seconds
        with store.telling():
            save_kept(store.folder, kept, step)
        store.save(chain, line)
        forget_kept(store.folder, step)

    with bar(job.steps, "learning topics", progress) as done:
        try:
            done(int(job.chain.step))
            for chain, _ in run_blocks(job, None, spacing(job.steps, settings["samples"])):
                step, found = int(chain.step), {}
                if not chain.alive[0]:
                    reached = chain, kept, found
                    break
                if store.writes and looked_at(step, job.steps, settings["samples"]):
                    kept, found = look(job, chain, test, kept, settings)
                    text = f"perplexity {found['perplexity_last']:.0f}"
                    text += "" if found["temperature"] is None else f", mean p² {found['temperature']:.3g}"
                reached = chain, kept, found  # at once: Ctrl-C comes before or after
                if found or store.due(step):
                    save(*reached)
                done(step, f"{text}, {rate(job, chain, started[0]):,.0f} documents/s")
        except KeyboardInterrupt:
            pass
    chain, kept, _ = reached
    if store.writes and chain.alive[0] and int(chain.step) > store.step:
        save(*reached)
    return chain, kept


def rate(job: Job, chain: Chain, started: float) -> float:
    """Documents a second in this process."""
    steps = int(chain.step) - int(job.chain.step)
    return steps * job.inputs.data.batch / max(time.perf_counter() - started, 1e-9)


def look(job: Job, chain: Chain, test: HeldOut, kept: Kept, settings) -> tuple[Kept, dict[str, Any]]:
    """Score the topics as they stand; after burn-in they join the average."""
    step, model = int(chain.step), job.program.model
    phi = np.asarray(model.topics_of(chain.state.position[0]), np.float32)
    averaging = step > job.steps // 2
    score = kept.score if averaging else begin(test)
    score = add_sample(test, score, phi, alpha=settings["alpha"], key=[settings["seed"], step])
    dynamics = job.inputs.dynamics
    heat = None
    if hasattr(dynamics, "temperature"):
        heat = float(dynamics.temperature(jax.tree.map(lambda x: x[0], chain.state)))
    found = {
        "perplexity_last": perplexity(test, score, last=True),
        "perplexity": perplexity(test, score) if averaging else None,
        "temperature": heat,
    }
    if averaging:
        kept = Kept(score, kept.mean + phi, kept.square + phi**2)
    return kept, found


def save_kept(folder: Path, kept: Kept, step: int) -> None:
    """What is averaged, beside the chain that it belongs to."""
    buffer = io.BytesIO()
    arrays = {**kept.score._asdict(), "mean": kept.mean, "square": kept.square}
    np.savez(buffer, allow_pickle=False, **arrays)
    replace_file(folder / f"kept-{step}.npz", buffer.getvalue())


def forget_kept(folder: Path, step: int) -> None:
    for path in folder.glob("kept-*.npz"):
        if path.name != f"kept-{step}.npz":
            path.unlink()


def load_kept(folder: Path, test: HeldOut, job: Job, step: int) -> Kept:
    """What was averaged when the chain was saved; nothing at the start."""
    shape = (job.program.model.vocabulary, job.program.model.topics)
    empty = Kept(begin(test), np.zeros(shape, np.float32), np.zeros(shape, np.float32))
    if step == 0:
        return empty
    path = folder / f"kept-{step}.npz"
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            arrays = {name: file[name] for name in (*Score._fields, "mean", "square")}
    except Exception as error:  # a damaged archive raises almost anything
        raise InputError(
            f"{path} is damaged ({first_line(error)}); the fit cannot go on from it. Begin in another folder."
        ) from None
    score = Score(arrays["topics"], arrays["total"], arrays["last"], int(arrays["samples"]))
    found = Kept(score, arrays["mean"], arrays["square"])
    same = [a.shape == np.shape(b) for a, b in zip(score[:3], empty.score[:3], strict=True)]
    known = score.topics.dtype == np.int32 and np.isin(score.topics, np.arange(shape[1])).all()
    if not (known and all(same) and found.mean.shape == found.square.shape == shape):
        raise InputError(f"{path} is damaged (other shapes or topics); begin in another folder.")
    return found


def save_topics(folder: Path, job: Job, chain: Chain, kept: Kept, words: list[str], test: HeldOut) -> None:
    """topics.npz: the posterior mean and standard deviation of φ over the samples, the last sample, the words, and the
    topics' shares of the held-out documents' seen tokens."""
    if not chain.alive[0]:
        return
    last = np.asarray(job.program.model.topics_of(chain.state.position[0]), np.float32)
    count = kept.score.samples
    mean = kept.mean / count if count else last
    spread = np.sqrt(np.maximum(kept.square / count - mean**2, 0)) if count > 1 else np.full_like(last, np.nan)
    share = topic_shares(test.seen, mean, alpha=job.program.model.alpha)
    found = {"mean": mean, "sd": spread, "last": last, "words": np.array(words), "share": share, "samples": count}
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **found)
    replace_file(folder / "topics.npz", buffer.getvalue())


def summary(folder: Path, job: Job, chain: Chain, settings, corpus: Corpus, test: HeldOut) -> dict[str, Any]:
    """What came out."""
    last = latest(read_series(folder))
    return {
        **settings,
        "parts": job.program.cuts.parts,  # also where none was asked for
        "perplexity": last.get("perplexity"),
        "perplexity_last": last.get("perplexity_last"),
        "documents": int(chain.step) * job.inputs.data.batch,
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
