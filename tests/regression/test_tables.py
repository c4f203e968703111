"""Tables of every kind give the same numbers; what people do wrong with them gets one sentence; kills lose nothing."""

import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from strang.regression import rows as building
from strang.regression import survey
from strang.regression.families import family_of
from strang.regression.formula import parse
from strang.regression.learning import learn
from strang.regression.tables import open_table
from strang.util.errors import InputError

OPTIONS = {"weights": None, "trials": None, "missing": "error"}


def frame(rows=50, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({
        "y": rng.normal(size=rows), "x": rng.normal(10, 2, rows), "n": rng.integers(1, 9, rows),
        "t": rng.random(rows) + 1,
        "r": rng.choice(["a", "b", "c"], rows), "g": rng.choice(["u", "v"], rows), "k": rng.integers(0, 3, rows),
    })  # fmt: skip


FORMULA = "y ~ x*C(r) + bs(t, df=4) + C(k) + (1 + x | g) + offset(log(t))"


def encoded(table, formula=FORMULA, family="normal", holdout=0.0, cache=None, **options):
    source = open_table(table)
    encoding = learn(parse(formula), family_of(family), source, {**OPTIONS, **options}, False)
    return encoding, building.build(building.Request(encoding, source, holdout, 0), cache, False)


def arrays_of(built):
    rows = built.data.all_rows() if built.data.source is None else {
        name: np.load(built.folder / f"{name}.npy") for name in built.data.datum
    }  # fmt: skip
    return {name: np.asarray(array) for name, array in rows.items()}


@pytest.fixture
def kinds(tmp_path):
    """One table in everything that may hold it."""
    try:
        import polars
    except ModuleNotFoundError:  # which is not among the packages for development
        polars = None
    table = frame()
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_csv(tmp_path / "t.tsv", index=False, sep="\t")
    table.to_parquet(tmp_path / "t.parquet", row_group_size=20)
    (tmp_path / "many").mkdir()
    for k in range(3):
        table.iloc[17 * k : 17 * (k + 1)].to_parquet(tmp_path / "many" / f"{k}.parquet")
    files = {name: tmp_path / name for name in ("t.csv", "t.tsv", "t.parquet", "many")}
    lazy = {} if polars is None else {"polars": polars.from_pandas(table), "lazy": polars.from_pandas(table).lazy()}
    return {
        "pandas": table, "arrow": pa.Table.from_pandas(table), "dict": {name: table[name].tolist() for name in table},
        "categories": table.assign(r=table["r"].astype("category")), **files, **lazy,
    }  # fmt: skip


def test_every_kind_of_table_gives_the_same_numbers(kinds):
    first, expected = encoded(kinds["pandas"])
    assert first.names[:4] == ("Intercept", "x", "C(r)[T.b]", "C(r)[T.c]")
    for kind, table in kinds.items():
        encoding, built = encoded(table)
        assert encoding.names == first.names, kind
        for name, array in arrays_of(built).items():
            assert np.allclose(array, arrays_of(expected)[name], atol=1e-5), (kind, name)


def test_the_matrix_is_that_of_formulaic(kinds):
    import formulaic

    encoding, built = encoded(kinds["pandas"])
    matrix = formulaic.model_matrix(parse(FORMULA).fixed, kinds["pandas"])
    again = arrays_of(built)["x"] * encoding.scale + encoding.centre
    assert list(matrix.columns) == list(encoding.names)
    assert np.allclose(again, np.asarray(matrix, float), atol=1e-4)
    assert np.allclose(arrays_of(built)["offset"], np.log(kinds["pandas"]["t"]), atol=1e-6)


def test_files_on_disk_are_those_in_memory_and_go_on_after_a_kill(kinds, tmp_path, monkeypatch):
    monkeypatch.setattr(building, "SYNC_BYTES", 1)
    _, expected = encoded(kinds["many"], holdout=0.3)
    calls, real = [], building.Request.encoded

    def killed(self, part, number):
        calls.append(number)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(self, part, number)

    monkeypatch.setattr(building.Request, "encoded", killed)
    with pytest.raises(KeyboardInterrupt):
        encoded(kinds["many"], holdout=0.3, cache=tmp_path / "cache")
    _, built = encoded(kinds["many"], holdout=0.3, cache=tmp_path / "cache")
    assert calls == [0, 1, 2, 2]  # what was done is not done again
    for name, array in arrays_of(built).items():
        assert np.array_equal(array, arrays_of(expected)[name]), name
        assert np.array_equal(built.held[name], expected.held[name]), name
    assert len(built.held["y"]) + built.data.size == 50
    _, again = encoded(kinds["many"], holdout=0.3, cache=tmp_path / "cache")
    assert calls == [0, 1, 2, 2]
    assert again.data.size == built.data.size
    frame(seed=1).iloc[:17].to_parquet(kinds["many"] / "0.parquet")
    encoded(kinds["many"], holdout=0.3, cache=tmp_path / "cache")
    assert calls == [0, 1, 2, 2, 0, 1, 2]  # another table is another matrix


def test_some_rows_of_a_large_table_stand_for_all_of_it(kinds, monkeypatch):
    """Levels and ends of columns are there even where few rows are looked at."""
    monkeypatch.setattr(survey, "SAMPLE", 12)
    rare = frame(400).assign(k=[7] + [0, 1, 2] * 133)
    encoding, built = encoded(rare)
    assert "C(k)[T.7]" in encoding.names
    assert len(encoding.survey.sample) < 40
    assert arrays_of(built)["x"].shape == (400, len(encoding.names))


WRONG = {  # what is done to the table, the formula, the family, options, and what the sentence has in it
    "unknown column": (None, "y ~ xx", "normal", {}, r"no column 'xx'; did you mean 'x'\?"),
    "unknown group": (None, "y ~ x + (1 | shop)", "normal", {}, r"no column 'shop'"),
    "text without C()": (None, "y ~ r", "normal", {}, r"column r holds text \('.'.*\); write C\(r\)"),
    "constant": (lambda t: t.assign(x=3.0), "y ~ x", "normal", {}, r"column x is constant, 3 in all rows; leave"),
    "one level": (lambda t: t.assign(r="a"), "y ~ C(r)", "normal", {}, r"C\(r\) has one level; leave it out"),
    "collinear": (lambda t: t.assign(w=2 * t["x"] + 1), "y ~ x + w", "normal", {}, r"columns .*w.* are collinear"),
    "more columns than rows": (lambda t: t.head(3), "y ~ x + n + t", "normal", {}, r"only 3 rows"),
    "not 0 or 1": (None, "n ~ x", "bernoulli", {}, r"response n is .* it must be 0 or 1"),
    "negative count": (lambda t: t.assign(n=-t["n"]), "n ~ x", "poisson", {}, r"must be a whole number, 0 or more"),
    "not positive": (None, "y ~ x", "gamma", {}, r"must be a positive number"),
    "text response": (None, "r ~ x", "normal", {}, r"column r holds text"),
    "three classes": (None, "r ~ x", "bernoulli", {}, r"has 3 classes .* must be 0 or 1"),
    "no order": (None, "r ~ x", "ordinal", {}, r"classes without an order"),
    "constant response": (lambda t: t.assign(y=1.0), "y ~ x", "normal", {}, r"response y is constant"),
    "more than trials": (None, "n ~ x", "binomial", {"trials": "k + 1"}, r"at most as many as trials"),
    "no trials": (None, "n ~ x", "binomial", {}, r"needs trials="),
    "empty": (lambda t: t.head(0), "y ~ x", "normal", {}, r"is empty"),
    "missing": (lambda t: t.assign(x=t["x"].where(t["x"] > 9)), "y ~ x", "normal", {}, r"missing: x in \d+ rows; .*dr"),
    "all missing": (lambda t: t.assign(x=np.nan), "y ~ x", "normal", {"missing": "drop"}, r"nothing is left"),
    "infinite": (lambda t: t.assign(x=np.inf), "y ~ x", "normal", {}, r"column x has values that are infinite"),
    "mixed types": (lambda t: t.assign(x=[1.5, "b"] * 25), "y ~ x", "normal", {}, r"column x mixes types"),
    "numbers as text": (lambda t: t.assign(x=["1", "b"] * 25), "y ~ x", "normal", {}, r"mixes numbers and text: 'b'"),
    "dates": (lambda t: t.assign(x=pd.Timestamp("2020-01-01")), "y ~ x", "normal", {}, r"dates or times"),
    "logarithm of 0": (lambda t: t.assign(x=t["n"] - 1), "y ~ np.log(x)", "normal", {}, r"np.log\(x\) is not a finite"),
    "a level for each row": (lambda t: t.assign(g=range(50)), "y ~ x + (1 | g)", "normal", {}, r"a level for every"),
    "one group": (lambda t: t.assign(g="a"), "y ~ x + (1 | g)", "normal", {}, r"one level only"),
    "too many levels": (lambda t: frame(1500).assign(r=range(1500)), "y ~ C(r)", "normal", {}, r"write a group term"),
    "negative weights": (None, "y ~ x", "normal", {"weights": "y"}, r"weights is .* must be positive"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_people_do_wrong_gets_one_sentence(name):
    change, formula, family, options, sentence = WRONG[name]
    with pytest.raises(InputError, match=sentence) as error:
        encoded(frame() if change is None else change(frame()), formula, family, **options)
    assert re.search(r"[.)?]$", str(error.value))
    assert "\n" not in str(error.value)


FILES = {
    "empty.csv": ("", r"empty.csv is empty"),
    "header.csv": ("x,y\n", r"is empty: it has a line of names and no rows"),
    "short.csv": ("x,y\n1,2\n3\n", r"is ragged: line 3 has 1 fields, and the line of names has 2"),
    "long.csv": ("x,y\n1,2\n3,4,5\n", r"is ragged: line 3 has 3 fields"),
    "twice.csv": ("x,x\n1,2\n", r"has the column 'x' twice"),
    "table.parquet": ("no parquet", r"cannot be read as a table"),
    "table.xls": ("x", r"is no table by its name"),
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_cannot_be_read_get_one_sentence(name, tmp_path):
    content, sentence = FILES[name]
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=sentence):
        open_table(tmp_path / name)
    with pytest.raises(InputError, match="there is no file"):
        open_table(tmp_path / "nothing.csv")
    with pytest.raises(InputError, match="the table is a int"):
        open_table(3)


def test_columns_of_a_csv_may_widen(tmp_path, monkeypatch):
    from strang.regression import tables

    monkeypatch.setattr(tables, "CSV_BLOCK", 64)
    (tmp_path / "t.csv").write_text("x,y\n" + "1,2\n" * 40 + "0.5,3\n")
    found = pd.concat(open_table(tmp_path / "t.csv").frames(["x"]))
    assert found["x"].iloc[-1] == 0.5
    (tmp_path / "t.csv").write_text("x,y\n" + "1,2\n" * 40 + "abc,3\n")
    with pytest.raises(InputError, match="mixes numbers and text"):
        open_table(tmp_path / "t.csv")


def test_what_is_worth_knowing_is_noted():
    table = frame().assign(r=["z"] + ["a", "b"] * 24 + ["a"])
    table.loc[3, "x"] = np.nan
    encoding, built = encoded(table, "y ~ x + C(r)", missing="drop")
    assert built.data.size == 49
    assert any("1 rows with missing values (x in 1) were left out" in note for note in encoding.notes)
    assert any("'z' of r is in one row only" in note for note in encoding.notes)
    two, _ = encoded(frame(), "g ~ x", "bernoulli")
    assert two.notes == ("g is 1 where it is 'v', and 0 where it is 'u'",)


def test_new_levels_are_the_groups_prior_or_an_error():
    encoding, _ = encoded(frame())
    new = frame().head(4).assign(g=["u", "w", "w", "q"])
    fresh: dict[int, list[str]] = {}
    assert encoding.rows(new, response=False, fresh=fresh)["group_0"].tolist() == [0, 2, 2, 3]
    assert fresh == {0: ["w", "q"]}
    with pytest.raises(InputError, match="column r has levels that the fit has not seen: 'z'"):
        encoding.rows(new.assign(r="z"), response=False, fresh={})
    with pytest.raises(InputError, match=r"levels that the fit has not seen: \{9\}"):
        encoding.rows(new.assign(k=9), response=False, fresh={})
