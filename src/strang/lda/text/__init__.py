"""From text to a prepared corpus on disk."""
