"""The paper's settings for topic models, as far as it states them (Section 5.2)."""

from typing import Any

from strang.lda.settings import IN_JSON
from strang.util.signatures import renamed

STATED: dict[str, Any] = {
    "topics": 200,  # and 500
    "passes": 1.0,
    "batch_size": 100,
    "dynamics": "sghmc",
    "integrator": "chen:ABOBA",
    "parametrisation": "expanded-natural",
    "samples": 300,
    "test_documents": 1000,
    "decay": 0.0,
}
STEP_SIZES = (2e-5, 5e-5, 8e-5, 2e-4, 5e-4, 8e-4)  # it chose from these two by 1,000 validation documents
FRICTIONS = (20.0, 40.0, 80.0)
CHOSEN: dict[str, Any] = {"step_size": 5e-4, "friction": 40.0}
OF_SGHMC = ("integrator", "parametrisation", "friction", "step_size", "decay")  # which others have not, or not so
SILENT = ("alpha", "beta", "sweeps", "batches", "seed")  # of which it says nothing, by their names in results


def settings(given: dict[str, Any]) -> dict[str, Any]:
    """The paper's settings under those given, which win; without what belongs to its dynamics where others are."""
    return {**left(STATED, given), **left(CHOSEN, given), **given}


def left(theirs: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """What is taken of the paper's where these are given."""
    same = given.get("dynamics", STATED["dynamics"]).lower() == STATED["dynamics"]
    return {name: value for name, value in theirs.items() if name not in given and (same or name not in OF_SGHMC)}


def told(given: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """What of a fit is the paper's, what it leaves open, and what was asked for instead."""
    named = renamed(given, IN_JSON)
    return {
        "stated": renamed(left(STATED, given), IN_JSON),
        "of_its_grid": left(CHOSEN, given),
        "averaged": result["samples"],
        "not_stated": {name: result[name] for name in SILENT if name not in named},
        "given": named,
    }


def describe(found: dict[str, Any]) -> list[str]:
    def text(pairs: dict[str, Any]) -> str:
        return ", ".join(
            f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in pairs.items()
        )

    lines = [f"the paper's settings: {text(found['stated'])}"]
    if found["of_its_grid"]:
        grid = f"steps {text_of(STEP_SIZES)} and frictions {text_of(FRICTIONS)}"
        lines.append(f"it does not say which of its {grid} it settled on; here {text(found['of_its_grid'])}")
    if found["averaged"] != found["stated"].get("samples", found["averaged"]):
        lines.append(f"of these samples {found['averaged']} were taken: one a step of the latter half at most")
    lines.append(f"it does not state {text(found['not_stated'])}: these are ours")
    return lines + ([f"given instead: {text(found['given'])}"] if found["given"] else [])


def text_of(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:g}" for value in values)
