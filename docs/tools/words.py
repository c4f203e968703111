"""Spelling and style of the pages, as `make docs` checks them:  python docs/tools/words.py [FILE ...]

codespell finds misspellings, proselint what it knows of bad style, and the rules
below what the project does not write: words of its own making, and slips of grammar that a pattern can find. Code is
left out; line numbers are those of the files.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMES = r"\b(?:Carin|Teh)\b"
LEFT_OUT = r": (?:typography|lexical_illusions|dates_times)\b"  # of proselint: marks, and what the rules find better
RULES = {  # a pattern, and what to write
    r"\b(\w{2,})\s+\1\b(?!\.\w)": "a word twice",
    r"\b[Aa] (?=[aeio]\w)(?!one|once|eu)\w+": "an",
    r"\b[Aa]n (?=[bcdfgjkpqtvwyz])\w\w+": "a",
    r"\b(?:steps|draws|rows|documents|gradients|numbers) a (?:second|chain|leaf|step)\b": "per second, per chain, ...",
    r"\bso manieth\b": "every n-th",
    r"\b(?:utili[sz]e|leverage|seamless(?:ly)?|cutting-edge|state-of-the-art|blazing|powerful)\b": "a plain word",
    r"\b(?:simply|just|easily|obviously|of course)\b": "nothing in its place",
    r"\b(?:granule|milestone|nobody gets|booked|spokesm[ae]n)\b": "the field's word",
    r"\b(?:its|their|his) (?:self|selves)\b": "itself, themselves",
    r"\b(?:could|should|would|must) of\b": "have",
    r"\b(?:more|less) \w+er than\b": "one comparative",
    r"(?<=\S) {2,}(?=[a-z])": "one space",
    r"(?<![.\d…]),,|\.\.(?!\.|/)(?<!\.\.\.)|;;": "one mark",
}


def prose(text: str) -> str:
    """The text without code, links' targets, HTML and formulas, line by line where it was."""

    def blank(found: re.Match) -> str:
        return "\n" * found[0].count("\n")

    text = re.sub(r"(?s)\A---\n.*?\n---\n", blank, text)
    text = re.sub(r"(?ms)^ *```.*?^ *```", blank, text)
    text = re.sub(r"(?m)^(?:    .*|:::.*)$", "", text)
    text = re.sub(r"(?s)<!--.*?-->|</?\w[^>]*>", blank, text)
    text = re.sub(r"`[^`\n]+`", "`x`", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    text = re.sub(r'"[^"\n]*"', '"x"', text)  # what others wrote
    return re.sub(r"(?m)^\|[-| :]+\|$", "", text)


def slips(name: str, text: str) -> list[str]:
    """What the rules find."""
    found = []
    for pattern, instead in RULES.items():
        for match in re.finditer(pattern, re.sub(r"\|", ".", text)):
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"{name}:{line}: {' '.join(match[0].split())!r}; write {instead}")
    return found


def main() -> int:
    paths = [Path(each).resolve() for each in sys.argv[1:]] or sorted((ROOT / "docs").rglob("*.md"))
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            text, copy = prose(path.read_text()), Path(folder, path.relative_to(ROOT))
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text)
            problems += slips(str(path.relative_to(ROOT)), text)
        tools = Path(sys.executable).parent
        for command in (
            [tools / "codespell", "--builtin", "clear,rare", "--ignore-regex", NAMES, "."],
            [tools / "proselint", "-o", "compact", "check", "."],
        ):
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            lines = re.findall(r"(?m)^\S+\.md:\d.*$", done.stdout)
            if done.returncode and not lines:
                lines = [f"{command[0].name} ended with status {done.returncode}: {done.stdout}{done.stderr}"]
            problems += [line.replace(f"{folder}/", "") for line in lines if not re.search(LEFT_OUT, line)]
    print("\n".join(problems) or f"{len(paths)} pages: no misspellings, no slips")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
