"""Read the source's docstrings as Markdown.

Docstrings in `src` carry the few marks of reStructuredText that editors and `help()` show
well. This extension of griffe rewrites them for the site: mathematics is shown as TeX source,
references as code, and an `Example:` section is read as code.
"""

import re
import textwrap

import griffe

SECTION = re.compile(r"^( *)Example:$", re.MULTILINE)
ROLE_MATH = re.compile(r":math:`([^`]+)`")
ROLE_REFERENCE = re.compile(r":(?:func|class|meth|mod|attr):`~?([^`]+)`")
BLOCK_MATH = re.compile(r"^( *)\.\. math::\n\s*?\n?((?:\1 +\S.*\n?|\s*\n)+)", re.MULTILINE)


def fence(match: re.Match[str]) -> str:
    """Turn a block of mathematics into a fenced block, at the same indentation."""
    body = textwrap.dedent(match[2]).strip("\n")
    return textwrap.indent(f"\n```tex\n{body}\n```\n\n", match[1])


def markdown(text: str) -> str:
    """Return a docstring with its marks rewritten."""
    text = SECTION.sub(r"\1Examples:", text)
    text = BLOCK_MATH.sub(fence, text)
    text = ROLE_MATH.sub(r"`\1`", text)
    return ROLE_REFERENCE.sub(r"`\1`", text)


class RstRoles(griffe.Extension):
    """Rewrites every docstring as it is loaded."""

    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """Rewrite the docstring of one module, class, function or attribute."""
        del kwargs
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
