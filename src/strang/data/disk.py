"""Rows in files: .npy, folders of them, and tables that are brought into that form once."""

import hashlib
from pathlib import Path
from typing import Any

import jax
import numpy as np

from strang.data.npy import PIECE, Held, Shards
from strang.data.source import Source, check_numbers
from strang.util.errors import InputError
from strang.util.progress import bar
from strang.util.trees import Tree

KEPT = 1 << 27  # bytes that are kept in memory where they are all there is, or all there is of some leaves
TABLES = (".parquet", ".arrow", ".feather")


class Files(Source):
    """Arrays on disk with a common number of rows, one for each leaf of a datum."""

    def __init__(self, columns: Tree):
        self.columns: list[Shards | Held] = jax.tree.leaves(columns)
        super().__init__(jax.tree.map(lambda column: column.datum, columns))
        sizes = {column.name: column.size for column in self.columns}
        if len(set(sizes.values())) > 1:
            told = ", ".join(f"{name} has {size:,}" for name, size in sizes.items())
            raise InputError(f"the data must have equally many rows, but {told}.")
        self.size = self.columns[0].size
        room = KEPT
        for column in sorted(self.columns, key=lambda column: column.width):
            room -= self.size * column.width
            if isinstance(column, Shards):
                column.keep = room >= 0
        self.marks = [mark for column in self.columns for mark in column.marks]

    def shapes(self, where: list) -> list[jax.ShapeDtypeStruct]:
        """A request is an array of row numbers for each leaf."""
        pairs = zip(jax.tree.leaves(self.datum), where, strict=True)
        return [jax.ShapeDtypeStruct((*numbers.shape, *row.shape), row.dtype) for row, numbers in pairs]

    def read(self, where: list[np.ndarray]) -> list[np.ndarray]:
        found = []
        for column, numbers in zip(self.columns, where, strict=True):
            rows = column.read(numbers.reshape(-1).astype(np.int64))
            found.append(rows.reshape(*numbers.shape, *column.datum.shape))
        return found

    def verify(self, known: tuple[list[Any], str] | None, progress: bool | None) -> None:
        """Read everything once: all must be finite, and has a hash. Files with the marks of an earlier look are not
        looked at again."""
        if self.digest is not None:
            return
        if known is not None and None not in self.marks and known[0] == self.marks:
            self.digest = known[1]
            return
        total = hashlib.sha256()
        count = sum(-(-column.size // max(1, PIECE // column.width)) for column in self.columns)
        done = 0
        with bar(count, "looking through the data", progress) as show:
            for column in self.columns:
                total.update(f"{column.stored.str}{(column.size, *column.datum.shape)}".encode())
                first = 0
                for rows in column.pieces():
                    check_numbers(rows, column.datum.dtype, column.name, first)
                    total.update(rows.tobytes())
                    first, done = first + len(rows), done + 1
                    show(done)
        self.digest = total.hexdigest()


def open_files(paths: Tree, cache: Path | None, columns: str | list[str] | None) -> Files:
    """The source of a path, or of a pytree of paths and arrays."""
    leaves = jax.tree.leaves(paths)
    if not leaves:
        raise InputError("there is no path in the data; give a .npy file, a folder of them, or a pytree of such.")
    tables = [leaf for leaf in leaves if isinstance(leaf, str | Path) and is_table(Path(leaf))]
    if tables and len(leaves) > 1:
        raise InputError(f"{tables[0]} is a table, which is a pytree by itself; give it alone, with columns=[...].")
    if tables:
        from strang.data.tables import open_table

        found = open_table(Path(tables[0]), cache, [columns] if isinstance(columns, str) else columns)
        opened = {name: Shards([path]) for name, path in found.items()}
        return Files(opened[columns] if isinstance(columns, str) else opened)
    if columns is not None or cache is not None:
        raise InputError("columns and cache are for tables (Parquet, Arrow); leave them out.")
    return Files(jax.tree.map(open_column, paths))


def is_table(path: Path) -> bool:
    """Whether a file is a table by its name, or a folder has tables in it."""
    return path.suffix in TABLES or (path.is_dir() and bool(files_of(path, TABLES)) and not files_of(path, (".npy",)))


def files_of(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """The files of a folder with such names, but hidden ones, in the order of their names."""
    found = (path for path in folder.iterdir() if path.suffix in suffixes and not path.name.startswith("."))
    return sorted(found, key=lambda path: path.name)


def open_column(leaf: Any) -> Shards | Held:
    """One array: a file, a folder of shards, or an array itself."""
    if not isinstance(leaf, str | Path):
        return Held(np.asanyarray(leaf))
    path = Path(leaf)
    if not path.is_dir():
        return Shards([path])
    paths = files_of(path, (".npy",))
    if not paths:
        raise InputError(f"{path} holds no .npy files, and no tables ({', '.join(TABLES)}).")
    if files_of(path, TABLES):
        raise InputError(f"{path} holds .npy files and tables; keep one kind in a folder.")
    return Shards(paths)
