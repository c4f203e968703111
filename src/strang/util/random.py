"""Counter-based random numbers: every draw is a pure function of (key, counter), whatever was drawn before.

A key is two uint32 numbers along the last axis. The generator is Threefry-2x32 with 20 rounds (Salmon et al. 2011), the
one behind `jax.random`, written as straight-line array code: on CPU, XLA runs JAX's own as a loop of tiny kernels, so
that random numbers would cost twenty times the rest of a small step.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from strang.util.trees import Tree, on_device

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
# The inverse error function's, of M. Giles, "Approximating the erfinv function" (2010), from the highest power down.
NEAR = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
        0.246640727, 1.50140941)  # fmt: skip
FAR = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
       1.00167406, 2.83297682)  # fmt: skip
SMALL_RANGE = 1 << 16  # up to which a random number below n is made of 32 bits


def threefry(key, a, b):
    """Two arrays of 32 random bits from a key and a counter of twice 32 bits."""
    if isinstance(key, np.ndarray):
        return _rounds(key, a, b)
    return _traced_once(key, a, b)


def _rounds(key, a, b):
    first, second = key[..., 0], key[..., 1]
    keys = (first, second, first ^ second ^ np.uint32(0x1BD11BDA))
    a, b = a + keys[0], b + keys[1]
    for block in range(5):
        for rotation in ROTATIONS[block % 2]:
            a = a + b
            b = a ^ ((b << np.uint32(rotation)) | (b >> np.uint32(32 - rotation)))
        a, b = a + keys[(block + 1) % 3], b + keys[(block + 2) % 3] + np.uint32(block + 1)
    return a, b


_traced_once = jax.jit(_rounds, inline=True)


class Keys(NamedTuple):
    """The keys of a chain, one per purpose."""

    start: jax.Array
    noise: jax.Array
    batch: jax.Array
    model: jax.Array
    probe: jax.Array


def fold(key, a, b=0):
    """Derives a key from a key and one or two numbers."""
    a, b = jnp.broadcast_arrays(jnp.asarray(a, jnp.uint32), jnp.asarray(b, jnp.uint32))
    return jnp.stack(threefry(key, a, b), axis=-1)


def chain_keys(seed: int, chains: int) -> Keys:
    """The keys of each chain; those of chain number k do not depend on the number of chains.

    >>> bool((chain_keys(7, 2).noise == chain_keys(7, 5).noise[:2]).all())
    True
    """
    root = np.array([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)

    def folded(key, numbers):  # as `fold`, on the host: there is nothing to compile
        return np.stack(threefry(key, numbers, np.zeros_like(numbers)), axis=-1)

    own = folded(root[None], np.arange(chains, dtype=np.uint32))
    purposes = np.arange(len(Keys._fields), dtype=np.uint32)[:, None]
    return Keys(*map(on_device, folded(own, np.broadcast_to(purposes, (len(Keys._fields), chains)))))


def jax_key(key):
    """Converts a key to one for `jax.random`."""
    return jax.random.wrap_key_data(key, impl="threefry2x32")


def at_once(function, instead: Tree = None):
    """What a function computes, fused with what is made of it."""
    return function()


def normals(key, l, like: Tree, copies: int, keep=at_once) -> tuple[Tree, ...]:
    """Draws `copies` trees of standard normals shaped like `like`, as a function of (key, l); behind the axes of keys
    and of l.

    `keep` computes a function and may keep its results in memory before they are used, see
    `strang.sampling.draws.materialise`. That makes many normals faster: long kernels wait for their own results, and
    random bits come in pairs, of which XLA computes both for each.
    """
    leaves, structure = jax.tree.flatten(like)
    words = bits(key, l, like, copies, keep)
    parts, used = [], 0
    for leaf in leaves * copies:
        parts.append([word[..., used : used + _calls(leaf)] for word in words[: 2 if _needs_both(leaf) else 1]])
        used += _calls(leaf)
    cells = keep(lambda: [_cells(part, leaf) for part, leaf in zip(parts, leaves * copies, strict=True)])
    logs = keep(lambda: [_log(x) for x in cells], cells)
    lead = words[0].shape[:-1]
    drawn = [
        _normal(x, log).astype(leaf.dtype).reshape(*lead, *leaf.shape)
        for x, log, leaf in zip(cells, logs, leaves * copies, strict=True)
    ]
    count = len(leaves)
    return tuple(jax.tree.unflatten(structure, drawn[k * count : (k + 1) * count]) for k in range(copies))


def bits(key, l, like: Tree, copies: int, keep=at_once) -> tuple:
    """The random bits behind `normals`, for all copies and leaves side by side, behind the axes of keys and of l."""
    leaves, lead = jax.tree.leaves(like), jnp.broadcast_shapes(key.shape[:-1], jnp.shape(l))
    # XLA makes several at once along an axis whose length is a multiple of 4, with no others of length 1 beside it.
    axes = tuple(axis for axis, length in enumerate(lead) if length == 1)
    first, second, l = (jnp.squeeze(jnp.broadcast_to(x, lead), axes)[..., None] for x in (key[..., 0], key[..., 1], l))
    counters = jnp.arange(even(copies * sum(map(_calls, leaves))), dtype=jnp.uint32)

    def draw():
        return threefry(jnp.stack([first, second], axis=-1), l, counters)

    both = any(map(_needs_both, leaves))
    words = words_of(keep(lambda: pair_of(draw()))) if both else (keep(lambda: draw()[0]),)
    return tuple(word.reshape(*lead, len(counters)) for word in words)


def pair_of(words: tuple):
    """Two arrays of 32 bits as one of complex numbers, to be kept in memory: XLA would compute twice what two arrays
    have in common, which is all of it where they are random."""
    return lax.complex(*(lax.bitcast_convert_type(word, jnp.float32) for word in words))


def words_of(pair) -> tuple:
    """The two arrays that `pair_of` was given."""
    return tuple(lax.bitcast_convert_type(part(pair), jnp.uint32) for part in (lax.real, lax.imag))


def even(count: int) -> int:
    """A length at which XLA makes several numbers at once: a multiple of 8, where there are many."""
    return count if count < 256 else -(-count // 8) * 8


def _calls(leaf) -> int:
    """Pairs of words that the normals of a leaf are made of."""
    return leaf.size if leaf.dtype == jnp.float64 else -(-leaf.size // 2)


def _needs_both(leaf) -> bool:
    return leaf.dtype == jnp.float64 or leaf.size > 1


def _cells(words: list, leaf):
    """The midpoints of a symmetric lattice of 2^24 (2^53) cells between -1 and 1 at which the distribution function is
    inverted, as one vector, along which XLA makes several at once, whatever the shape of the leaf."""
    if leaf.dtype == jnp.float64:
        a, b = words
        cell = lax.bitcast_convert_type(a, jnp.int32) * 2.0**21 + (b >> jnp.uint32(11)).astype(jnp.float64)
        return ((cell + 0.5) * 2.0**-52).reshape(-1)
    flat = jnp.concatenate(words, axis=-1)[..., : leaf.size].reshape(-1)
    cell = lax.bitcast_convert_type(flat, jnp.int32) >> 8
    return (cell.astype(jnp.float32) + 0.5) * jnp.float32(2.0**-23)


def _log(x):
    """The hard half of `_normal` in single precision."""
    return x if x.dtype == jnp.float64 else -lax.log1p(-x * x)


def _normal(x, log):
    """√2 times the inverse error function at x: in single precision Giles's polynomials (2010) of w = −log(1 − x²), or
    of its root, which is what `lax.erf_inv` computes too, bit for bit."""
    if x.dtype == jnp.float64:
        return math.sqrt(2) * lax.erf_inv(x)
    near = log < 5
    w = jnp.where(near, log - 2.5, jnp.sqrt(log) - 3)
    result = jnp.zeros_like(w)
    for one, other in zip(NEAR, FAR, strict=True):
        result = jnp.where(near, jnp.float32(one), jnp.float32(other)) + result * w
    return math.sqrt(2) * (result * x)


def high_product(a, n):
    """The upper 32 bits of a * n, computed by halves, since 64-bit integers are off by default."""
    a_low, a_high = a & jnp.uint32(0xFFFF), a >> jnp.uint32(16)
    if n <= SMALL_RANGE:
        return (a_high * jnp.uint32(n) + ((a_low * jnp.uint32(n)) >> jnp.uint32(16))) >> jnp.uint32(16)
    low, high = jnp.uint32(n & 0xFFFF), jnp.uint32(n >> 16)
    carry = a_high * low + ((a_low * low) >> jnp.uint32(16))
    middle = a_low * high + (carry & jnp.uint32(0xFFFF))
    return a_high * high + (carry >> jnp.uint32(16)) + (middle >> jnp.uint32(16))


def indices(keys, l, count: int, n: int):
    """Independent uniform numbers below n as a function of (key, l); the axes are `count`, then keys."""
    return as_indices(index_bits(keys, l, count, n), count, n)


def index_bits(keys, l, count: int, n: int):
    """The random bits behind `indices`, as a `pair_of` words. Keep them in memory before they are used."""
    calls = -(-count // 2) if n <= SMALL_RANGE else count
    return pair_of(threefry(keys, l, jnp.arange(calls, dtype=jnp.uint32)[:, None]))


def as_indices(bits, count: int, n: int):
    """The numbers that these bits stand for."""
    a, b = words_of(bits)
    if n <= SMALL_RANGE:  # 32 bits each: no probability is off by more than 2^-16 of itself
        return high_product(jnp.concatenate([a, b], axis=-2)[..., :count, :], n)
    upper = high_product(b, n)  # of 64 random bits each, the upper part of the product with n: bias under 2^-33
    lower = a * jnp.uint32(n) + upper
    return high_product(a, n) + (lower < upper).astype(jnp.uint32)


def salts(keys, n: int):
    """What `permute` needs of its keys: a `pair_of` words per round; rounds lead."""
    rounds = 6 if n >= 64 else 16  # from 4 rounds on, pairs are uniform to 1e-3; small ranges mix more slowly
    number = jnp.arange(rounds, dtype=jnp.uint32).reshape(rounds, *[1] * (keys.ndim - 1))
    return pair_of(threefry(keys, number, jnp.uint32(n)))


def permute(salts, index, n: int):
    """Applies a random permutation of 0..n-1, chosen by the salts, to each index without storing the permutation.

    A Feistel network on index = left + columns * right: each half round adds a hash of one half to the other, modulo
    that half's range, which is a bijection. Where columns * rows exceeds n, it is repeated until the index is below n.
    """
    columns, rows = grid(n)
    shape = jnp.broadcast_shapes(jnp.shape(index), salts.shape[1:])

    def network(index):
        def half_rounds(k, halves):
            one, other = words_of(salts[k])
            left, right = halves
            left = wrap(left + high_product(mix(right ^ one), columns), columns)
            return left, wrap(right + high_product(mix(left ^ other), rows), rows)

        halves = (jnp.broadcast_to(half, shape) for half in (index % jnp.uint32(columns), index // jnp.uint32(columns)))
        # In one kernel, each round would wait for the one before. In a loop, a round of some indices overlaps with that
        # of others, which on one core takes less than half the time.
        left, right = lax.fori_loop(0, len(salts), half_rounds, tuple(halves))
        return left + jnp.uint32(columns) * right

    if columns * rows == n:
        return network(index)
    walk = jnp.broadcast_to(index, shape), jnp.ones(shape, bool)

    def step(walk):
        place = jnp.where(walk[1], network(walk[0]), walk[0])
        return place, place >= jnp.uint32(n)

    return lax.while_loop(lambda walk: jnp.any(walk[1]), step, walk)[0]


def grid(n: int) -> tuple[int, int]:
    """Even columns and rows whose product is n or little more; an even number of columns reaches odd permutations.

    >>> grid(1000)
    (40, 25)
    """
    root = math.isqrt(n - 1) + 1 if n > 1 else 1
    evens = range(max(2, root + root % 2), root + root // 2 + 4, 2)
    columns = min(evens, key=lambda columns: columns * -(-n // columns))
    return columns, max(2, -(-n // columns))


def wrap(x, n: int):
    """x modulo n for x < 2n."""
    return jnp.where(x >= jnp.uint32(n), x - jnp.uint32(n), x)


def mix(x):
    """A 32-bit finaliser: every output bit depends on every input bit."""
    x = (x ^ (x >> jnp.uint32(16))) * jnp.uint32(0x21F0AAAD)
    x = (x ^ (x >> jnp.uint32(15))) * jnp.uint32(0xD35A2D97)
    return x ^ (x >> jnp.uint32(15))
