"""Read the source's docstrings as Markdown.

Docstrings in `src` carry the few marks of reStructuredText that editors and `help()` show
well. This extension of griffe rewrites them for the site: mathematics becomes `$...$` and
`$$...$$` for arithmatex and KaTeX, references link to the documented name if it is on the site,
simple tables become Markdown's, and an `Example:` section is read as code.
"""

import re
import textwrap

import griffe

SECTION = re.compile(r"^( *)Example:$", re.MULTILINE)
ROLE_MATH = re.compile(r":math:`([^`]+)`")
ROLE_REFERENCE = re.compile(r":(?:func|class|meth|mod|attr|data):`(~?)([^`]+)`")
BLOCK_MATH = re.compile(
    r"^(?P<indent> *)\.\. math::[ \t]*(?P<first>\S.*)?\n"
    r"(?P<rest>(?:(?P=indent) +\S.*\n?|[ \t]*\n)*)",
    re.MULTILINE,
)
TABLE = re.compile(
    r"^(?P<indent> *)(?P<rule>=+(?: +=+)+) *\n(?:(?P=indent).*\n|\n)*?"
    r"(?P=indent)(?P=rule) *\n(?:(?P=indent)(?!=).*\n?)+(?:(?P=indent)(?P=rule)) *$",
    re.MULTILINE,
)


def table(match: re.Match[str]) -> str:
    """Turn a simple table into Markdown's; a line without a first cell continues the row above."""
    indent, rule = match["indent"], match["rule"]
    starts = [column.start() for column in re.finditer("=+", rule)]
    spans = list(zip(starts, [*starts[1:], None], strict=True))
    rows: list[list[str]] = []
    for line in match[0].splitlines():
        line = line[len(indent) :]
        if not line.strip() or line.startswith("="):
            continue
        cells = [line[a:b].strip().replace("|", "\\|") for a, b in spans]
        if cells[0] or not rows:
            rows.append(cells)
        else:
            rows[-1] = [" ".join(filter(None, pair)) for pair in zip(rows[-1], cells, strict=True)]
    head, *body = (f"{indent}| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, f"{indent}|{' --- |' * len(spans)}", *body])


def displayed(match: re.Match[str]) -> str:
    """Turn a block of mathematics into a displayed equation, at the same indentation."""
    lines = [match["first"] or "", textwrap.dedent(match["rest"]).strip("\n")]
    body = "\n".join(line for line in lines if line)
    return textwrap.indent(f"\n$$\n{body}\n$$\n\n", match["indent"])


def inline(match: re.Match[str]) -> str:
    """Turn a role of mathematics into an inline formula; it may have been broken over lines."""
    return f"${' '.join(match[1].split())}$"


def reference(match: re.Match[str]) -> str:
    """Turn a reference into code that links to the name, if the site documents it."""
    short, name = match[1], "".join(match[2].split())
    shown = name.rpartition(".")[2] if short else name
    return f'<autoref optional identifier="{name}"><code>{shown}</code></autoref>'


def markdown(text: str) -> str:
    """Return a docstring with its marks rewritten."""
    text = SECTION.sub(r"\1Examples:", text)
    text = TABLE.sub(table, text)  # first: columns are counted in characters
    text = BLOCK_MATH.sub(displayed, text)
    text = ROLE_MATH.sub(inline, text)
    return ROLE_REFERENCE.sub(reference, text)


class RstRoles(griffe.Extension):
    """Rewrites every docstring as it is loaded."""

    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """Rewrite the docstring of one module, class, function or attribute."""
        del kwargs
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
