"""Coefficients of exactly solved linear pieces, without cancellation at small arguments, real or complex."""

import jax.numpy as jnp


def decay(x):
    """(1 − e^−x)/x, which is 1 at 0."""
    safe = jnp.where(x == 0, 1, x)
    return jnp.where(x == 0, 1, -jnp.expm1(-safe) / safe)


def decay_gap(x):
    """(x − 1 + e^−x)/x², which is 1/2 at 0: below |x| = 1 its Taylor series Σ_k (−x)^k / (k+2)!."""
    small = jnp.abs(x) < 1
    inner = jnp.where(small, x, 0)
    series = 1 + 0 * inner
    for k in range(18, 2, -1):
        series = 1 - inner / k * series
    outer = jnp.where(small, 1, x)
    return jnp.where(small, series / 2, (outer + jnp.expm1(-outer)) / outer**2)


def tanh_gap(x):
    """(2/x²)(x − 2 tanh(x/2)), which is x/6 at small x.

    There Lambert's continued fraction tanh y = y/(1 + c), c = y²/(3 + y²/(5 + ...)), gives 2 c / (x (1 + c)) with the
    factor x of c cancelled by hand; it is good to rounding below |x| = 4, beyond which the plain formula is.
    """
    small = jnp.abs(x) < 4
    inner = jnp.where(small, x, 1)
    square = inner * inner / 4
    tail = 25 + 0 * square
    for odd in range(23, 1, -2):
        tail = odd + square / tail
    outer = jnp.where(small, 4, x)
    return jnp.where(small, inner / (2 * tail * (1 + square / tail)), 2 * (outer - 2 * jnp.tanh(outer / 2)) / outer**2)
