"""Compiled loops over images."""
