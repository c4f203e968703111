"""NumPyro models, as they are written, over rows that come in batches."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang.models.numpyro_checks import (
    batches,
    check_latent,
    check_plates,
    check_rows_apart,
    check_same_sites,
    plates_of_size,
    row_axes,
    shapes,
)
from strang.models.numpyro_trace import counts, density, number_of, traced, transform_of
from strang.util.errors import InputError, first_line, need
from strang.util.trees import Tree


@dataclass(frozen=True, eq=False)
class NumPyroModel:
    """What `from_numpyro` gives; what is sampled is known when it meets its data.

    Attributes:
        function: the NumPyro model.
        plate: the name of the plate of the rows, where it was given.
        init_strategy: of `numpyro.infer`, which says where chains start.
    """

    function: Callable
    plate: str | None = None
    init_strategy: Any = None

    def __hash__(self):
        return hash((id(self.function), self.plate))  # of functions that cannot be hashed themselves too

    def __eq__(self, other):
        own = isinstance(other, NumPyroModel) and self.function is other.function and self.plate == other.plate
        return own and self.init_strategy is other.init_strategy

    def unconstrained(self, rows: Callable[[], Tree], size: int | None) -> "NumPyroPosterior":
        """The posterior over numbers without constraints; `rows()` are some rows of the data, `size` how many there
        are in all."""
        return look(self, rows(), size)


def from_numpyro(model: Callable, *, plate: str | None = None, init_strategy: Any = None) -> NumPyroModel:
    """An ordinary NumPyro model, for `strang.sample` and all else that takes a model.

    Its arguments are the rows: `strang.sample(from_numpyro(model), (X, y))` calls `model(X, y)` with the rows of a
    batch, and a dict of arrays gives keyword arguments. Other arguments are bound with `functools.partial`. Rows must
    be independent given the parameters, in a plate or not; a plate may subsample by itself. Sites are named as in the
    model, and deterministic ones that do not have one value per row come along.

    Args:
        model: a function with NumPyro's statements.
        plate: the plate of the rows, where its size is a number that is not taken from the rows and no subsampling
            tells.
        init_strategy: where chains start, such as `numpyro.infer.init_to_sample`; by default `init_to_median`.

    Returns:
        A model; the extra `numpyro` is needed.

    Raises:
        InputError: it is no function; and later, when the model meets its data, where it cannot be sampled by batches.

    Example:
        >>> import numpyro, numpyro.distributions as dist, numpy as np, strang
        >>> def model(x):
        ...     mu = numpyro.sample("mu", dist.Normal(0, 10))
        ...     sigma = numpyro.sample("sigma", dist.HalfNormal(5))
        ...     with numpyro.plate("rows", len(x)):
        ...         numpyro.sample("x", dist.Normal(mu, sigma), obs=x)
        >>> x = np.random.default_rng(0).normal(1.0, 2.0, 500).astype(np.float32)
        >>> run = strang.sample(strang.models.from_numpyro(model), x, error=0.1)
        >>> run.summary().names
        ['mu', 'sigma']
    """
    need("numpyro", "numpyro")
    if isinstance(model, type) or not callable(model):
        raise InputError(f"a NumPyro model is a function; this is {model!r}.")
    if hasattr(model, "lower") and hasattr(model, "trace"):
        raise InputError("give the NumPyro model itself, without jax.jit: everything is compiled anyway.")
    return NumPyroModel(model, plate, init_strategy)


@dataclass(frozen=True)
class NumPyroPosterior:
    """A NumPyro model as a function of numbers without constraints, by the names of its sites.

    Attributes:
        model: where it comes from.
        resized: the plates that are told to be as long as the batch.
        likelihood: the observed sites of the rows, and the axis of the rows in their log densities.
        latent: the sites that are sampled.
        derived: deterministic sites that do not depend on rows.
        rows: a few of them, for what does not depend on them.
    """

    model: NumPyroModel
    resized: tuple[str, ...]
    likelihood: tuple[tuple[str, int], ...]
    latent: tuple[str, ...]
    derived: tuple[str, ...]
    rows: Tree = field(compare=False, repr=False)

    def init(self, key) -> dict[str, Any]:
        """A start by the model's strategy, on the scale of the sites."""
        sites = traced(self.model, self.rows, self.resized, key=key)
        return {name: as_float(sites[name]["value"]) for name in self.latent}

    def constrain(self, free: dict[str, Any]) -> dict[str, Any]:
        """The values of the sites, with those of the deterministic ones."""
        sites, _ = self.at(free, self.rows)
        return {name: sites[name]["value"] for name in (*self.latent, *self.derived)}

    def unconstrain(self, values: dict[str, Any]) -> dict[str, Any]:
        """The way back."""
        missing = [name for name in self.latent if name not in values]
        if missing:
            raise InputError(f"the start has no value of the site {missing[0]!r}; give one for each of {self.latent}.")
        sites = self.given(values, self.rows)
        return {name: transform_of(sites[name]).inv(values[name]) for name in self.latent}

    def log_prior(self, free: dict[str, Any]):
        """All that is not the rows', and the logarithm of the volume by which the transforms stretch."""
        sites, volume = self.at(free, self.rows)
        own = dict(self.likelihood)
        others = [site for name, site in sites.items() if counts(site) and name not in own]
        return volume + sum(jnp.sum(density(site)) for site in others)

    def batch_log_likelihood(self, free: dict[str, Any], rows: Tree):
        return self._by_row(self.at(free, rows)[0], rows)

    def log_likelihood(self, free: dict[str, Any], datum: Tree):
        return self.batch_log_likelihood(free, jax.tree.map(lambda x: jnp.asarray(x)[None], datum))[0]

    def natural_log_likelihoods(self, values: dict[str, Any], rows: Tree):
        """The log likelihood of each row, from the values of the sites."""
        return self._by_row(self.given(values, rows), rows)

    def predictive(self, name: str) -> Callable:
        """A function of (values of the sites, arguments of the model, key) to what NumPyro's `Predictive` gives for a
        site: a draw, or the value of a deterministic one. A site that is observed is drawn all the same."""

        def draw(values, rows, key):
            sites = self.given(values, rows, key)
            if name not in sites or sites[name]["type"] not in ("sample", "deterministic"):
                known = [each for each, site in sites.items() if site["type"] in ("sample", "deterministic")]
                raise InputError(f"the NumPyro model has no site {name!r}; it has {', '.join(known)}.")
            site = sites[name]
            observed = site["type"] == "sample" and site["is_observed"]
            return site["fn"].sample(jax.random.fold_in(key, 1)) if observed else site["value"]

        return draw

    def _by_row(self, sites: dict[str, Any], rows: Tree):
        count = number_of(rows)
        terms = [jnp.moveaxis(density(sites[name], count), axis, 0) for name, axis in self.likelihood]
        return sum(each.reshape(count, -1).sum(1) for each in terms)

    def observed(self, rows: Tree) -> dict[str, np.ndarray]:
        """What was seen of these rows, by site."""
        values = jax.jit(self.init)(jax.random.key(0))
        sites = self.given(values, rows)
        return {name: np.asarray(sites[name]["value"]) for name, _ in self.likelihood}

    def given(self, values: dict[str, Any], rows: Tree, key: Any = None) -> dict[str, Any]:
        """The sites at given values of those that are sampled."""
        wanted = {name: values[name] for name in self.latent}
        return traced(self.model, rows, self.resized, lambda site: wanted.get(site["name"]), key)

    def at(self, free: dict[str, Any], rows: Tree) -> tuple[dict[str, Any], Any]:
        """The sites at numbers without constraints, and the logarithm of the volume."""
        volumes: list[Any] = []

        def value(site):
            if site["name"] not in free or site["type"] != "sample":
                return None
            transform, x = transform_of(site), free[site["name"]]
            y = transform(x)
            volumes.append(jnp.sum(transform.log_abs_det_jacobian(x, y)))
            return y

        sites = traced(self.model, rows, self.resized, value)
        return sites, sum(volumes)


