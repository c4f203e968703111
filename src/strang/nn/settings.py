"""What an estimator chooses where its user says nothing."""

from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

from strang.util.errors import InputError, whole

FULL_ROWS = 4096  # up to which chains use all rows at every step
SWEEP = 10  # batches per epoch of the chains, beyond; the noise of longer sweeps heats them
STEPS = 3000  # of each chain from which draws are taken
BATCH = 64  # rows per step of the optimiser
PATIENCE, LOOKS = 20, 400  # looks at the held-out rows without a better one, and at most


@dataclass(frozen=True)
class Settings:
    """All numbers of a fit."""

    output: str
    network: str  # what it is made of
    rows: int
    starts: int
    draws: int
    steps: int
    settling: int
    batch_size: int | None  # of the chains; None: all rows
    temperature: float | None  # None: chosen on held-out rows
    learning_rate: float
    optimiser_batch: int
    every: int  # steps between two looks at held-out rows
    seed: int
    seconds: float | None
    store: Path | None
    progress: bool | None

    def chosen(self, fitted: Any) -> dict[str, Any]:
        """What users are told."""
        order = "all rows at every step" if self.batch_size is None else f"symmetric sweeps of {self.batch_size:,} rows"
        return {
            "rows": self.rows,
            "starts": self.starts,
            "optimiser": f"AdamW, {self.optimiser_batch} rows per step, learning rate {self.learning_rate:g}",
            "optimiser_steps": fitted.search_steps,
            "held_out_nll": fitted.held_out_nll.tolist(),
            "batches": order,
            "integrator": fitted.integrator,
            "step_size": fitted.step_size,
            "friction": fitted.friction,
            "temperature": fitted.choice.temperature,
            **({"sharpness": fitted.choice.sharpness} if self.output == "classes" else {}),
            **({"held_out_nll_of_temperatures": fitted.choice.losses} if fitted.choice.losses else {}),
            "prior_sd": fitted.layer_scales() or self.network,
            "settling_steps": self.settling,
            "steps": self.steps,
            "draws": self.starts * fitted.draws_each,
            "seed": self.seed,
        }


def described(given: dict[str, Any]) -> str:
    """What a network is made of, in words that are the same in every process."""
    named = {key: given[key] for key in ("hidden_layer_sizes", "activation", "prior", "prior_sd", "network")}
    return ", ".join(f"{key} {value if plain(value) else name_of(value)}" for key, value in named.items())


def plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | tuple | list)


def name_of(value: Any) -> str:
    return getattr(value, "__qualname__", type(value).__qualname__)


def positive(name: str, value: Any) -> None:
    """Raises unless it is a positive, finite number."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < float("inf"):
        raise InputError(f"{name} is {value!r}; write a positive number.")


def settings_of(given: dict[str, Any], output: str, rows: int, seed: int) -> Settings:
    """The settings of a fit of so many rows, from an estimator's arguments."""
    steps = STEPS if given["steps"] is None else whole("steps", given["steps"], 2)
    temperature = given["temperature"]
    if temperature is None and output != "classes":
        temperature = 1.0
    if temperature is not None:
        positive("temperature", temperature)
    positive("learning_rate", given["learning_rate"])
    if given["seconds"] is not None:
        positive("seconds", given["seconds"])
    batch = given["batch_size"]
    if batch is None:
        batch = None if rows <= FULL_ROWS else -(-rows // SWEEP)
    else:
        batch = whole("batch_size", batch)
        batch = None if batch >= rows else batch
    learnt = min(BATCH, max(1, rows // 2))
    store = given["store"]
    if not isinstance(store, str | Path | None):
        raise InputError(f"store is {store!r}; write the path of a folder.")
    return Settings(
        output=output,
        network=described(given),
        rows=rows,
        starts=whole("starts", given["starts"]),
        draws=whole("draws", given["draws"]),
        steps=steps,
        settling=max(1, steps // 2),
        batch_size=batch,
        temperature=None if temperature is None else float(temperature),
        learning_rate=float(given["learning_rate"]),
        optimiser_batch=learnt,
        every=max(50, -(-rows // learnt)),
        seed=seed,
        seconds=given["seconds"],
        store=None if store is None else Path(store),
        progress=given["verbose"],
    )
