"""Rows on disk are read as NumPy reads them; damage of any kind is an error, never a crash or a wrong answer."""

import io
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strang
from strang.data import npy, tables
from strang.data.npy import Held, Shards
from strang.data.orders import make_order
from strang.util.errors import InputError

DTYPES = ["<f4", ">f4", "<f8", ">i2", "<u4", "|u1", "<f2", "|b1", ">i8"]


def numbers(shape, dtype, seed=0):
    return np.random.default_rng(seed).integers(0, 100, shape).astype(dtype)


def write_shards(folder, array, cuts):
    """Writes the array to files with names in order."""
    paths = [Path(folder) / f"{k:03}.npy" for k in range(len(cuts) + 1)]
    for path, part in zip(paths, np.split(array, cuts), strict=True):
        np.save(path, part)
    return paths


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(DTYPES),
    st.sampled_from([(), (1,), (3,), (2, 5)]),
    st.lists(st.integers(1, 39), max_size=4, unique=True).map(sorted),
    st.lists(st.integers(0, 39), min_size=1, max_size=100),
    st.sampled_from([1, 16, 4096]),
    st.sampled_from([1, 24, 1 << 23]),
)
def test_rows_are_those_of_numpy(dtype, row, cuts, wanted, gap, chunk):
    """Whatever gap is bridged, and however large a chunk is."""
    array = numbers((40, *row), dtype)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(npy, "MAX_GAP_BYTES", gap)
        patch.setattr(npy, "CHUNK_BYTES", chunk)
        for column in (Shards(write_shards(folder, array, cuts)), Held(np.asfortranarray(array))):
            rows = column.read(np.array(wanted))
            assert rows.dtype == column.datum.dtype == jax.dtypes.canonicalize_dtype(array.dtype.newbyteorder("="))
            np.testing.assert_array_equal(rows, array[wanted])
            np.testing.assert_array_equal(np.concatenate(list(column.chunks())), array)
            column.keep_in_memory = True
            np.testing.assert_array_equal(column.read(np.array(wanted)), array[wanted])


def test_many_shards_need_few_open_files(tmp_path):
    array = numbers((200, 2), "f4")
    column = Shards(write_shards(tmp_path, array, range(1, 200)))
    np.testing.assert_array_equal(column.read(np.arange(200)[::-1]), array[::-1])
    assert len(column.handles) == npy.MAX_OPEN_FILES


def saved(array, **how):
    buffer = io.BytesIO()
    np.save(buffer, array, **how)
    return buffer.getvalue()


WHOLE = saved(numbers((7, 3), "f4"))


