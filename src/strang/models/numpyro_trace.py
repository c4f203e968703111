"""What the statements of a NumPyro model say, by its public handlers."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from strang.util.errors import need
from strang.util.trees import Tree


def traced(model: Any, rows: Tree, resized: Any = (), value: Callable | None = None, key: Any = None) -> dict[str, Any]:
    """The sites of the model with these rows, at given values of its latent sites, or at a start."""
    numpyro, infer = need("numpyro", "numpyro"), need("numpyro.infer", "numpyro")
    handlers, count = numpyro.handlers, number_of(rows)
    given = value is not None
    if value is None:
        value = model.init_strategy or infer.init_to_median
        value = value() if value in (infer.init_to_median, infer.init_to_sample, infer.init_to_uniform) else value
    # A start draws with keys; what is given comes before them, so that none are made that nobody needs.
    own = jax.random.key(0) if key is None else key
    function = model.function
    function = handlers.substitute(function, substitute_fn=value) if given else handlers.seed(function, own)
    function = handlers.seed(function, own) if given else handlers.substitute(function, substitute_fn=value)
    sizes: dict[str, int] = {}

    def resize(message):
        """Tells plates of rows how long the batch is."""
        if message["type"] != "plate":
            return
        size, taken = message["args"]
        if message["name"] == model.plate or message["name"] in resized or taken not in (None, size):
            message["args"], message["value"] = (size, count), jnp.arange(count)
            sizes[message["name"]] = size

    args, kwargs = arguments(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of shapes that are taken to be plates, and the like
        with handlers.trace() as sites, watching(resize):
            function(*args, **kwargs)
    for site in sites.values():
        stack = site.get("cond_indep_stack", ())
        site["strang_sizes"] = [(sizes[f.name], count) for f in stack if f.name in sizes and sizes[f.name] != count]
    return sites


def watching(show: Callable[[dict[str, Any]], None]) -> Any:
    """A handler that shows every statement of a model to a function."""
    primitives: Any = need("numpyro.primitives", "numpyro")

    class Watching(primitives.Messenger):
        def process_message(self, message):
            show(message)

    return Watching()


def arguments(rows: Tree) -> tuple[tuple, dict]:
    """What the model is called with."""
    if isinstance(rows, dict):
        return (), rows
    return (tuple(rows) if isinstance(rows, tuple | list) else (rows,)), {}


def number_of(rows: Tree) -> int:
    return jax.tree.leaves(rows)[0].shape[0]


def counts(site) -> bool:
    """Whether a site has a log density."""
    return site["type"] == "sample"


def density(site, count: int | None = None):
    """The log density of a site, without what a plate that subsamples scales it by."""
    value, middle = site["value"], site["intermediates"]
    terms = site["fn"].log_prob(value, middle) if middle else site["fn"].log_prob(value)
    scale = site["scale"]
    if scale is None:
        return terms
    if count is not None:
        for size, taken in site.get("strang_sizes", ()):
            scale = scale * (taken / size)
    return terms * scale


def transform_of(site) -> Any:
    """From numbers without constraints to the site's support, which may depend on other sites."""
    distributions = need("numpyro.distributions", "numpyro")
    return distributions.biject_to(site["fn"].support)
