"""The settings of a fit, and how those that are not set follow from the corpus."""

from typing import TYPE_CHECKING, Any

import numpy as np

from strang.util.errors import InputError, choose, whole

if TYPE_CHECKING:
    from strang.lda.corpus import Corpus

IN_JSON = {"batch_size": "batch", "batch_order": "batches"}  # names of the first results, kept for their readers
PARAMETRISATIONS = ("reduced-mean", "reduced-natural", "expanded-mean", "expanded-natural")
MIN_STEPS = 800
BATCH_TOKENS = 60_000
FREQUENCY_DOCUMENTS = 20_000  # in which the most frequent word is counted


def completed(settings: dict[str, Any], corpus: "Corpus") -> dict[str, Any]:
    """Fill in the settings that are None, from the corpus, and check all. SGRLD's step is a fraction of the way to a
    batch's counts, so that one schedule serves every corpus. The others' are those of `step_sizes`, with a friction D
    for which h / D, which corresponds to SGLD's step, is SGLD's own."""
    kind, documents, tokens = settings["dynamics"].lower(), max(corpus.documents, 1), max(corpus.tokens, 1)
    riemannian, has_friction = kind == "sgrld", kind in ("sghmc", "sgnht")
    chosen = {
        "parametrisation": "expanded-mean" if riemannian else "expanded-natural",
        "integrator": "split" if riemannian else None,
        "step_size": 1.0 if riemannian else None,
        "decay": 0.6 if riemannian else 0.0,
        "delay": 8.0 if riemannian else 1000.0,
        "test_documents": max(1, min(1000, documents // 10)),
        "batch_size": max(1, min(round(BATCH_TOKENS * documents / tokens), documents // 10)),
    }
    settings |= {name: value for name, value in chosen.items() if settings[name] is None}
    if settings["step_size"] is None or (has_friction and settings["friction"] is None):
        first_order, second_order = step_sizes(corpus)
        if settings["step_size"] is None:
            settings["step_size"] = second_order if has_friction else first_order
        if has_friction and settings["friction"] is None:
            settings["friction"] = settings["step_size"] / first_order
    if settings["passes"] is None:
        settings["passes"] = float(max(1, round(MIN_STEPS * max(settings["batch_size"], 1) / documents)))
    if settings["parametrisation"] not in PARAMETRISATIONS:
        raise choose("parametrisation", settings["parametrisation"], PARAMETRISATIONS)
    for name in ("batch_size", "samples", "test_documents"):
        settings[name] = whole(name, settings[name])
    settings["seed"] = whole("seed", settings["seed"], 0, 2**64 - 1)
    for name in ("passes", "delay"):
        if not 0 < settings[name] < np.inf:
            raise InputError(f"{name} is {settings[name]}; write a positive number.")
    return settings


def step_sizes(corpus: "Corpus") -> tuple[float, float]:
    """Safe step sizes of SGLD and SGHMC: about half of those at which they diverge. The count n of the most frequent
    word bounds the curvature of log φ; on three corpora steps diverged from about 20 / n and 2.5 / √n on."""
    _, words, counts = corpus.gather(np.arange(min(corpus.documents, FREQUENCY_DOCUMENTS)))
    frequency = np.bincount(words, weights=counts, minlength=1)
    largest = max(frequency.max() / max(frequency.sum(), 1) * corpus.tokens, 1.0)
    return float(min(8 / largest, 0.01)), float(min(1.2 / largest**0.5, 0.01))


def scoring_interval(steps: int, samples: int) -> int:
    """Steps between two scorings of the topics, so that the latter half has at least `samples` of them."""
    return max(1, (steps - steps // 2) // samples)


def is_scored(step: int, steps: int, samples: int) -> bool:
    """Whether the topics are scored after a step: at each `scoring_interval` of the first half, and `samples` times in
    the latter half (at every step if it has fewer), evenly spread and including the last step.

    >>> [step for step in range(1, 16) if is_scored(step, 15, 3)]
    [2, 4, 6, 10, 14, 15]
    """
    every = scoring_interval(steps, samples)
    if step % every and step != steps:
        return False
    first = steps // 2 // every
    place, places = -(-step // every) - first, -(-steps // every) - first
    return place <= 0 or place * samples // places > (place - 1) * samples // places
