"""What every room uses: pytrees, random numbers, errors, files, progress, compiled loops of the host."""
