"""Sigmoid belief networks: fitted to images, scored by annealed importance sampling."""

from typing import TYPE_CHECKING

from strang.util.lazy import lazy

if TYPE_CHECKING:
    from strang.sbn.fitting import fit as fit
    from strang.sbn.model import SBN as SBN
    from strang.sbn.scoring import Score as Score
    from strang.sbn.scoring import exact as exact
    from strang.sbn.scoring import log_likelihood as log_likelihood
    from strang.sbn.scoring import paired as paired
    from strang.sbn.scoring import score as score

_HOMES = {"SBN": "strang.sbn.model", "fit": "strang.sbn.fitting"}
_HOMES |= dict.fromkeys(("Score", "exact", "log_likelihood", "paired", "score"), "strang.sbn.scoring")
__all__ = list(_HOMES)
__getattr__, __dir__ = lazy(__name__, _HOMES)
