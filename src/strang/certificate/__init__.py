"""Proofs of order: weak order on the shipped code, invariant-measure order on Gaussians, words in exact fractions."""

from .algebra import word_order as word_order
from .invariant import invariant_order as invariant_order
from .weak import Certificate as Certificate
from .weak import weak_order as weak_order
