"""Proofs of order: weak order on the shipped code, invariant-measure order on Gaussians, words in exact fractions."""

from strang.theory.certificate.algebra import word_order as word_order
from strang.theory.certificate.invariant import invariant_order as invariant_order
from strang.theory.certificate.stationary import imbalance as imbalance
from strang.theory.certificate.weak import Certificate as Certificate
from strang.theory.certificate.weak import weak_order as weak_order
