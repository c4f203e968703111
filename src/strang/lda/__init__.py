"""Latent Dirichlet allocation: corpora of bags of words, from text to shards."""

from . import judge as judge
from . import learning as learning
from . import paper as paper
from . import show as show
from . import tell as tell
from .corpus import Corpus as Corpus
from .corpus import from_csr as from_csr
from .corpus import from_matrix as from_matrix
from .corpus import open_corpus as open_corpus
