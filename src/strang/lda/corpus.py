"""A corpus: bags of words in shards, which are files mapped into memory, or arrays.

A prepared folder holds `vocabulary.txt`, for each shard the arrays `offsets`, `ids` and `counts` as .npy files, and
`manifest.json`, which says how it was made and has the checksums of all files and of itself. Its documents are in
random order, so any run of them is a random sample.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from strang.lda.text.bags import copy_runs, from_csr_arrays, take, tidy
from strang.util.errors import InputError, first_line, whole
from strang.util.files import damaged
from strang.util.progress import track

FORMAT = "strang corpus 1"
READ_BYTES = 1 << 22  # read from a file at a time


class Shard(NamedTuple):
    """Document d has the words ids[offsets[d]:offsets[d + 1]], each `counts` times; `tokens` in all."""

    offsets: np.ndarray
    ids: np.ndarray
    counts: np.ndarray
    tokens: int


class Corpus:
    """Documents, made by `open_corpus`, `from_csr` or `from_matrix`: bags of words, which are numbers of `words`.

    They are those from `begin` to `end` of the shards, `repeat` times over; `mark` is a checksum of shards and words.

    Example:
        >>> corpus = from_matrix([[2, 0], [1, 1], [0, 3]], ["ant", "bee"])
        >>> corpus.documents, corpus.tokens, corpus.nonzeros
        (3, 7, 4)
    """

    def __init__(
        self, shards: list[Shard], words: list[str], mark: str, begin: int = 0, end: int | None = None, repeat: int = 1
    ):
        self.shards, self.words, self.mark, self.repeat = shards, words, mark, whole("repeat", repeat)
        self.starts = np.cumsum([0, *(len(shard.offsets) - 1 for shard in shards)])
        self.begin, self.end = begin, int(self.starts[-1]) if end is None else end

    def first(self, documents: int) -> "Corpus":
        """The first documents, or all; without repetition."""
        return Corpus(self.shards, self.words, self.mark, self.begin, min(self.begin + documents, self.end))

    @property
    def documents(self) -> int:
        return (self.end - self.begin) * self.repeat

    @property
    def tokens(self) -> int:
        return self.repeat * sum(
            shard.tokens if last - first == len(shard.ids) else int(shard.counts[first:last].sum(dtype=np.int64))
            for shard, first, last in self.spans()
        )

    @property
    def nonzeros(self) -> int:
        return self.repeat * sum(last - first for _, first, last in self.spans())

    @property
    def fingerprint(self) -> str:
        """Equal for the same documents in the same order; for a prepared folder it comes from its checksums."""
        return hashlib.sha256(json.dumps([self.mark, self.begin, self.end, self.repeat]).encode()).hexdigest()

    def spans(self) -> Iterator[tuple[Shard, int, int]]:
        """Each shard with the range of its entries that belong to documents `begin` to `end`."""
        for shard, start in zip(self.shards, self.starts.tolist(), strict=False):
            low, high = np.clip([self.begin - start, self.end - start], 0, len(shard.offsets) - 1)
            yield shard, int(shard.offsets[low]), int(shard.offsets[high])

    def gather(self, numbers: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Read some documents.

        Args:
            numbers: which ones, from 0 to `documents` - 1, in any order.

        Returns:
            indptr (int64), indices (int32) and counts (int32), as in a CSR matrix.

        Example:
            >>> corpus = from_csr([0, 2, 3], [0, 1, 1], [1, 2, 5], ["a", "b"])
            >>> [array.tolist() for array in corpus.gather([1, 0])]
            [[0, 1, 3], [1, 0, 1], [5, 1, 2]]
        """
        numbers = np.asarray(numbers)
        if (shape := numbers.shape) != (numbers.size,) or (numbers.dtype.kind not in "iu" and numbers.size):
            raise InputError(f"document numbers have shape {shape} and dtype {numbers.dtype}; give a row of ints.")
        if numbers.size and not 0 <= (low := numbers.min()) <= numbers.max() < self.documents:
            raise InputError(f"document numbers go from {low} to {numbers.max()}; there are {self.documents:,}.")
        rows = self.begin + numbers.astype(np.int64) % max(self.end - self.begin, 1)
        places = np.searchsorted(self.starts, rows, side="right") - 1
        rows -= self.starts[places]
        starts, lengths = np.empty_like(rows), np.empty_like(rows)
        groups = [(self.shards[place], np.flatnonzero(places == place)) for place in np.unique(places)]
        for shard, own in groups:
            starts[own] = shard.offsets[rows[own]]
            lengths[own] = shard.offsets[rows[own] + 1] - starts[own]
        indptr = np.append(0, np.cumsum(lengths))
        ids, counts = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.int32)
        for shard, own in groups:
            copy_runs(starts[own], lengths[own], indptr[own], shard.ids, shard.counts, ids, counts)
        return indptr, ids, counts

    def split(self, test: int) -> tuple["Corpus", "Corpus"]:
        """Set the last documents aside. In a prepared folder the order is random, so they are a random sample.

        Args:
            test: how many documents to set aside, fewer than all.

        Returns:
            The training corpus, with this corpus's `repeat`, and the test corpus, without.

        Example:
            >>> train, test = from_matrix([[2, 0], [1, 1], [0, 3]]).split(1)
            >>> train.documents, test.tokens
            (2, 3)
        """
        available = self.end - self.begin
        if whole("test", test, 0) >= available:
            raise InputError(f"test is {test}; set aside fewer than all {available:,} documents.")
        middle = self.end - int(test)
        train = Corpus(self.shards, self.words, self.mark, self.begin, middle, self.repeat)
        return train, Corpus(self.shards, self.words, self.mark, middle, self.end)


