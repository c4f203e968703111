"""Thinned positions on disk: one .npy file per leaf of the position, draws first, then chains, for NumPy to open.

Draws are appended and never changed. A file's header says how many are whole and is rewritten in place once they are
on the disk; what lies beyond is what a killed process left, and is written over. So memory stays flat, and a reader
may look at any time.
"""

import os
import re
import zlib
from itertools import count
from pathlib import Path

import jax
import numpy as np

from strang.util.errors import InputError
from strang.util.files import npy_header, write_at
from strang.util.trees import Tree

CHUNK = 1 << 24  # bytes that a checksum reads at a time


def leaf_names(tree: Tree) -> list[str]:
    """A name for each leaf that serves as a file's and as a variable's.

    >>> leaf_names({"w": [1.0, 2.0], "a/b": 3.0}), leaf_names(1.0)
    (['a_b', 'w.0', 'w.1'], ['position'])
    """
    names: list[str] = []
    for path, _ in jax.tree_util.tree_leaves_with_path(tree):
        name = re.sub(r"[^\w.-]", "_", jax.tree_util.keystr(path, simple=True, separator=".")).lstrip(".") or "position"
        tries = (f"{name}_{k}" if k else name for k in count())
        names.append(next(each for each in tries if each not in names))
    return names


def header(draws: int, like: np.ndarray) -> bytes:
    """The .npy header of a number of draws; its length does not depend on their number."""
    return npy_header((draws, *like.shape), like.dtype)


class Draws:
    """The files of one run, open to be appended to; `count` and `sums` (checksums by name) are of what was appended."""

    def __init__(self, folder: Path, positions: Tree, draws: int = 0, sums: dict[str, int] | None = None):
        """`positions` are like a draw. The first `draws` of what is there already are kept, if they have these sums."""
        self.names = leaf_names(positions)
        self.like = [np.asarray(leaf) for leaf in jax.tree.leaves(positions)]
        self.folder = folder
        self.state = draws, dict.fromkeys(self.names, 0) if sums is None else sums
        folder.mkdir(exist_ok=True)
        if draws:
            read(folder, dict(zip(self.names, self.like, strict=True)), draws, self.sums)
        self.handles = [os.open(folder / f"{name}.npy", os.O_RDWR | os.O_CREAT, 0o644) for name in self.names]
        self.settle()

    @property
    def count(self) -> int:
        return self.state[0]

    @property
    def sums(self) -> dict[str, int]:
        return self.state[1]

    def append(self, positions: Tree) -> None:
        """More draws, along the leading axis."""
        (draws, sums), new = self.state, {}
        leaves = jax.tree.leaves(positions)
        for name, handle, like, leaf in zip(self.names, self.handles, self.like, leaves, strict=True):
            content = np.ascontiguousarray(leaf, like.dtype).tobytes()
            write_at(handle, content, len(header(0, like)) + draws * like.nbytes)
            new[name] = zlib.crc32(content, sums[name])
        self.state = draws + len(leaves[0]), new  # at once: Ctrl-C comes before or after

    def settle(self) -> None:
        """Bring the draws to the disk, then say that they are there."""
        for handle in self.handles:
            os.fsync(handle)
        for handle, like in zip(self.handles, self.like, strict=True):
            write_at(handle, header(self.count, like), 0)

    def close(self) -> None:
        for handle in self.handles:
            os.close(handle)


def mapped_tree(folder: Path, positions: Tree, draws: int) -> Tree:
    """The first draws in the structure of positions, as arrays that stay on the disk until they are looked at."""
    pairs = zip(leaf_names(positions), jax.tree.leaves(positions), strict=True)
    leaves = [mapped(folder, name, np.asarray(leaf), draws) for name, leaf in pairs]
    return jax.tree.unflatten(jax.tree.structure(positions), leaves)


def mapped(folder: Path, name: str, like: np.ndarray, draws: int) -> np.ndarray:
    """The first draws of a file, left on the disk."""
    shape = (draws, *like.shape)
    if not draws * like.size:
        return np.zeros(shape, like.dtype)
    return np.memmap(folder / f"{name}.npy", like.dtype, "r", len(header(0, like)), shape)


def read(folder: Path, like: dict[str, np.ndarray], draws: int, sums: dict[str, int]) -> dict[str, np.ndarray]:
    """The first draws of every file, by name, if they are what was written."""
    for name, one in like.items():
        path = folder / f"{name}.npy"
        left, total = draws * one.nbytes, 0
        try:
            with path.open("rb") as file:
                file.seek(len(header(0, one)))
                while left and (part := file.read(min(CHUNK, left))):
                    left, total = left - len(part), zlib.crc32(part, total)
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}).") from None
        if left or total != sums.get(name):
            raise InputError(f"{path} is damaged: its first {draws:,} draws are not what was written.")
    return {name: mapped(folder, name, one, draws) for name, one in like.items()}
