"""Docstrings as the site shows them: a single `Example:` is a section of examples like several."""

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = re.sub(r"(?m)^Example:$", "Examples:", obj.docstring.value)
