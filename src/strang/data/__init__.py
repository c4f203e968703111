"""Where rows come from (memory, disk, a loader), and in which order minibatches take them."""

from strang.data import images as images
from strang.data.batches import Batch as Batch
from strang.data.batches import Data as Data
from strang.data.batches import arrays as arrays
from strang.data.batches import files as files
from strang.data.batches import stream as stream
