"""Compiled loops over documents."""
