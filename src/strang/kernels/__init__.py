"""Loops that no array language runs well, compiled for the CPU by Numba, and the one way they are called."""