def from_csr(indptr: Any, indices: Any, counts: Any, words: Sequence[str], *, seed: int | None = None) -> Corpus:
    """Make a corpus of the arrays of a CSR matrix, documents by words.

    Entries of one word are added up, zeros are left out, empty documents are kept.

    Args:
        indptr: document d has the entries indptr[d] to indptr[d + 1].
        indices: the word of each entry.
        counts: how often the word is in the document.
        words: the vocabulary.
        seed: brings the documents into random order, as `Corpus.split` needs them; None keeps their order.

    Returns:
        A corpus in memory.

    Raises:
        InputError: if the arrays do not fit together, a count is no whole number, or a word is unknown.

    Example:
        >>> from_csr([0, 2, 3], [0, 1, 1], [1, 2, 5], ["ant", "bee"]).tokens
        8
    """
    words = [str(word) for word in words]
    if (different := len(set(words))) < max(len(words), 1):
        raise InputError(f"the vocabulary has {len(words):,} words, {different:,} of them different; give each once.")
    bags = tidy(from_csr_arrays(indptr, indices, counts, len(words)))
    if seed is not None:
        bags = take(bags, np.random.default_rng(whole("seed", seed, 0)).permutation(len(bags.lengths)))
    if bags.counts.max(initial=0) > np.iinfo(np.int32).max:
        raise InputError("a word is in a document 2^31 times or more; counts are below that.")
    shard = Shard(bags.offsets, bags.ids.astype(np.int32), bags.counts.astype(np.int32), int(bags.counts.sum()))
    mark = hashlib.sha256(json.dumps(words).encode())
    for array in shard[:3]:
        mark.update(array.tobytes())
    return Corpus([shard], words, mark.hexdigest())


def from_matrix(matrix: Any, words: Sequence[str] | None = None, *, seed: int | None = None) -> Corpus:
    """Make a corpus of a matrix of counts, documents by words.

    Args:
        matrix: dense, or sparse as in SciPy.
        words: the vocabulary; by default the numbers of the columns.
        seed: brings the documents into random order, as `Corpus.split` needs them; None keeps their order.

    Returns:
        A corpus in memory.

    Raises:
        InputError: if this is no matrix of counts, or the vocabulary does not fit its columns.

    Example:
        >>> from_matrix([[2, 0], [1, 1]]).words
        ['0', '1']
    """
    try:
        rows = sparse.csr_array(matrix)
    except (TypeError, ValueError) as error:
        raise InputError(f"the matrix of counts cannot be read ({first_line(error)}).") from None
    words = list(map(str, range(rows.shape[1]))) if words is None else words
    if len(words) != rows.shape[1]:
        raise InputError(f"the matrix has {rows.shape[1]:,} columns, the vocabulary {len(words):,} words.")
    return from_csr(rows.indptr, rows.indices, rows.data, words, seed=seed)


def seal(entries: dict[str, Any]) -> str:
    """A checksum of a manifest, or of a part of it, without the entry `seal`."""
    others = {name: value for name, value in entries.items() if name != "seal"}
    return hashlib.sha256(json.dumps(others, sort_keys=True).encode()).hexdigest()


def checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_manifest(folder: Path) -> dict[str, Any]:
    path = Path(folder) / "manifest.json"
    try:
        manifest = json.loads(path.read_bytes())
        if manifest["format"] != FORMAT or manifest["seal"] != seal(manifest):
            raise ValueError("it was changed, or is of another format")
    except FileNotFoundError:
        raise InputError(f"{folder} is no prepared corpus: it has no manifest.json; see strang lda prepare.") from None
    except Exception as error:  # damaged JSON raises almost anything
        raise damaged(path, error, "prepare the corpus again.") from None
    return manifest


def open_corpus(path: str | Path, *, repeat: int = 1, verify: bool = False, progress: bool | None = None) -> Corpus:
    """Open a prepared folder. Its documents stay on disk until `Corpus.gather` reads them.

    Sizes, dtypes, offsets and ids are always checked.

    Args:
        path: a folder that `strang lda prepare` has written.
        repeat: how many times the documents appear.
        verify: whether to check the checksum of every file too, which takes about a second per gigabyte.
        progress: whether to show the progress of that; None means only on a terminal.

    Returns:
        A corpus on disk.

    Raises:
        InputError: if this is no prepared folder, or it is damaged.

    Example:
        >>> import tempfile
        >>> from strang.lda.text.prepare import prepare
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "texts.jsonl").write_text('{"text": "Two cats and a cat"}')
        ...     _ = prepare(f"{folder}/texts.jsonl", f"{folder}/corpus", min_documents=1, max_share=1)
        ...     open_corpus(f"{folder}/corpus").words
        ['cat', 'cats']
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    try:
        files = manifest["files"]
        for name, file in files.items():
            if (folder / name).stat().st_size != file["bytes"]:
                raise ValueError(f"{name} does not have its {file['bytes']:,} bytes")
        for name in track(files, "verifying the corpus", progress) if verify else ():
            if checksum(folder / name) != files[name]["sha256"]:
                raise ValueError(f"{name} does not have its checksum")
        words = (folder / "vocabulary.txt").read_bytes().decode().split("\n")[:-1]
        if len(words) != manifest["vocabulary"]:
            raise ValueError(f"vocabulary.txt does not have its {manifest['vocabulary']:,} words")
        shards = [open_shard(folder, shard, len(words)) for shard in manifest["shards"]]
    except Exception as error:  # a damaged array raises almost anything
        raise InputError(f"the corpus {folder} is damaged ({first_line(error)}); prepare it again.") from None
    return Corpus(shards, words, seal(files), repeat=repeat)


def open_shard(folder: Path, about: dict[str, Any], vocabulary: int) -> Shard:
    """The arrays of a shard, mapped, as far as they can be trusted without their checksums."""
    name, entries, arrays = about["name"], about["nonzeros"], []
    sizes = {"offsets": about["documents"] + 1, "ids": entries, "counts": entries}
    for (part, size), dtype in zip(sizes.items(), (np.int64, ids_type(vocabulary), np.uint16), strict=True):
        path = folder / f"{name}.{part}.npy"
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if (array.dtype, array.shape) != (dtype, (size,)):
            raise ValueError(f"{path.name} has dtype {array.dtype} and shape {array.shape}")
        if part == "ids" and largest(path, array.dtype, array.offset) >= vocabulary:
            raise ValueError(f"{path.name} has words outside the vocabulary")
        arrays.append(array.view(np.ndarray))
    offsets, ids, counts = arrays
    if offsets[0] != 0 or offsets[-1] != entries or (offsets[1:] < offsets[:-1]).any():
        raise ValueError(f"{name}.offsets.npy does not rise from 0 to {entries:,}")
    return Shard(offsets, ids, counts, about["tokens"])


def largest(path: Path, dtype: np.dtype, offset: int) -> int:
    """The largest number of an array on disk, read without the memory map, whose pages would stay in memory."""
    with path.open("rb") as file:
        file.seek(offset)
        blocks = iter(lambda: file.read(READ_BYTES), b"")
        return max((int(np.frombuffer(block, dtype).max()) for block in blocks), default=-1)


def ids_type(vocabulary: int) -> type[np.unsignedinteger]:
    return np.uint16 if vocabulary <= 1 << 16 else np.uint32
