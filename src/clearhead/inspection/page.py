"""A view in, one HTML file out that holds everything it needs: data, ES module and style sheet; no network.

The modules in `page/` are plain ES modules that a server can serve as they are. For a file they are put together into
one: in the order of `MODULES` every import stands after what it imports, so the statements are simply left out.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from clearhead.errors import DataError
from clearhead.storage import storage_error, write_text

FORMAT, VERSION = "clearhead-view", 1
MODULES = (
    "words.js", "colour.js", "weights.js", "pens.js", "state.js", "parts.js", "picker.js", "layout.js", "sentence.js",
    "map.js", "gallery.js", "tree.js", "generation.js", "reading.js", "saving.js", "view.js",
)  # fmt: skip
"""The modules of the page, each after those it imports from."""
STYLE = "style.css"
_IMPORT = re.compile(r"^import \{[^}]*\} from \"\./[\w.-]+\";\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:const|function|async function|class) )", re.MULTILINE)
_START = 'mountPage(document.getElementById("page"), document.getElementById("view"));\n'


@functools.cache
def module_source() -> str:
    """All modules as one, without a statement that imports or exports."""
    parts = (_IMPORT.sub("", _asset(name)) for name in MODULES)
    return "\n".join(_EXPORT.sub("", part) for part in parts)


@functools.cache
def style_source() -> str:
    """The style sheet."""
    return _asset(STYLE)


def page_html(view: dict[str, Any]) -> str:
    """The page that shows a view, as one self-contained document."""
    if view.get("format") != FORMAT or view.get("version") != VERSION:
        found = f"{view.get('format')!r} version {view.get('version')!r}"
        raise DataError(f"a page shows a {FORMAT!r} of version {VERSION}, not {found}; make it anew with `inspect`")
    script, style = module_source() + _START, "html, body { margin: 0; }\n" + style_source()
    # A strict policy: this script and this style by their sums, pictures made by the page itself, and nothing else.
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src '{_sum(script)}'",
            f"style-src '{_sum(style)}'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    return _DOCUMENT.format(
        policy=policy,
        title=html.escape(str(view["texts"]["source"])[:100]),
        style=style,
        data=_as_script_data(view),
        script=script,
    )


def write_page(path: Path, view: dict[str, Any]) -> None:
    """Write the page that shows a view; its name is never seen on a part of it."""
    document = page_html(view)
    try:
        write_text(path, document)
    except OSError as error:
        raise storage_error(path, error) from error


_DOCUMENT = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title} · Clearhead</title>
<style>{style}</style>
</head>
<body>
<div id="page"></div>
<noscript>This page draws its pictures with JavaScript, which is switched off. 此页面需要 JavaScript。</noscript>
<script type="application/json" id="view">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def _asset(name: str) -> str:
    return files("clearhead.inspection").joinpath("page", name).read_text(encoding="utf-8")


def _sum(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _as_script_data(view: dict[str, Any]) -> str:
    """JSON that no parser of HTML can take for an end of script, a comment or an entity, whatever the tokens are."""
    text = json.dumps(view, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
