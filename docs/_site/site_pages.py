"""Makes the site whole: what pages link outside of docs/ becomes pages of the site as well.

The readme, the changelog, the rules for contributors and the examples are where a reader of the
repository looks for them. On the site they are generated pages, and links are changed to match.
Tests have no pages: a link to one is its name.
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

_LINK = re.compile(
    r"(?P<before>\]\(|src=\")(?P<path>[^)#\s:\"]+)(?P<anchor>#[^)\s]*)?(?P<after>[)\"])"
)
_TEST = re.compile(r"\[(?P<name>`[^`]+`)\]\((?:\.\./)+(?:tests|src)/[^)]+\)")
_OUTPUT = re.compile(r"^( *```text) output$", re.MULTILINE)
_ROLE = re.compile(r":\w+:(?=<code>)")
_LANGUAGES = {".py": "python", ".yaml": "yaml", "": "text"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path in _outside():
        source = ROOT / path
        files.append(File.generated(config, _place_of(path), content=_page_of(source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links that leave docs/ to the generated pages, and links back into docs/.

    What examples print is marked for the tests; here such a block is text like any other.
    """
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
        return f"{found['before']}{relpath(place, folder)}{found['anchor'] or ''}{found['after']}"

    return _OUTPUT.sub(r"\1", _LINK.sub(changed, _TEST.sub(r"\g<name>", markdown)))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Docstrings name classes as Sphinx does; here the name alone is shown."""
    return _ROLE.sub("", html)


def _outside() -> list[PurePosixPath]:
    pages = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE")]
    found = [*pages, *sorted(ROOT.glob("examples/**/*"))]
    kept = [path for path in found if path.is_file() and path.suffix in {".md", *_LANGUAGES}]
    return [PurePosixPath(path.relative_to(ROOT).as_posix()) for path in kept]


def _place_of(path: PurePosixPath) -> str:
    """Where on the site a file from outside of docs/ is."""
    if path.suffix != ".md":
        return f"{path}.md" if path.suffix else f"project/{path.name.lower()}.md"
    # A page called README would become the index of its folder.
    name = "overview.md" if path.name == "README.md" else path.name.lower()
    return str(PurePosixPath("examples" if path.parent.name else "project") / name)


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
    return f"# {name}\n\n~~~~~~{_LANGUAGES[source.suffix]}\n{text}~~~~~~\n"


def _resolved(folder: PurePosixPath, path: str) -> PurePosixPath:
    return PurePosixPath(relpath(str(folder / path), "."))
