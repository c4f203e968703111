"""A corpus: bags of words that lie on disk in shards, mapped into memory, or in arrays.

A prepared folder holds `vocabulary.txt`, for each shard the arrays `offsets`, `ids` and `counts` as .npy files, and
`manifest.json`, which says how it was made and seals all of it with checksums. Its documents are in random order, so
any run of them is a random sample.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from strang.lda.text.bags import Bags, check, check_indptr, copy_runs, take, tidy
from strang.util.errors import InputError, first_line, whole
from strang.util.progress import bar

FORMAT = "strang corpus 1"
STEP = 1 << 22  # bytes looked at together
UNREADABLE = (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, EOFError, RecursionError)


class Shard(NamedTuple):
    """Document d has the words ids[offsets[d]:offsets[d + 1]], each `counts` times; `tokens` in all."""

    offsets: np.ndarray
    ids: np.ndarray
    counts: np.ndarray
    tokens: int


class Corpus:
    """Documents begin..end of some shards, seen `repeat` times over. See `open_corpus`, `from_csr`, `from_matrix`."""

    def __init__(
        self, shards: list[Shard], words: list[str], mark: str, begin: int = 0, end: int | None = None, repeat: int = 1
    ):
        self.shards, self.words, self.mark, self.repeat = shards, words, mark, whole("repeat", repeat)
        self.starts = np.cumsum([0, *(len(shard.offsets) - 1 for shard in shards)])
        self.begin, self.end = begin, int(self.starts[-1]) if end is None else end

    @property
    def documents(self) -> int:
        return (self.end - self.begin) * self.repeat

    @property
    def tokens(self) -> int:
        return self.repeat * sum(
            shard.tokens if whole else int(shard.counts[first:last].sum(dtype=np.int64))
            for shard, first, last, whole in self.spans()
        )

    @property
    def nonzeros(self) -> int:
        return self.repeat * sum(last - first for _, first, last, _ in self.spans())

    @property
    def fingerprint(self) -> str:
        """Equal for the same documents in the same order; for a prepared folder it comes from its checksums."""
        return hashlib.sha256(json.dumps([self.mark, self.begin, self.end, self.repeat]).encode()).hexdigest()

    def spans(self):
        """The entries of each shard that are in here: the shard, from, to, and whether that is all of it."""
        for shard, start in zip(self.shards, self.starts.tolist(), strict=False):
            documents = len(shard.offsets) - 1
            low, high = (min(max(number - start, 0), documents) for number in (self.begin, self.end))
            yield shard, int(shard.offsets[low]), int(shard.offsets[high]), (low, high) == (0, documents)

    def gather(self, numbers) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """These documents as (indptr int64, indices int32, counts int32).

        >>> corpus = from_csr([0, 2, 3], [0, 1, 1], [1, 2, 5], ["a", "b"])
        >>> [array.tolist() for array in corpus.gather([1, 0])]
        [[0, 1, 3], [1, 0, 1], [5, 1, 2]]
        """
        numbers = np.asarray(numbers)
        if numbers.ndim != 1 or (numbers.dtype.kind not in "iu" and len(numbers)):
            raise InputError(
                f"document numbers have shape {numbers.shape} and dtype {numbers.dtype}; give a row of ints."
            )
        if len(numbers) and not (numbers.min() >= 0 and numbers.max() < self.documents):
            raise InputError(
                f"document numbers go from {numbers.min()} to {numbers.max()}; there are {self.documents:,}."
            )
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
        """Training and test documents; the last `test` are set aside. In a prepared folder the order is random, so they
        are a random sample and always the same one; `repeat` is for training only."""
        held = self.end - self.begin
        if whole("test", test, 0) >= held:
            raise InputError(f"test is {test}; set aside fewer than all {held:,} documents.")
        middle = self.end - int(test)
        train = Corpus(self.shards, self.words, self.mark, self.begin, middle, self.repeat)
        return train, Corpus(self.shards, self.words, self.mark, middle, self.end)


def from_csr(indptr, indices, counts, words: list[str], *, seed: int | None = None) -> Corpus:
    """A corpus of arrays in memory. Entries of one word are added up, zeros left out, empty documents kept; `seed`
    brings the documents into random order, as a split needs them."""
    indptr, indices, counts = map(np.asarray, (indptr, indices, counts))
    indptr = check_indptr(indptr)
    if not len(indices) == len(counts) == indptr[-1]:
        raise InputError(
            f"indptr ends with {indptr[-1]:,}, indices has {len(indices):,} and counts {len(counts):,} entries."
        )
    words = check_words(words)
    bags = tidy(check(Bags(np.diff(indptr), indices, counts), len(words)))
    if seed is not None:
        bags = take(bags, np.random.default_rng(whole("seed", seed, 0)).permutation(len(bags.lengths)))
    if bags.counts.max(initial=0) > np.iinfo(np.int32).max:
        raise InputError("a word is in a document 2^31 times or more; counts are below that.")
    offsets = np.append(0, np.cumsum(bags.lengths))
    shard = Shard(offsets, bags.ids.astype(np.int32), bags.counts.astype(np.int32), int(bags.counts.sum()))
    mark = hashlib.sha256(json.dumps(words).encode())
    for array in shard[:3]:
        mark.update(array.tobytes())
    return Corpus([shard], words, mark.hexdigest())


def from_matrix(matrix, words: list[str] | None = None, *, seed: int | None = None) -> Corpus:
    """A corpus of a matrix of counts, documents by words, dense or SciPy sparse."""
    try:
        rows = sparse.csr_array(matrix)
    except (TypeError, ValueError) as error:
        raise InputError(f"the matrix of counts cannot be read ({first_line(error)}).") from None
    words = [str(word) for word in range(rows.shape[1])] if words is None else words
    if len(words) != rows.shape[1]:
        raise InputError(f"the matrix has {rows.shape[1]:,} columns, the vocabulary {len(words):,} words.")
    return from_csr(rows.indptr, rows.indices, rows.data, words, seed=seed)


def check_words(words) -> list[str]:
    words = [str(word) for word in words]
    if not words or len(set(words)) < len(words):
        raise InputError(
            f"the vocabulary has {len(words):,} words, {len(set(words)):,} of them different; give each once."
        )
    return words


def seal(manifest: dict[str, Any]) -> str:
    """A checksum of everything else in a manifest."""
    others = {name: value for name, value in manifest.items() if name != "seal"}
    return hashlib.sha256(json.dumps(others, sort_keys=True).encode()).hexdigest()


def read_manifest(folder: Path) -> dict[str, Any]:
    path = Path(folder) / "manifest.json"
    try:
        manifest = json.loads(path.read_bytes())
        if manifest["format"] != FORMAT or manifest["seal"] != seal(manifest):
            raise ValueError("it was changed, or is of another format")
    except FileNotFoundError:
        raise InputError(f"{folder} is no prepared corpus: it has no manifest.json; see strang lda prepare.") from None
    except UNREADABLE as error:
        raise InputError(f"{path} is damaged ({first_line(error)}); prepare the corpus again.") from None
    return manifest


def open_corpus(path: str | Path, *, repeat: int = 1, verify: bool = False, progress: bool | None = None) -> Corpus:
    """A prepared folder. Sizes, dtypes, offsets and ids are checked; with `verify` the checksum of every file too,
    which takes about a second a gigabyte.

    Nothing is read into memory: `gather` reads what it is asked for. `repeat` shows the documents so many times over.
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    try:
        for name, file in manifest["files"].items():
            if (folder / name).stat().st_size != file["bytes"]:
                raise ValueError(f"{name} does not have its {file['bytes']:,} bytes")
        if verify:
            verify_files(folder, manifest["files"], progress)
        words = (folder / "vocabulary.txt").read_bytes().decode().split("\n")[:-1]
        if len(words) != manifest["vocabulary"]:
            raise ValueError(f"vocabulary.txt does not have its {manifest['vocabulary']:,} words")
        shards = [open_shard(folder, shard, len(words)) for shard in manifest["shards"]]
        mark = hashlib.sha256(json.dumps(manifest["files"], sort_keys=True).encode()).hexdigest()
    except Exception as error:  # a damaged array raises almost anything
        raise InputError(f"the corpus {folder} is damaged ({first_line(error)}); prepare it again.") from None
    return Corpus(shards, words, mark, repeat=repeat)


