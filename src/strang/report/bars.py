"""Groups of bars with their uncertainty, as a PNG of small pictures side by side."""

import math
import textwrap
from pathlib import Path

from strang.report.figures import COLOURS, canvas, settings
from strang.report.panels import Bars
from strang.util.files import replacing

COLUMNS = 4


def png(groups: list[Bars], path: Path, dpi: int = 144) -> None:
    """Each group has axes of its own; whiskers are ± one standard deviation."""
    columns = min(COLUMNS, len(groups))
    rows = -(-len(groups) // columns)
    with settings():
        height = 0.55 + 0.17 * max(len(group.bars) for group in groups)
        figure = canvas(2.7 * columns, height * rows)
        figure.set_facecolor("white")
        for axes, group in zip(figure.subplots(rows, columns, squeeze=False).flat, groups, strict=False):
            places = range(len(group.bars))
            values = [bar.value for bar in group.bars]
            spreads = [0.0 if math.isnan(bar.sd) else bar.sd for bar in group.bars]
            axes.barh(places, values, xerr=spreads, color=COLOURS[0], alpha=0.7, error_kw={"lw": 1.1})
            axes.set_yticks(places, [textwrap.shorten(bar.label, 20, placeholder="…") for bar in group.bars])
            axes.invert_yaxis()
            axes.set_xlim(0, 1.02 * group.end)
            axes.locator_params(axis="x", nbins=4)
            axes.set_title(group.title, fontsize=8)
        for axes in list(figure.axes)[len(groups) :]:
            axes.set_visible(False)
        with replacing(path) as temporary:
            figure.savefig(temporary, format="png", dpi=dpi, metadata={"Software": None})
