"""Latent Dirichlet allocation: from text to a prepared corpus, to topics, to their scores. Needs the extra `lda`."""

from typing import TYPE_CHECKING

from strang.util.lazy import lazy

if TYPE_CHECKING:
    from strang.lda.corpus import Corpus, from_csr, from_matrix, open_corpus
    from strang.lda.fitting import fit
    from strang.lda.model import TopicModel

__all__ = ["Corpus", "TopicModel", "fit", "from_csr", "from_matrix", "open_corpus"]
_HOMES = {"TopicModel": "strang.lda.model", "fit": "strang.lda.fitting"}
__getattr__, __dir__ = lazy(__name__, dict.fromkeys(__all__, "strang.lda.corpus") | _HOMES, extra="lda")