def look(model: NumPyroModel, rows: Tree, size: int | None) -> NumPyroPosterior:
    """What the sites of a model are, seen from some of its rows.

    Raises:
        InputError: the model cannot be sampled by batches; the sentence names the site.
    """
    long, short = batches(rows)
    resized: tuple[str, ...] = ()
    try:
        sites, fewer = (shapes(model, part, resized) for part in (long, short))
    except InputError:
        raise
    except Exception as error:
        resized = plates_of_size(model, rows, size)
        try:
            if not resized:
                raise error
            sites, fewer = (shapes(model, part, resized) for part in (long, short))
        except Exception as again:
            raise failed(again) from again
    check_same_sites(sites, fewer)
    check_plates(sites, fewer, model.plate)
    check_latent(sites, fewer)
    likelihood = tuple((name, axis) for name, axis in row_axes(sites, fewer).items())
    if not likelihood:
        observed = [repr(name) for name, site in sites.items() if counts(site) and site["is_observed"]]
        raise InputError(
            f"the log density of the site {', '.join(observed)} is one number for all rows together; rows must be "
            "independent given the parameters, and have a number each."
            if observed
            else "the NumPyro model has no observed site; give one the rows that were observed, as obs=...."
        )
    latent = tuple(name for name, site in sites.items() if counts(site) and not site["is_observed"])
    if not latent:
        raise InputError("the NumPyro model has no site that is not observed: there is nothing to sample.")
    derived = tuple(
        name
        for name, site in sites.items()
        if site["type"] == "deterministic" and site["shape"] == fewer[name]["shape"] and site["is_number"]
    )
    found = NumPyroPosterior(model, resized, likelihood, latent, derived, long)
    changing = check_rows_apart(found, rows)
    return NumPyroPosterior(
        model, resized, likelihood, latent, tuple(name for name in derived if name not in changing), long
    )


def failed(error: Exception) -> InputError:
    """A sentence for a model that cannot be run on a batch."""
    said = f"the NumPyro model fails on a batch of rows ({type(error).__name__}: {first_line(error)})"
    if isinstance(error, jax.errors.ConcretizationTypeError | jax.errors.TracerArrayConversionError):
        return InputError(
            f"{said}: it decides by the values of its rows, as numpy.unique and int() do; compute that before, and "
            "bind it with functools.partial."
        )
    if isinstance(error, TypeError) and "argument" in str(error):
        return InputError(f"{said}; rows are the model's arguments: a tuple of them, or a dict by their names.")
    if "shape" in str(error).lower() or "broadcast" in str(error).lower():
        return InputError(
            f"{said}; sizes must come from the rows, as in numpyro.plate('rows', len(x)), or write "
            "from_numpyro(model, plate='rows')."
        )
    return InputError(f"{said}.")


def as_float(value):
    """In floating point, as what is sampled must be."""
    return jnp.asarray(value, jnp.result_type(float, value))
