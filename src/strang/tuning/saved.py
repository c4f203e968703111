"""A tuning as a file, so that a stored run that goes on need not be tuned again. Nothing is pickled."""

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang.coordinates import Dense, Diagonal
from strang.dynamics import DYNAMICS
from strang.gradients.estimators import ControlVariate, Minibatch, control_variate
from strang.models.base import natural_now
from strang.tuning.choice import Noise, Option
from strang.tuning.pilot import Trial
from strang.tuning.tuning import Tuning, describe
from strang.util.files import damaged, read_npz, write_npz
from strang.util.trees import Tree

NAME = "tuning.npz"
AGAIN = "delete it, and everything is chosen anew."
COORDINATES: dict[str, Any] = {"Dense": Dense, "Diagonal": Diagonal}
PLAIN = (
    "integrator", "step_size", "batch_order", "batch_size", "burn_in", "chains", "coupled", "error", "rows", "seconds",
)  # fmt: skip


def save(folder: Path, tuning: Tuning, given: dict[str, Any] | None = None) -> bool:
    """Writes the tuning to a folder, if it is made of what can be read again: named words, and coordinates and
    gradients of this library, or such as are `given` when it is read too. Otherwise a run that goes on is tuned again,
    to the same numbers."""
    dynamics, coordinates, gradient = tuning.dynamics, tuning.coordinates, tuning.gradient
    own = tuple(type(value) for name, value in (given or {}).items() if name in ("coordinates", "gradient"))
    known = type(dynamics) in DYNAMICS.values() and type(coordinates) in (*COORDINATES.values(), *own)
    settings = {f.name: getattr(dynamics, f.name) for f in fields(dynamics)}  # type: ignore[arg-type]
    plain = all(isinstance(value, int | float | str | None) for value in settings.values())
    if not (
        known and plain and isinstance(tuning.integrator, str) and type(gradient) in (Minibatch, ControlVariate, *own)
    ):
        return False
    known_content = {**content(tuning), "dynamics": [type(dynamics).__name__.lower(), settings]}
    trees = {"starts": tuning.starts, "mode": tuning.mode, "coordinates": coordinates}
    arrays = {
        f"{name}.{k}": np.asarray(leaf) for name, tree in trees.items() for k, leaf in enumerate(jax.tree.leaves(tree))
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_npz(folder / NAME, {"content": np.frombuffer(json.dumps(known_content).encode(), np.uint8), **arrays})
    return True


def content(tuning: Tuning) -> dict[str, Any]:
    """All of a tuning but its arrays, as JSON can hold it."""
    word = tuning.integrator
    return {
        **{name: getattr(tuning, name) for name in PLAIN},
        "integrator": word if isinstance(word, str) else getattr(word, "name", str(word)),
        "dynamics": type(tuning.dynamics).__name__,
        "coordinates": type(tuning.coordinates).__name__,
        "gradient": type(tuning.gradient).__name__,
        "options": [asdict(option) for option in tuning.options],
        "noise": None if tuning.noise is None else list(tuning.noise),
        "trials": [asdict(trial) for trial in tuning.trials],
        "notes": list(tuning.notes),
        "problems": list(tuning.problems),
        "lines": describe(tuning),
    }


def load(folder: Path, model: Any, position: Tree, given: dict[str, Any] | None = None) -> Tuning | None:
    """The tuning in a folder, for a model of which this is what a chain moves; None where there is none. Coordinates
    and gradients of others' making must be `given`: of coordinates only the numbers are read.

    Raises:
        InputError: the file is damaged, or of another model.
    """
    path = folder / NAME
    if not path.exists():
        return None
    arrays = read_npz(path, AGAIN)
    try:
        known = json.loads(bytes(arrays["content"]))
        like = jax.tree.map(jnp.asarray, position)

        def tree(name: str, like: Any) -> Any:
            leaves, structure = jax.tree.flatten(like)
            found = [arrays[f"{name}.{k}"] for k in range(len(leaves))]
            lead = 1 if name == "starts" else 0
            if any(x.shape[lead:] != np.shape(y) for x, y in zip(found, leaves, strict=True)):
                raise ValueError("it is of another model")
            return jax.tree.unflatten(structure, found)

        kind, given = known["coordinates"], given or {}
        count = sum(leaf.size for leaf in jax.tree.leaves(like))
        square = np.zeros((count, count))
        shape: Any = given.get("coordinates")
        if kind in COORDINATES:
            shape = Dense(like, square, square) if COORDINATES[kind] is Dense else Diagonal(like, like)
        if shape is None:
            raise ValueError("its coordinates are not given")
        mode = tree("mode", natural_now(model, like))
        name, settings = known["dynamics"]
        estimators = {"ControlVariate": control_variate(jax.tree.map(jnp.asarray, mode)), "Minibatch": Minibatch()}
        estimator = estimators.get(known["gradient"], given.get("gradient"))
        if estimator is None:
            raise ValueError("its gradient is not given")
        return Tuning(
            **{name: known[name] for name in PLAIN},
            dynamics=DYNAMICS[name](**settings),
            coordinates=jax.tree.map(jnp.asarray, tree("coordinates", shape)),
            gradient=estimator,
            starts=tree("starts", like),
            mode=mode,
            options=tuple(Option(**option) for option in known["options"]),
            noise=None if known["noise"] is None else Noise(*known["noise"]),
            trials=tuple(Trial(**trial) for trial in known["trials"]),
            notes=tuple(known["notes"]),
            problems=tuple(known["problems"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path, error, AGAIN) from None


def lines(folder: Path) -> list[str]:
    """What the tuning of a stored run was, for people; empty where there was none."""
    path = Path(folder) / NAME
    if not path.exists():
        return []
    try:
        return [str(line) for line in json.loads(bytes(read_npz(path, AGAIN)["content"]))["lines"]]
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path, error, AGAIN) from None
