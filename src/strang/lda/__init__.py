"""Latent Dirichlet allocation: from text to a prepared corpus, to topics, to their scores. Needs the extra `lda`."""

from typing import TYPE_CHECKING

from strang.util.lazy import lazy

if TYPE_CHECKING:
    from strang.lda.corpus import Corpus as Corpus
    from strang.lda.corpus import from_csr as from_csr
    from strang.lda.corpus import from_matrix as from_matrix
    from strang.lda.corpus import open_corpus as open_corpus
    from strang.lda.fitting import fit as fit
    from strang.lda.model import TopicModel as TopicModel

_HOMES = {
    "Corpus": "strang.lda.corpus",
    "TopicModel": "strang.lda.model",
    "fit": "strang.lda.fitting",
    "from_csr": "strang.lda.corpus",
    "from_matrix": "strang.lda.corpus",
    "open_corpus": "strang.lda.corpus",
}
__all__ = list(_HOMES)
__getattr__, __dir__ = lazy(__name__, _HOMES, extra="lda")
