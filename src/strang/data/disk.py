"""Rows in files: `.npy` files, folders of them, and tables, which are copied to `.npy` files once."""

import hashlib
from pathlib import Path
from typing import Any

import jax
import numpy as np

from strang.data.npy import Held, Shards
from strang.data.source import Source, check_numbers
from strang.util.errors import InputError
from strang.util.progress import bar
from strang.util.trees import Tree

MAX_BYTES_IN_MEMORY = 1 << 27  # for arrays that are read only once; the smallest ones first
TABLE_SUFFIXES = (".parquet", ".arrow", ".feather")


class Files(Source):
    """Arrays on disk with a common number of rows, one per leaf of a datum."""

    def __init__(self, columns: Tree):
        self.columns: list[Shards | Held] = jax.tree.leaves(columns)
        super().__init__(jax.tree.map(lambda column: column.datum, columns))
        if len({column.size for column in self.columns}) > 1:
            counts = ", ".join(f"{column.name} has {column.size:,}" for column in self.columns)
            raise InputError(f"the data must have equally many rows, but {counts}.")
        self.size = self.columns[0].size
        free = MAX_BYTES_IN_MEMORY
        for column in sorted(self.columns, key=lambda column: column.width):
            free -= self.size * column.width
            if isinstance(column, Shards):
                column.keep_in_memory = free >= 0
        self.marks = [mark for column in self.columns for mark in column.marks]

    def read(self, request: list[np.ndarray]) -> list[np.ndarray]:
        return [
            column.read(numbers.reshape(-1).astype(np.int64)).reshape(*numbers.shape, *column.datum.shape)
            for column, numbers in zip(self.columns, request, strict=True)
        ]

    def verify(self, known: tuple[list[Any], str] | None, progress: bool | None) -> None:
        """Reads everything once, to check that all numbers are finite and to hash them. Files that still have the marks
        of an earlier check are not read again."""
        if self.digest is None and known is not None and None not in self.marks and known[0] == self.marks:
            self.digest = known[1]
        if self.digest is not None:
            return
        total, done = hashlib.sha256(), 0
        with bar(len(self.columns) * self.size, "checking the data", progress) as show:
            for column in self.columns:
                total.update(f"{column.stored.str}{(column.size, *column.datum.shape)}".encode())
                first = done
                for rows in column.chunks():
                    check_numbers(rows, column.datum.dtype, column.name, done - first)
                    total.update(rows.tobytes())
                    done += len(rows)
                    show(done)
        self.digest = total.hexdigest()


def open_files(paths: Tree, cache: Path | None, columns: str | list[str] | None) -> Files:
    """Opens a path, or a pytree of paths and arrays."""
    leaves = jax.tree.leaves(paths)
    if not leaves:
        raise InputError("there is no path in the data; give a .npy file, a folder of them, or a pytree of such.")
    tables = [leaf for leaf in leaves if isinstance(leaf, str | Path) and is_table(Path(leaf))]
    if tables and len(leaves) > 1:
        raise InputError(f"{tables[0]} is a table, which is a pytree by itself; give it alone, with columns=[...].")
    if tables:
        from strang.data.tables import open_table

        copies = open_table(Path(tables[0]), cache, [columns] if isinstance(columns, str) else columns)
        opened = {name: Shards([path]) for name, path in copies.items()}
        return Files(opened[columns] if isinstance(columns, str) else opened)
    if columns is not None or cache is not None:
        raise InputError("columns and cache are for tables (Parquet, Arrow); leave them out.")
    return Files(jax.tree.map(open_column, paths))


def is_table(path: Path) -> bool:
    """Whether a file is a table by its name, or a folder holds tables and no `.npy` files."""
    return path.suffix in TABLE_SUFFIXES or (
        path.is_dir() and bool(files_of(path, TABLE_SUFFIXES)) and not files_of(path, (".npy",))
    )


def files_of(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """The files of a folder with these suffixes, except hidden ones, in the order of their names."""
    return sorted(path for path in folder.iterdir() if path.suffix in suffixes and not path.name.startswith("."))


def open_column(leaf: Any) -> Shards | Held:
    """Opens one array: a file, a folder of files, or an array in memory."""
    if not isinstance(leaf, str | Path):
        return Held(np.asanyarray(leaf))
    path = Path(leaf)
    if not path.is_dir():
        return Shards([path])
    paths = files_of(path, (".npy",))
    if not paths:
        raise InputError(f"{path} holds no .npy files, and no tables ({', '.join(TABLE_SUFFIXES)}).")
    if files_of(path, TABLE_SUFFIXES):
        raise InputError(f"{path} holds .npy files and tables; keep one kind in a folder.")
    return Shards(paths)
