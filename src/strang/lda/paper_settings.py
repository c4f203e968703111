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
SGHMC_ONLY = ("integrator", "parametrisation", "friction", "step_size", "decay")  # not for other dynamics
NOT_STATED = ("alpha", "beta", "sweeps", "batches", "seed")  # by their names in results


def settings(options: dict[str, Any]) -> dict[str, Any]:
    """The paper's settings, overridden by the options; without those of SGHMC if the options have other dynamics."""
    return {**remaining(STATED, options), **remaining(CHOSEN, options), **options}


def remaining(paper: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Those of the paper's settings that the options leave in force."""
    same = options.get("dynamics", STATED["dynamics"]).lower() == STATED["dynamics"]
    return {name: value for name, value in paper.items() if name not in options and (same or name not in SGHMC_ONLY)}


def comparison(options: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """Which settings of a fit are the paper's, which it leaves open, and which were asked for instead."""
    named = renamed(options, IN_JSON)
    return {
        "stated": renamed(remaining(STATED, options), IN_JSON),
        "of_its_grid": remaining(CHOSEN, options),
        "averaged": result["samples"],
        "not_stated": {name: result[name] for name in NOT_STATED if name not in named},
        "given": named,
    }


def describe(compared: dict[str, Any]) -> list[str]:
    """The comparison as lines of text."""

    def text(values: dict[str, Any]) -> str:
        shortest = {name: f"{value:g}" if isinstance(value, float) else value for name, value in values.items()}
        return ", ".join(f"{name} {value}" for name, value in shortest.items())

    lines = [f"the paper's settings: {text(compared['stated'])}"]
    if compared["of_its_grid"]:
        sizes, frictions = (", ".join(f"{value:g}" for value in grid) for grid in (STEP_SIZES, FRICTIONS))
        grid = f"step sizes {sizes} and frictions {frictions}"
        lines.append(f"it does not say which of its {grid} it chose; here {text(compared['of_its_grid'])}")
    if compared["averaged"] != compared["stated"].get("samples", compared["averaged"]):
        lines.append(f"of these samples {compared['averaged']} were taken: at most one per step of the latter half")
    lines.append(f"it does not state {text(compared['not_stated'])}: these are ours")
    return lines + ([f"set instead: {text(compared['given'])}"] if compared["given"] else [])
