"""Covariances of group effects: standard deviations and a correlation matrix, as numbers without constraints.

The correlation matrix of k effects is given by k(k−1)/2 partial correlations, each the tanh of a number, as in
Lewandowski, Kurowicka and Joe (2009): row j of its Cholesky factor is
    L_ji = p_ij Π_{m<i} √(1 − p_mj²),   L_jj = Π_{m<j} √(1 − p_mj²).
All is written out element by element, for arrays of many groups and chains: k is small.
"""

import jax.numpy as jnp

Matrix = list[list]  # of numbers or of arrays, lower triangle


def pairs(size: int) -> list[tuple[int, int]]:
    """The places below the diagonal, row by row: (column, row).

    >>> pairs(3)
    [(0, 1), (0, 2), (1, 2)]
    """
    return [(i, j) for j in range(size) for i in range(j)]


def factor(partial, size: int) -> Matrix:
    """The Cholesky factor of the correlation matrix, from numbers without constraints."""
    zero = jnp.zeros(())
    rows: Matrix = [[zero] * size for _ in range(size)]
    tanh = {pair: jnp.tanh(partial[n]) for n, pair in enumerate(pairs(size))}
    sech = {pair: 1 / jnp.cosh(partial[n]) for n, pair in enumerate(pairs(size))}  # √(1 − tanh²) rounds to 0
    for j in range(size):
        left = jnp.ones(())
        for i in range(j):
            rows[j][i] = tanh[i, j] * left
            left = left * sech[i, j]
        rows[j][j] = left
    return rows


def root(log_sd, partial) -> Matrix:
    """A lower triangle A with Σ = A Aᵀ."""
    size = len(log_sd)
    rows = factor(partial, size) if size > 1 else [[jnp.ones(())]]
    return [[jnp.exp(log_sd[j]) * rows[j][i] for i in range(size)] for j in range(size)]


def correlations(partial, size: int):
    """The correlations below the diagonal, row by row."""
    rows = factor(partial, size)
    return jnp.stack([sum(rows[j][m] * rows[i][m] for m in range(i + 1)) for i, j in pairs(size)])


def free_correlations(given, size: int):
    """The way back."""
    matrix: Matrix = [[jnp.ones(()) for _ in range(size)] for _ in range(size)]
    for n, (i, j) in enumerate(pairs(size)):
        matrix[j][i] = matrix[i][j] = given[n]
    rows, found = cholesky(matrix), {}
    for j in range(size):
        left = jnp.ones(())
        for i in range(j):
            p = rows[j][i] / left
            found[i, j] = jnp.arctanh(p)
            left = left * jnp.sqrt(1 - p**2)
    return jnp.stack([found[pair] for pair in pairs(size)])


def log_lkj(partial, size: int, shape: float):
    """log of the LKJ density of the correlation matrix, as a density of the numbers without constraints, up to a
    constant: partial correlations are independent, those given i others with density (1 − p²)^(a−1), where
    a = shape + (size − 2 − i)/2."""
    total = jnp.zeros(())
    for n, (i, _) in enumerate(pairs(size)):
        # log(1 − tanh²) = 2 log 2 − 2|x| − 2 log(1 + e^{−2|x|}), also for large numbers
        x = jnp.abs(partial[n])
        total += (shape + (size - 2 - i) / 2) * 2 * (jnp.log(2.0) - x - jnp.log1p(jnp.exp(-2 * x)))
    return total


def log_normal(effects, log_sd, partial):
    """log of the density of the effects of all groups, N(0, Σ) each."""
    size = effects.shape[1]
    v = solve_lower(root(log_sd, partial), [effects[:, j] for j in range(size)])
    log_root = jnp.sum(log_sd)
    if partial is not None:
        rows = factor(partial, size)
        log_root += sum(jnp.log(rows[j][j]) for j in range(size))
    return -0.5 * sum(jnp.sum(each**2) for each in v) - len(effects) * (log_root + size * jnp.log(2 * jnp.pi) / 2)


def cholesky(matrix: Matrix) -> Matrix:
    """The lower factor of a positive matrix; its elements may be arrays."""
    size = len(matrix)
    rows: Matrix = [[jnp.zeros(()) for _ in range(size)] for _ in range(size)]
    for j in range(size):
        for i in range(j + 1):
            rest = matrix[j][i] - sum(rows[j][m] * rows[i][m] for m in range(i))
            rows[j][i] = jnp.sqrt(rest) if i == j else rest / rows[i][i]
    return rows


def solve_lower(lower: Matrix, right: list) -> list:
    """L⁻¹ r."""
    found: list = []
    for j in range(len(lower)):
        found.append((right[j] - sum(lower[j][m] * found[m] for m in range(j))) / lower[j][j])
    return found


def solve_upper(lower: Matrix, right: list) -> list:
    """L⁻ᵀ r."""
    size = len(lower)
    found: list = [None] * size
    for j in reversed(range(size)):
        found[j] = (right[j] - sum(lower[m][j] * found[m] for m in range(j + 1, size))) / lower[j][j]
    return found
