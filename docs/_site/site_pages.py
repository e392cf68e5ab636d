"""Makes the site whole: what pages link outside of docs/ becomes pages of the site as well.

The changelog, the rules for contributors and the examples are where a reader of the repository
looks for them. On the site they are generated pages, and the links to them are changed to match.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = PurePosixPath("docs")

_LINK = re.compile(r"(?<!!)\]\((?P<path>[^)#\s:]+)(?P<anchor>#[^)\s]*)?\)")
_ROLE = re.compile(r":\w+:(?=<code>)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path in _outside():
        source = ROOT / path
        files.append(File.generated(config, _place_of(path), content=_page_of(source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links that leave docs/ to the generated pages, and links back into docs/."""
    here = _source_of(page.file.src_uri)
    folder = str(PurePosixPath(page.file.src_uri).parent)

    def changed(found: re.Match[str]) -> str:
        target = _resolved(here.parent, found["path"])
        if target.is_relative_to(DOCS):
            place = str(target.relative_to(DOCS))
        elif target in _outside():
            place = _place_of(target)
        else:
            return found[0]
        return f"]({relpath(place, folder)}{found['anchor'] or ''})"

    return _LINK.sub(changed, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Docstrings name classes as Sphinx does; here the name alone is shown."""
    return _ROLE.sub("", html)


def _outside() -> list[PurePosixPath]:
    found = [ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("examples/**/*"))]
    kept = [path for path in found if path.suffix in {".md", ".py", ".yaml"}]
    return [PurePosixPath(path.relative_to(ROOT).as_posix()) for path in kept]


def _place_of(path: PurePosixPath) -> str:
    """Where on the site a file from outside of docs/ is."""
    return f"{path}.md" if path.suffix != ".md" else f"project/{path.name.lower()}"


def _source_of(place: str) -> PurePosixPath:
    """Which file of the repository a page of the site is made from."""
    for path in _outside():
        if _place_of(path) == place:
            return path
    return DOCS / place


def _page_of(source: Path) -> str:
    text = source.read_text(encoding="utf-8")
    if source.suffix == ".md":
        return text
    name = source.relative_to(ROOT).as_posix()
    language = {".py": "python", ".yaml": "yaml"}[source.suffix]
    return f"# {name}\n\n~~~~~~{language}\n{text}~~~~~~\n"


def _resolved(folder: PurePosixPath, path: str) -> PurePosixPath:
    return PurePosixPath(relpath(str(folder / path), "."))
