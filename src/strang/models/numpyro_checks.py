"""Whether a NumPyro model can be sampled by batches of rows, and which of its sites are what.

A site belongs to the likelihood if its log density has an axis that is as long as the batch, and else to the prior. So
a model is looked at with two batches of different lengths that share rows, at one position: what changes its length
follows the rows, and what else changes depends on data in a way that batches cannot give.
"""

from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang.models.numpyro_trace import counts, density, number_of, traced, watching
from strang.util.errors import InputError, first_line
from strang.util.trees import Tree

LENGTHS = 13, 11  # rows of the two batches
TOLERANCE = 1e-3  # relative, of log densities in single precision


def batches(rows: Tree) -> tuple[Tree, Tree]:
    """Two batches: rows spread over those given, and some of them again in another order."""
    count = number_of(rows)
    places = np.linspace(0, count - 1, LENGTHS[0]).round().astype(int)
    long = jax.tree.map(lambda x: jnp.asarray(x)[places], rows)
    return long, jax.tree.map(lambda x: x[order()], long)


def order() -> np.ndarray:
    """Which rows of the first batch are the second's."""
    return np.arange(LENGTHS[0])[::-1][: LENGTHS[1]]


def shapes(model: Any, rows: Tree, resized: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """What each site is, without computing it: kind, shape of its value or log density, and so on."""
    notes: dict[str, dict[str, Any]] = {}

    def run(rows):
        for name, site in traced(model, rows, resized, key=jax.random.key(0)).items():
            kind, observed = site["type"], bool(site.get("is_observed"))
            note = {"type": kind, "name": name, "is_observed": observed, "is_number": True}
            if kind == "sample":
                note["discrete"] = bool(site["fn"].support is not None and site["fn"].support.is_discrete)
                note["delta"] = type(site["fn"]).__name__ == "Delta"
                note["shape"] = jnp.shape(density(site, number_of(rows)) if observed else site["value"])
            elif kind == "plate":
                note["shape"], note["size"] = jnp.shape(site["value"]), site["args"][0]
            elif kind == "deterministic":
                note["is_number"] = isinstance(site["value"], jax.Array | np.ndarray | float | int)
                note["shape"] = jnp.shape(site["value"]) if note["is_number"] else None
            notes[name] = note

    jax.eval_shape(run, rows)
    return notes


def plates_of_size(model: Any, rows: Tree, size: int | None) -> tuple[str, ...]:
    """Plates that are as long as all data, by a number of their own."""
    found: list[str] = []

    def note(message):
        if message["type"] == "plate" and message["args"][0] == size:
            found.append(message["name"])

    with watching(note), suppress(Exception):  # it is only to be seen how far it comes
        shapes(model, rows, ())
    return tuple(dict.fromkeys(found))


def check_plates(sites: dict[str, Any], fewer: dict[str, Any]) -> None:
    """Rows must be in one plate at most."""
    own = [name for name, site in sites.items() if site["type"] == "plate" and site["shape"] != fewer[name]["shape"]]
    if len(own) > 1:
        raise InputError(
            f"the plates {', '.join(map(repr, own))} are all as long as the rows; put the rows in one plate."
        )


def check_latent(sites: dict[str, Any], fewer: dict[str, Any]) -> None:
    """What is sampled must be numbers that do not belong to a row."""
    for name, site in sites.items():
        if not counts(site) or site["is_observed"]:
            continue
        if site["shape"] != fewer[name]["shape"]:
            raise InputError(
                f"the site {name!r} is a latent variable of each row, or was to be observed; sum or integrate it out, "
                "or give its values among the rows: batches can only sample what all rows share."
            )
        if site["discrete"]:
            raise InputError(f"the site {name!r} is discrete; sum it out: only continuous variables have gradients.")
        if site["delta"]:
            raise InputError(f"the site {name!r} has a delta distribution; write numpyro.deterministic for it.")


def row_axes(sites: dict[str, Any], fewer: dict[str, Any]) -> dict[str, int]:
    """For each observed site of the rows, the axis of its log density that is as long as the batch."""
    found = {}
    for name, site in sites.items():
        if not (counts(site) and site["is_observed"]):
            continue
        one, other = site["shape"], fewer[name]["shape"]
        changed = [k for k, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
        if len(changed) > 1 or any((one[k], other[k]) != LENGTHS for k in changed):
            raise InputError(
                f"the log density of the site {name!r} has the shape {one} for {LENGTHS[0]} rows and {other} for "
                f"{LENGTHS[1]}; it must have one number, or a group of them, for each row."
            )
        if changed:
            found[name] = changed[0]
    return found


def check_rows_apart(posterior: Any, short: Tree) -> set[str]:
    """Whether rows count on their own, and nothing else depends on them; the deterministic sites that do are named."""
    own, names = dict(posterior.likelihood), set(posterior.derived)

    def numbers(rows, values):
        sites = posterior.given(values, rows)
        return {
            name: density(site, number_of(rows)) if counts(site) else site["value"]
            for name, site in sites.items()
            if counts(site) or name in names
        }

    @jax.jit
    def both(rows, few, key):
        start = posterior.init(key)
        return numbers(rows, start), numbers(few, start)

    try:
        long, few = both(posterior.rows, short, jax.random.key(1))
    except Exception as error:
        raise InputError(
            f"the NumPyro model cannot be compiled ({type(error).__name__}: {first_line(error)})."
        ) from error
    changing = set()
    for name, a in long.items():
        b = few[name]
        expected = jnp.take(a, order(), own[name]) if name in own else a
        if expected.shape == b.shape and bool(near(expected, b)):
            continue
        if name in names:
            changing.add(name)
        elif name in own:
            raise InputError(
                f"the log density of a row at the site {name!r} depends on other rows, by their mean, say; compute "
                "that before the model is run, and give it as a number or as a column."
            )
        else:
            raise InputError(
                f"the site {name!r} depends on data outside the plate of the rows; what it needs of them must be "
                "computed before the model is run."
            )
    return changing


def near(a, b):
    """Whether numbers are the same up to rounding; what is not finite is the same if it is so in both."""
    size = jnp.maximum(1.0, jnp.abs(jnp.where(jnp.isfinite(a), a, 0.0)))
    same = (jnp.abs(a - b) <= TOLERANCE * size) | (a == b) | (jnp.isnan(a) & jnp.isnan(b))
    return same.all()
