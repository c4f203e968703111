"""Belief networks at work: learned from images, scored by annealed importance sampling."""

from .learning import chosen_for as chosen_for
from .learning import fit as fit
from .learning import resume as resume
from .learning import search as search
from .scoring import Score as Score
from .scoring import exact as exact
from .scoring import log_likelihood as log_likelihood
from .scoring import paired as paired
from .scoring import score as score
from .tell import describe as describe
from .tell import describe_grid as describe_grid
from .tell import describe_score as describe_score
from .tell import score_files as score_files
