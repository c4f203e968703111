"""Where rows come from that are not in memory: files on disk, and loaders. `strang.data` makes data of them."""