def opened(path):
    data = strang.data.files(path, batch_size=1)
    data.verify(progress=False)
    return np.asarray(data.all_rows())


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.builds(lambda cut: WHOLE[:cut], st.integers(0, len(WHOLE) - 1)),
        st.builds(
            lambda at, bit: WHOLE[:at] + bytes([WHOLE[at] ^ 1 << bit]) + WHOLE[at + 1 :],
            st.integers(0, len(WHOLE) - 1),
            st.integers(0, 7),
        ),
        st.builds(lambda head, tail: WHOLE[:10] + head + tail, st.binary(max_size=118), st.binary(max_size=90)),
        st.binary(max_size=200),
        st.builds(
            lambda shape, descr: (
                npy_bytes(f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}") + bytes(84)
            ),
            st.sampled_from(["(7, 3)", "(-7, -3)", "(7, True)", "7", "(2**40,)", "(" * 90, "(9999999999999999999, 3)"]),
            st.sampled_from(["<f4", "O", "|O", "<M8[s]", "<U3", "<c8", "V12", "bad", "<f16", [("a", "<f4")]]),
        ),
    )
)
def test_a_damaged_file_is_an_error_or_what_numpy_reads(content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npy"
        path.write_bytes(content)
        try:
            rows = opened(path)
        except InputError:
            return
        np.testing.assert_array_equal(rows, np.load(path, allow_pickle=False))


def npy_bytes(text):
    header = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


BAD = {
    "object": (saved(np.array([{}, 1], object), allow_pickle=True), "dtype object"),
    "text": (saved(np.array(["a"])), "save it as numbers"),
    "fortran": (saved(np.asfortranarray(numbers((4, 3), "f4"))), "ascontiguousarray"),
    "scalar": (saved(np.float32(1)), r"shape \(\)"),
    "no rows": (saved(np.zeros((0, 3), np.float32)), r"shape \(0, 3\)"),
    "empty": (b"", "not a .npy file"),
    "cut": (WHOLE[:-1], "cut short"),
    "longer": (WHOLE + b"x", "cut short or damaged"),
    "nan": (saved(np.array([[1.0, 2], [np.nan, 3]], np.float32)), "x.npy is not finite: nan in row 1"),
    "too large for int32": (saved(np.array([1, 2**40])), "does not fit int32: 1099511627776 in row 1"),
    "too large": (saved(np.array([1.0, 1e300])), r"not finite: 1e\+300 in row 1"),  # in single precision
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused(tmp_path, name):
    content, reason = BAD[name]
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(InputError, match=reason):
        opened(tmp_path / "x.npy")


def test_bad_folders_and_paths_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", numbers((4, 3), "f4"))
    for second, reason in (
        (numbers((4, 2), "f4"), r"b.npy has rows of shape \(2,\)"),
        (numbers((4, 3), "f8"), "float64"),
    ):
        np.save(tmp_path / "b.npy", second)
        with pytest.raises(InputError, match=reason):
            opened(tmp_path)
    with pytest.raises(InputError, match=r"equally many rows, but .*a.npy has 4, a data array has 5"):
        strang.data.files((tmp_path / "a.npy", np.zeros(5)), batch_size=1)
    with pytest.raises(InputError, match=r"a data array has 5, a data array has 4"):
        strang.data.files((np.zeros(5), np.zeros(4)), batch_size=1)
    (tmp_path / "c.parquet").write_bytes(b"")
    with pytest.raises(InputError, match="keep one kind"):
        opened(tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    os.mkfifo(tmp_path / "pipe.npy")  # which would wait for a writer
    for path, reason in (
        (empty, "holds no .npy"),
        (empty / "x.npy", "not there"),
        (tmp_path / "pipe.npy", "not a file"),
    ):
        with pytest.raises(InputError, match=reason):
            opened(path)
    with pytest.raises(InputError, match="columns and cache are for tables"):
        strang.data.files(tmp_path / "a.npy", batch_size=1, columns=["x"])
    with pytest.raises(InputError, match=r"at most 4,000,000,000"):
        make_order(2**32, 10, "iid")


@pytest.mark.parametrize("change", ["cut", "written", "deleted"])
def test_a_file_that_changes_in_use_is_an_error(tmp_path, change):
    array = numbers((3000, 4), "f4")
    np.save(tmp_path / "x.npy", array)
    column, mapped = Shards([tmp_path / "x.npy"]), Held(np.load(tmp_path / "x.npy", mmap_mode="r"))
    np.testing.assert_array_equal(column.read(np.array([2999])), array[-1:])
    if change == "cut":
        os.truncate(tmp_path / "x.npy", 20_000)
        with pytest.raises(InputError, match="cut short while it was mapped"):
            mapped.read(np.array([2999]))
    elif change == "written":
        with (tmp_path / "x.npy").open("r+b") as file:
            file.seek(1000)
            file.write(b"\1")
        os.utime(tmp_path / "x.npy", ns=(0, column.marks[0][2] + 1))
    else:
        (tmp_path / "x.npy").unlink()  # it is still open, and as it was
        np.testing.assert_array_equal(column.read(np.array([5])), array[5:6])
        return
    with pytest.raises(InputError, match="was changed while it was in use"):
        column.read(np.array([2999]))


@pytest.fixture(scope="module")
def table():
    pa = pytest.importorskip("pyarrow")
    x = numbers((50, 3), "f4")
    columns = {
        "x": pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), 3),
        "lists": pa.array([[float(v) for v in row] for row in x]),
        "y": pa.array(np.arange(50)),
        "name": pa.array(["a"] * 50),
        "holes": pa.array([None, *range(49)]),
        "uneven": pa.array([[1.0], *([[1.0, 2.0]] * 49)]),
    }
    return x, pa.table(columns)


def write_table(path, table):
    from pyarrow import feather, parquet

    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=13, write_page_checksum=True)
    else:
        feather.write_feather(table, path, chunksize=13, compression="zstd")


@pytest.mark.parametrize("name", ["t.parquet", "t.feather"])
def test_a_table_is_a_dict_of_columns(tmp_path, table, name, monkeypatch):
    x, content = table
    write_table(tmp_path / name, content)
    rows = strang.data.files(tmp_path / name, batch_size=1, columns=["x", "y", "lists"]).all_rows()
    np.testing.assert_array_equal(rows["x"], x)
    np.testing.assert_array_equal(rows["lists"], x)
    np.testing.assert_array_equal(rows["y"], np.arange(50))
    monkeypatch.setattr(tables, "write_at", None)  # it is there already, and not made again
    only = strang.data.files(tmp_path / name, batch_size=1, columns=["x", "y", "lists"])
    np.testing.assert_array_equal(only.all_rows()["x"], x)
    for column, reason in (
        ("name", "not numbers"),
        ("holes", "missing value"),
        ("uneven", "different"),
        ("z", "choose"),
    ):
        with pytest.raises(InputError, match=reason):
            strang.data.files(tmp_path / name, batch_size=1, columns=column)


