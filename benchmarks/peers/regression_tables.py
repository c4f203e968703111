"""Real tables of scikit-learn and statsmodels as CSV files: regression_tables.py FOLDER."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import statsmodels.api as sm
from sklearn import datasets

folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)


def save(name: str, frame: pd.DataFrame, rows: int | None = None) -> None:
    if rows is not None:
        frame = frame.iloc[np.linspace(0, len(frame) - 1, rows).astype(int)]
    frame.to_csv(folder / f"{name}.csv", index=False)


diabetes = datasets.load_diabetes(as_frame=True, scaled=False).frame
save("diabetes", diabetes)
cancer = datasets.load_breast_cancer(as_frame=True).frame
save("cancer", cancer.rename(columns=lambda name: name.replace(" ", "_")))
save("randhie", sm.datasets.randhie.load_pandas().data, 2000)
save("fair", sm.datasets.fair.load_pandas().data.assign(affair=lambda t: (t["affairs"] > 0).astype(int)), 1500)
save("grunfeld", sm.datasets.grunfeld.load_pandas().data)
star = sm.datasets.star98.load_pandas().data
save("star98", star.assign(tested=star["NABOVE"] + star["NBELOW"]))
vote = sm.datasets.anes96.load_pandas().data
save("anes96", vote.assign(party=pd.cut(vote["PID"], [-1, 1, 4, 6], labels=["democrat", "independent", "republican"])))
save("scotland", sm.datasets.scotland.load_pandas().data)
save("engel", sm.datasets.engel.load_pandas().data)
