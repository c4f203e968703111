"""Thinned positions as ArviZ has them, and by its measures how well the chains mix."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang.run.predict import log_likelihood_draws
from strang.storage.draws import leaf_names
from strang.util.errors import InputError, first_line, need
from strang.util.numbers import finite

COORDINATES = 100  # whose mixing is measured
NUMBERS = 1 << 24  # that are looked at for it
TAILS = (0.05, 0.95)  # the quantiles of the tail ESS


def to_arviz(
    run,
    names: dict[str, str] | None = None,
    dims: dict[str, list[str]] | None = None,
    coords: dict[str, Any] | None = None,
    log_likelihood: Any = False,
    progress: bool | None = None,
) -> Any:
    """A DataTree with the groups `posterior` (draws after burn-in, by the number of their step) and `sample_stats`:
    whether a chain had diverged, and the step sizes, by which draws are to be weighted where they decrease. Where it is
    asked for also `log_likelihood`; then only chains that are alive are there."""
    thin, burn_in = run.job.thin, int(run.job.inputs.burn_in)
    if run.draws is None:
        raise InputError("the run kept no positions; write thin=10, say, to keep every tenth.")
    draws = dict(zip(leaf_names(run.draws), jax.tree.leaves(run.draws), strict=True))
    steps = thin * np.arange(run.first_draw + 1, run.steps // thin + 1)
    unknown = set(names or {}) - set(draws)
    if unknown:
        raise InputError(f"names has {sorted(unknown)}, but the variables are {', '.join(draws)}.")
    draws = {(names or {}).get(name, name): array for name, array in draws.items()}
    sizes = np.asarray(jax.vmap(run.job.inputs.schedule)(jnp.asarray(steps, float))).T
    diverged_at, more = np.asarray(run.chain.diverged_at), None
    if log_likelihood is not False:
        sizes = np.broadcast_to(sizes, (len(run.alive), len(steps)))[run.alive]
        draws = {name: np.asarray(array)[:, run.alive] for name, array in draws.items()}
        rows = run.job.inputs.data.all_rows() if log_likelihood is True else log_likelihood
        more = {"log_likelihood": {"likelihood": log_likelihood_draws(run, rows, progress)}}
        dims, diverged_at = {"likelihood": ["row"], **(dims or {})}, diverged_at[run.alive]
    return data_tree(draws, steps, burn_in, diverged_at, sizes, dims, coords, more)


def data_tree(
    draws: dict[str, np.ndarray],
    steps: np.ndarray,
    burn_in: int,
    diverged_at: np.ndarray,
    sizes,
    dims: dict[str, list[str]] | None = None,
    coords: dict[str, Any] | None = None,
    more: dict[str, Any] | None = None,
) -> Any:
    """The DataTree of draws made after these steps: draws lead, then chains; `sizes` end with draws, or are None."""
    base = need("arviz_base", "arviz")
    kept = steps > burn_in
    if not kept.any():
        raise InputError(f"no draw is after burn-in ({burn_in} steps).")
    first = int(kept.argmax())
    steps, ended = steps[first:], diverged_at[:, None]
    stats = {"diverging": (ended > 0) & (steps >= ended)}
    if sizes is not None:
        stats["step_size"] = np.broadcast_to(sizes[..., first:], (len(ended), len(steps)))
    groups = {"posterior": {name: by_chain(array[first:]) for name, array in draws.items()}, "sample_stats": stats}
    try:
        return base.from_dict(
            groups | (more or {}),
            coords={**(coords or {}), "draw": steps},
            dims=dims,
            attrs={"/": {"inference_library": "strang"}},
        )
    except (ValueError, TypeError) as error:
        raise InputError(f"ArviZ cannot put these dims and coords together: {first_line(error)}") from None


def by_chain(draws: np.ndarray) -> np.ndarray:
    """Chains first, then draws, as ArviZ has it; NumPy's names for small floats are those of single precision."""
    array = np.swapaxes(draws, 0, 1)
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def mixing(samples: dict[str, np.ndarray], chains: np.ndarray) -> list[dict[str, Any]]:
    """Effective sample sizes and R-hat, by ArviZ, of some coordinates of the chosen chains, spread over all."""
    stats = need("arviz_stats.base", "arviz").array_stats
    widths = {name: int(np.prod(array.shape[2:])) for name, array in samples.items()}
    total, numbers = sum(widths.values()), max(1, next(iter(samples.values())).shape[0] * len(chains))
    fraction = min(1.0, min(COORDINATES, max(1, NUMBERS // numbers)) / total)
    rows = []
    for name, array in samples.items():
        places = np.unique(np.linspace(0, widths[name] - 1, max(1, round(fraction * widths[name]))).astype(int))
        shape = array.shape[2:]
        for place in places if widths[name] else []:
            index: Any = np.unravel_index(int(place), shape)
            draws = np.asarray(array[(slice(None), chains, *index)], np.float64).T
            measures = {
                "ess_bulk": stats.ess(draws, chain_axis=0, draw_axis=1, method="bulk"),
                "ess_tail": stats.ess(draws, chain_axis=0, draw_axis=1, method="tail", prob=TAILS),
                "r_hat": stats.rhat(draws, chain_axis=0, draw_axis=1),
            }
            label = name + (str([int(i) for i in index]) if shape else "")
            numbers_of = {"mean": draws.mean(), "sd": draws.std(ddof=1) if draws.size > 1 else np.nan, **measures}
            rows.append({"name": label, **{key: finite(float(value)) for key, value in numbers_of.items()}})
    return rows
