"""Whether a NumPyro model can be sampled by batches of rows, and which of its sites are what.

A site belongs to the likelihood if its log density has an axis that is as long as the batch, and else to the prior. So
a model is looked at with batches of different lengths that share rows: what changes its length follows the rows, and
what else changes depends on data in a way that batches cannot give.
"""

from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang.models.numpyro_trace import counts, density, number_of, traced, watching
from strang.util.errors import InputError, first_line
from strang.util.trees import Tree

LENGTHS = 13, 11  # rows of the small batches
TOLERANCE = 1e-5  # relative, of log densities in double precision; modules may compute in single
POSITIONS = 8  # at which they are compared
MOVED = 0.5  # from a start, of numbers without constraints


def batches(rows: Tree) -> tuple[Tree, Tree]:
    """Two batches of different lengths, spread over the rows."""
    count = number_of(rows)
    places = np.linspace(0, count - 1, LENGTHS[0]).round().astype(int)
    long = jax.tree.map(lambda x: np.asarray(x)[places], rows)  # on the host: there is nothing to compile
    short = jax.tree.map(lambda x: x[: LENGTHS[1]], long)
    return jax.tree.map(jnp.asarray, long), jax.tree.map(jnp.asarray, short)


def shapes(model: Any, rows: Tree, resized: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """What each site is, without computing it: kind, shape of its value or log density, and so on."""
    notes: dict[str, dict[str, Any]] = {}

    def run(rows, key):
        for name, site in traced(model, rows, resized, key=key).items():
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

    jax.eval_shape(run, rows, jax.random.key(0))
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


def check_same_sites(sites: dict[str, Any], fewer: dict[str, Any]) -> None:
    """Which sites there are must not depend on the rows."""
    own = set(sites) ^ set(fewer)
    if own:
        raise InputError(
            f"the site {min(own)!r} is there for some numbers of rows and not for others; write one site for all rows, "
            "in a numpyro.plate."
        )


def check_plates(sites: dict[str, Any], fewer: dict[str, Any], wanted: str | None) -> None:
    """Rows must be in one plate at most."""
    known = [name for name, site in sites.items() if site["type"] == "plate"]
    if wanted is not None and wanted not in known:
        raise InputError(f"the NumPyro model has no plate {wanted!r}; it has {', '.join(known) or 'none'}.")
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


def check_rows_apart(posterior: Any, rows: Tree) -> set[str]:
    """Whether rows count on their own, and nothing else depends on them; the deterministic sites that do are named.

    All given rows at once are compared with small batches of them, some drawn at random and one of neighbours, at some
    positions and in double precision: what depends on a batch, by a mean, a maximum or a neighbour, is another number.
    """
    own, names = dict(posterior.likelihood), set(posterior.derived)

    def numbers(free, rows):
        sites, _ = posterior.at(free, rows)
        return {
            name: density(site, number_of(rows)) if counts(site) else site["value"]
            for name, site in sites.items()
            if counts(site) or name in names
        }

    def around(key):
        free = posterior.unconstrain(posterior.init(key))
        leaves, structure = jax.tree.flatten(free)
        keys = jax.random.split(jax.random.fold_in(key, 1), len(leaves))
        moved = [x + MOVED * jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]
        return jax.tree.unflatten(structure, moved)

    @jax.jit
    def compare(keys, rows, parts):
        free = jax.vmap(around)(keys)
        return [jax.vmap(lambda own: numbers(own, part))(free) for part in (rows, *parts)]  # noqa: B023

    places = places_in(number_of(rows))
    with jax.enable_x64():
        wide = jax.tree.map(as_double, rows)
        parts = [jax.tree.map(lambda x, place=place: x[place], wide) for place in places]
        try:
            keys = jax.random.split(jax.random.key(1), POSITIONS)
            whole, *found = jax.tree.map(np.asarray, compare(keys, wide, parts))
        except Exception as error:
            raise InputError(
                f"the NumPyro model cannot be compiled ({type(error).__name__}: {first_line(error)})."
            ) from error
        changing = set()
        for part, place in zip(found, places, strict=True):
            for name, b in part.items():
                a = np.take(whole[name], place, 1 + own[name]) if name in own else whole[name]
                if a.shape == b.shape and near(a, b):
                    continue
                if name not in names:
                    raise depends(name, name in own)
                changing.add(name)
    return changing


def places_in(count: int) -> list[np.ndarray]:
    """Of so many rows, which are in each small batch: drawn at random, and neighbours in the middle."""
    random = np.random.default_rng(0)
    first, second = (random.permutation(count) for _ in range(2))
    start = max(0, count // 2 - LENGTHS[0] // 2)
    neighbours = start + np.arange(LENGTHS[0])
    return [np.resize(first, LENGTHS[0]), np.resize(second, LENGTHS[1]), neighbours % count]


def as_double(x: Any) -> np.ndarray:
    """Numbers with a fraction in double precision."""
    array = np.asarray(x)
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def depends(name: str, by_row: bool) -> InputError:
    if by_row:
        return InputError(
            f"the log density of a row at the site {name!r} depends on other rows of its batch, by a mean, say, or by "
            "their number; compute what it needs before the model is run, and give it as a number or as a column."
        )
    return InputError(
        f"the site {name!r} depends on data outside the plate of the rows; what it needs of them must be computed "
        "before the model is run."
    )


def near(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether numbers are the same up to rounding; what is not finite is the same if it is so in both."""
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.maximum(1.0, np.abs(np.where(np.isfinite(a), a, 0.0)))
        same = (np.abs(a - b) <= TOLERANCE * size) | (a == b) | (np.isnan(a) & np.isnan(b))
    return bool(same.all())
