"""The settings of a fit, and how those that are not given follow from the corpus."""

from typing import Any

import numpy as np

from strang.lda.corpus import Corpus
from strang.lda.model import PARAMETRISATIONS
from strang.util.errors import InputError, choose, whole

IN_JSON = {"batch_size": "batch", "batch_order": "batches"}  # names that results have had from the first
STEPS = 800
BATCH_TOKENS = 60_000
LOOKED_AT = 20_000  # documents, to know how frequent the most frequent word is


def completed(settings: dict[str, Any], corpus: Corpus) -> dict[str, Any]:
    """The settings with the numbers that follow from the corpus.

    SGRLD's step is the share of the way to a batch's counts, so that one schedule serves every corpus. The others' are
    those of `step_sizes`, with a friction for which h / D, what corresponds to SGLD's step, is SGLD's own.
    """
    kind, documents, tokens = settings["dynamics"].lower(), max(corpus.documents, 1), max(corpus.tokens, 1)
    riemannian, heavy = kind == "sgrld", kind in ("sghmc", "sgnht")
    chosen = {
        "parametrisation": "expanded-mean" if riemannian else "expanded-natural",
        "integrator": "split" if riemannian else None,
        "decay": 0.6 if riemannian else 0.0,
        "delay": 8.0 if riemannian else 1000.0,
        "test_documents": max(1, min(1000, documents // 10)),
        "batch_size": max(1, min(round(BATCH_TOKENS * documents / tokens), documents // 10)),
    }
    settings |= {name: value for name, value in chosen.items() if settings[name] is None}
    if riemannian and settings["step_size"] is None:
        settings["step_size"] = 1.0
    if settings["step_size"] is None or (heavy and settings["friction"] is None):
        first, second = step_sizes(corpus)
        if settings["step_size"] is None:
            settings["step_size"] = second if heavy else first
        if heavy and settings["friction"] is None:
            settings["friction"] = settings["step_size"] / first
    if settings["passes"] is None:
        settings["passes"] = float(max(1, round(STEPS * max(settings["batch_size"], 1) / documents)))
    return checked(settings)


def step_sizes(corpus: Corpus) -> tuple[float, float]:
    """Safe steps of SGLD and SGHMC: about half of where they break, which goes by the most frequent word. Its count n
    bounds the curvature of log φ; steps broke from about 20 / n and 2.5 / √n on, on three corpora."""
    _, words, counts = corpus.gather(np.arange(min(corpus.documents, LOOKED_AT)))
    seen = np.bincount(words, weights=counts, minlength=1)
    most = max(seen.max() / max(seen.sum(), 1) * corpus.tokens, 1.0)
    return float(min(8 / most, 0.01)), float(min(1.2 / most**0.5, 0.01))


def spacing(steps: int, samples: int) -> int:
    """Steps between two looks at the topics, so that the latter half has at least as many as there are samples."""
    return max(1, (steps - steps // 2) // samples)


def looked_at(step: int, steps: int, samples: int) -> bool:
    """Whether the topics are looked at after a step: at each `spacing` of the first half, and `samples` times in the
    latter half (at every step if it has fewer), spread over it and the last step among them.

    >>> [step for step in range(1, 16) if looked_at(step, 15, 3)]
    [2, 4, 6, 10, 14, 15]
    """
    every = spacing(steps, samples)
    if step % every and step != steps:
        return False
    first = steps // 2 // every
    place, places = -(-step // every) - first, -(-steps // every) - first
    return place <= 0 or place * samples // places > (place - 1) * samples // places


def checked(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings, if they can be."""
    if settings["parametrisation"] not in PARAMETRISATIONS:
        raise choose("parametrisation", settings["parametrisation"], PARAMETRISATIONS)
    for name in ("batch_size", "samples", "test_documents"):
        settings[name] = whole(name, settings[name])
    settings["seed"] = whole("seed", settings["seed"], 0, 2**64 - 1)
    for name in ("passes", "delay"):
        if not 0 < settings[name] < np.inf:
            raise InputError(f"{name} is {settings[name]}; write a positive number.")
    return settings
