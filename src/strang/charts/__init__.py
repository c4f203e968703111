"""Panels drawn as inline SVG for pages that need nothing else."""
