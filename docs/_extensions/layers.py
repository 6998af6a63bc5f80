"""Draw docs/layers.svg from the table of docs/architecture.md.

    python docs/_extensions/layers.py

There is no background, and every colour can be read on a light page and on a dark one.
"""

from __future__ import annotations

import re
from pathlib import Path
from xml.sax.saxutils import escape

DOCS = Path(__file__).parents[1]
WIDTH, ROW, GAP, LEFT, BOX = 860, 40, 14, 64, 124

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #7a8490; }
  .name { font-family: ui-monospace, monospace; fill: #ffffff; text-anchor: middle; }
  rect { fill: #3b6fb6; }
  path { stroke: #7a8490; stroke-width: 1.5; fill: none; }
"""


def table(page: str) -> list[tuple[str, list[str], str]]:
    """Level, packages and concern of each row.

    Example:
        >>> table("| L1 | `ode`, `data` | the solver; data sets |")
        [('L1', ['ode', 'data'], 'the solver; data sets')]
    """
    rows = re.findall(r"^\| (L\d+) \| ([^|]+) \| ([^|]+) \|$", page, flags=re.MULTILINE)
    return [
        (level, re.findall(r"`([\w.]+)`", names), concern.replace("`", ""))
        for level, names, concern in rows
    ]


def picture(rows: list[tuple[str, list[str], str]]) -> str:
    """The table as a picture, the highest layer on top."""
    height = len(rows) * (ROW + GAP) + GAP
    most = max(len(names) for _, names, _ in rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="The layers of the package, the highest on top; each imports lower ones only">',
        f"<style>{STYLE}</style>",
        # Imports point downwards.
        f'<path d="M 14 {GAP} V {height - GAP} m -5 -8 l 5 8 l 5 -8"/>',
    ]
    for i, (level, names, concern) in enumerate(reversed(rows)):
        top = GAP + i * (ROW + GAP)
        middle = top + ROW / 2 + 5
        parts.append(f'<text x="30" y="{middle}">{level}</text>')
        for j, name in enumerate(names):
            x = LEFT + j * (BOX + GAP)
            parts.append(f'<rect x="{x}" y="{top}" width="{BOX}" height="{ROW}" rx="6"/>')
            parts.append(f'<text class="name" x="{x + BOX / 2}" y="{middle}">{name}</text>')
        right = LEFT + most * (BOX + GAP) + 8
        parts.append(f'<text x="{right}" y="{middle}">{escape(concern)}</text>')
    parts.append("</svg>\n")
    return "\n".join(parts)


def main() -> None:
    """Read the table and write the picture."""
    page = (DOCS / "architecture.md").read_text("utf-8")
    (DOCS / "layers.svg").write_text(picture(table(page)), "utf-8")


if __name__ == "__main__":
    main()