def verify_files(folder: Path, files: dict[str, Any], progress: bool | None) -> None:
    with bar(len(files), "verifying the corpus", progress) as done:
        for count, (name, file) in enumerate(files.items(), start=1):
            if checksum(folder / name) != file["sha256"]:
                raise ValueError(f"{name} does not have its checksum")
            done(count)


def open_shard(folder: Path, about: dict[str, Any], vocabulary: int) -> Shard:
    """The arrays of a shard, mapped, as far as they can be trusted without their checksums."""
    name, documents, entries = about["name"], about["documents"], about["nonzeros"]
    expected = {
        "offsets": (np.dtype(np.int64), documents + 1),
        "ids": (np.dtype(ids_type(vocabulary)), entries),
        "counts": (np.dtype(np.uint16), entries),
    }
    arrays = []
    for part, (dtype, size) in expected.items():
        path = folder / f"{name}.{part}.npy"
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if (array.dtype, array.shape) != (dtype, (size,)):
            raise ValueError(f"{name}.{part}.npy has dtype {array.dtype} and shape {array.shape}")
        if part == "ids" and largest(path, dtype, array.offset) >= vocabulary:
            raise ValueError(f"{path.name} has words outside the vocabulary")
        arrays.append(array.view(np.ndarray))
    offsets, ids, counts = arrays
    if offsets[0] != 0 or offsets[-1] != entries or (offsets[1:] < offsets[:-1]).any():
        raise ValueError(f"{name}.offsets.npy does not rise from 0 to {entries:,}")
    return Shard(offsets, ids, counts, about["tokens"])


def largest(path: Path, dtype: np.dtype, offset: int) -> int:
    """The largest number of an array on disk, read past the memory map so that its pages do not stay."""
    with path.open("rb") as file:
        file.seek(offset)
        return max((int(np.frombuffer(data, dtype).max()) for data in iter(lambda: file.read(STEP), b"")), default=-1)


def ids_type(vocabulary: int) -> type[np.unsignedinteger]:
    return np.uint16 if vocabulary <= 1 << 16 else np.uint32


def checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