def test_a_copy_that_was_killed_goes_on(tmp_path, table, monkeypatch):
    x, content = table
    for part in ("a", "b"):
        write_table(tmp_path / f"{part}.parquet", content)
    monkeypatch.setattr(tables, "SYNC_BYTES", 1)
    decoded, plain = [], tables.plain

    def counted(batch, name, first):
        if len(decoded) == 5:
            raise KeyboardInterrupt
        decoded.append(first)
        return plain(batch, name, first)

    cache = tmp_path / "cache"
    monkeypatch.setattr(tables, "plain", counted)
    with pytest.raises(KeyboardInterrupt):
        strang.data.files(tmp_path, batch_size=1, columns="x", cache=cache)
    decoded.clear()
    monkeypatch.setattr(tables, "plain", lambda *args: decoded.append(args[2]) or plain(*args))
    rows = strang.data.files(tmp_path, batch_size=1, columns="x", cache=cache).all_rows()
    np.testing.assert_array_equal(rows, np.concatenate([x, x]))
    assert decoded == [0, 50, 63, 76, 89]  # the first rows for their dtype, and what was missing
    write_table(tmp_path / "b.parquet", content.slice(0, 20))  # another table: all anew
    rows = strang.data.files(tmp_path, batch_size=1, columns="x", cache=cache).all_rows()
    np.testing.assert_array_equal(rows, np.concatenate([x, x[:20]]))


def test_a_second_process_waits_for_a_copy(tmp_path, table, monkeypatch):
    """The second (here a thread) asks while the first is half done, and copies nothing itself."""
    x, content = table
    write_table(tmp_path / "t.parquet", content)
    middle, go_on, copies, decoded = threading.Event(), threading.Event(), [], []
    plain, hold = tables.plain, tables.hold

    def slow(batch, name, first):
        decoded.append((threading.current_thread().name, first))
        if first == 26 and not go_on.is_set():
            middle.set()
            go_on.wait(60)
        return plain(batch, name, first)

    def release(*args, **options):
        if middle.is_set():
            go_on.set()
        return hold(*args, **options)

    def rows():
        copies.append(strang.data.files(tmp_path / "t.parquet", batch_size=1, columns="x").all_rows())

    monkeypatch.setattr(tables, "plain", slow)
    monkeypatch.setattr(tables, "hold", release)
    first = threading.Thread(target=rows, name="first")
    first.start()
    assert middle.wait(60)
    rows()
    first.join()
    for each in copies:
        np.testing.assert_array_equal(each, x)
    assert [at for name, at in decoded if name == "first"] == [0, 0, 13, 26, 39]
    assert [at for name, at in decoded if name != "first"] == [0]  # only the first rows, for their dtype
    lock = hold(tmp_path / "t.parquet.rows" / "lock")
    rows()  # a complete copy needs no lock
    os.close(lock)


def test_a_copy_that_was_partly_overwritten_is_made_anew(tmp_path, table, monkeypatch):
    """Two choices of columns have a file in common; a missing file is copied again too."""
    x, content = table
    write_table(tmp_path / "t.parquet", content)

    def rows(columns):
        return strang.data.files(tmp_path / "t.parquet", batch_size=1, columns=columns).all_rows()

    rows("x")
    with monkeypatch.context() as patch:
        patch.setattr(tables, "write_at", None)
        with pytest.raises(TypeError):
            rows(["x", "y"])
    np.testing.assert_array_equal(rows("x"), x)
    (tmp_path / "t.parquet.rows" / "0-x.npy").unlink()
    np.testing.assert_array_equal(rows("x"), x)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_damaged_table_is_an_error_or_what_arrow_reads(table, data):
    import pyarrow as pa
    from pyarrow import feather, parquet

    content = table[1]
    with tempfile.TemporaryDirectory() as folder:
        name = data.draw(st.sampled_from(["t.parquet", "t.feather"]))
        path = Path(folder) / name
        write_table(path, content.select(["x", "y"]))
        whole = path.read_bytes()
        at = data.draw(st.integers(0, len(whole) - 1))
        turned = bytes([whole[at] ^ 1 << data.draw(st.integers(0, 7))])
        path.write_bytes(data.draw(st.sampled_from([whole[:at], whole[:at] + turned + whole[at + 1 :]])))
        try:
            source = strang.data.files(path, batch_size=1, columns=["x", "y"])
            source.verify(progress=False)
            rows = source.all_rows()
        except InputError:
            return
        try:
            read = (parquet if path.suffix == ".parquet" else feather).read_table(path)
        except (pa.ArrowException, OSError):
            read = content.select(["x", "y"])
        np.testing.assert_array_equal(rows["y"], read["y"].to_numpy())
        np.testing.assert_array_equal(np.ravel(rows["x"]), read["x"].combine_chunks().flatten().to_numpy())


def test_lengths_that_an_arrow_file_cannot_have_are_an_error(tmp_path):
    """The reader trusts them, and ended the process by a signal: so this runs in a process of its own."""
    pa = pytest.importorskip("pyarrow")
    path, table = tmp_path / "t.arrow", pa.table({"x": pa.array([[i, i + 0.5] for i in range(64)])})
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table)
    right, wrong = (np.array([64, 0, length, 0], "<i8").tobytes() for length in (128, -(1 << 60)))
    assert path.read_bytes().count(right) == 1  # rows and missing ones, of the column and of the numbers in its lists
    path.write_bytes(path.read_bytes().replace(right, wrong))
    program = f"import strang; strang.data.files({str(path)!r}, batch_size=1)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "InputError" in done.stderr.splitlines()[-1]
    assert "cannot be read as a table" in done.stderr.splitlines()[-1]
