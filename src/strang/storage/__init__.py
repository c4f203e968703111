"""A run is a folder: manifest, chain, series of measurements, draws."""
