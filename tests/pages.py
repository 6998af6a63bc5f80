"""Read Markdown pages: blocks of code, commands, mathematics, headings and links."""

import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [
    path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))
]
SHELLS = ("bash", "console", "sh", "")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        language: the word behind the fence.
        code: the text of the block.
        line: number of the line above the first one.
        mark: the HTML comment directly above the fence, without its brackets.
    """

    language: str
    code: str
    line: int
    mark: str


def read(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page in order."""
    found = []
    lines = text.splitlines()
    i = 0
    while i < len(lines):
        opening = re.match(r"^( *)(`{3,})\s*([\w-]*)", lines[i])
        if opening:
            indent, fence, language = opening.groups()
            start = i + 1
            i = start
            while i < len(lines) and lines[i].strip() != fence:
                i += 1
            code = "\n".join(line.removeprefix(indent) for line in lines[start:i])
            above = re.match(r"^\s*<!-- (.*) -->$", lines[start - 2]) if start > 1 else None
            found.append(Block(language, code + "\n", start, above[1] if above else ""))
        i += 1
    return found


def commands(text: str) -> list[str]:
    """Return the commands of shell blocks, with continued lines joined and without prompts."""
    shells = [b for b in blocks(text) if b.language in SHELLS and not b.mark.startswith("not run")]
    joined = "\n".join(block.code for block in shells).replace("\\\n", " ")
    return [line.removeprefix("$ ").strip() for line in joined.splitlines() if line.strip()]


def without_code(text: str) -> str:
    """Remove fenced blocks, and brackets and dollars of inline code."""
    text = re.sub(r"^ *(`{3,}).*?^ *\1 *$", "", text, flags=re.DOTALL | re.M)
    return re.sub(r"`[^`\n]+`", lambda code: re.sub(r"[\[\]()#$]", "", code[0]), text)


def formulas(text: str) -> list[str]:
    """Return the LaTeX formulas of a page, displayed ones first.

    >>> formulas("$$\\na = b\\n$$\\nwith $b$ and `$HOME`")
    ['\\na = b\\n', 'b']
    """
    text = without_code(text)
    displayed = re.findall(r"\$\$(.*?)\$\$", text, flags=re.DOTALL)
    rest = re.sub(r"\$\$.*?\$\$", "", text, flags=re.DOTALL)
    return displayed + re.findall(r"\$([^$]+)\$", rest)


def prose(text: str) -> str:
    """Return a page without code and formulas, which may look like headings or links."""
    return re.sub(r"\$\$.*?\$\$|\$[^$\n]+\$", "", without_code(text), flags=re.DOTALL)


def links(text: str) -> list[str]:
    """Return the targets of links and images."""
    return re.findall(r"\]\(([^)\s]+)\)", prose(text))


def anchors(text: str) -> set[str]:
    """Return what may follow ``#`` in a link to this page: headings and names of the API."""
    found: set[str] = set(re.findall(r"^::: ([\w.]+)$", text, re.M))
    for heading in re.findall(r"^#{1,6} (.+)$", prose(text), re.M):
        found.add(slug(heading))
    return found


def slug(heading: str) -> str:
    """Return the anchor that the site makes of a heading.

    >>> slug("Theorem 1: `Q_uu`, and more")
    'theorem-1-q_uu-and-more'
    """
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())
