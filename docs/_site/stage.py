"""Put everything that the site is made of into `build`: the pages, the generated reference, and the configuration.

    python docs/_site/stage.py

A link to a file outside of `docs` leads to the repository where its address is known (`DEEPWIRE_REPOSITORY`), and
becomes a plain name otherwise.
"""

from __future__ import annotations

import html
import os
import posixpath
import re
import shutil
from pathlib import Path

import command_reference
import run_file_reference

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)(#[^)]*)?\)")
_TABLE = re.compile(r"^(?P<head>\|.*)\n(?P<rule>\|[ :|-]+\n)(?P<rows>(?:\|.*\n)+)", re.M)
_NUMBER = re.compile(r"([-+−±<>~]? ?\d[\d,. /%±×+-]*(ms|MB|GB|M|k|s|h)?( \([-+\d.,]+ ?%?\))?)?|-|—")
# Letters of a cell that holds a sentence, of a name that may be broken, and of one that may be on narrow screens.
_PROSE, _NAME, _SHORTER = 40, 24, 13
# What a row of a table is made of: links and their code, code with a class, code, long names.
_PARTS = re.compile(
    rf"\[[^\]]*\]\([^)]*\)|`[^`]+`\{{[^}}]*\}}|`(?P<code>[^`]+)`|(?P<name>(?<![\w<])[\w.,=/-]{{{_NAME},}})"
)
_JOINT = re.compile(r"([_/,=]|&#124;|\.(?!\d))(?=[^ ])")
# Pages beside `docs` that belong to the site too.
BESIDE = {
    "CHANGELOG.md": "reports/changelog.md",
    "CONTRIBUTING.md": "understand/contributing.md",
    "DEPENDENCIES.md": "understand/dependencies.md",
}


def generated() -> dict[str, str]:
    """Pages that are not in `docs`, by address."""
    made = command_reference.pages() | run_file_reference.pages()
    for beside, address in BESIDE.items():
        # They are two folders deeper here.
        made[address] = re.sub(r"\]\((?!#|\w+:)", "](../../", (ROOT / beside).read_text(encoding="utf-8"))
    return made


def without_outer_links(text: str, address: str, repository: str = "") -> str:
    """The page with links that stay within the site."""
    folder = posixpath.dirname(address)

    def mended(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", folder, link[2]))
        if target.startswith("docs/"):
            return f"[{link[1]}]({posixpath.relpath(target, posixpath.join('docs', folder))}{link[3] or ''})"
        if target in BESIDE:
            return f"[{link[1]}]({posixpath.relpath(BESIDE[target], folder)}{link[3] or ''})"
        if repository:
            return f"[{link[1]}]({repository.rstrip('/')}/blob/main/{target}{link[3] or ''})"
        return link[1] if f"`{posixpath.basename(target)}" in link[1] else f"{link[1]} (`{target}`)"

    return _LINK.sub(mended, text)


def without_escaped_pipes(text: str) -> str:
    """In tables, pipes within code lose the backslash that other readers of Markdown want, and this one shows."""
    return re.sub(
        r"^ *\|.*",
        lambda row: re.sub(r"`[^`]*`", lambda code: code[0].replace(r"\|", "|"), row[0]),
        text,
        flags=re.M,
    )


def with_whole_options(text: str) -> str:
    """Options such as `--json` get a class, so that no line ends at their hyphens."""
    fences = re.split(r"(^ *```.*?^ *```$)", text, flags=re.M | re.S)
    fences[::2] = [re.sub(r"(`--?[\w-]+`)(?![\]`])", r"\1{: .option }", part) for part in fences[::2]]
    return "".join(fences)


def with_kinds_of_columns(text: str) -> str:
    """In tables, columns of sentences get a class and so their room; columns of numbers are aligned to the right."""

    def cells(row: str) -> list[str]:
        return [cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip().strip("|"))]

    def mended(table: re.Match[str]) -> str:
        names, rules = cells(table["head"]), cells(table["rule"])
        rows = [cells(row) for row in table["rows"].splitlines()]
        for column in range(len(names)):
            below = [row[column] for row in rows if column < len(row)]
            if names[column] and max(map(len, below), default=0) > _PROSE:
                names[column] += " {: .prose }"
            elif any(below) and all(_NUMBER.fullmatch(cell) for cell in below):
                rules[column] = "---:"
        return f"| {' | '.join(names)} |\n|{'|'.join(rules)}|\n{table['rows']}"

    return _TABLE.sub(mended, text)


def with_breakable_names(text: str) -> str:
    """In tables, long names, in code or not, may be broken after an underscore, a slash, a point or a comma."""

    def broken(name: str) -> str:
        return _JOINT.sub(r"\1<wbr>" if len(name) >= _NAME else r'\1<wbr class="narrow">', name)

    def mended(part: re.Match[str]) -> str:
        if part["name"]:
            return broken(part["name"])
        if part["code"] is None or len(part["code"]) < _SHORTER:
            return part[0]
        whole = html.escape(part["code"], quote=False)
        for sign in "|{}*[]":  # these would be read as Markdown
            whole = whole.replace(sign, f"&#{ord(sign)};")
        breakable = broken(whole)
        return f"<code>{breakable}</code>" if breakable != whole else part[0]

    return re.sub(r"^ *\|.*", lambda row: _PARTS.sub(mended, row[0]), text, flags=re.M)


def with_deep_lists(text: str) -> str:
    """Indent lines of a numbered item by four, as this reader of Markdown wants; others want three."""
    lines, within = [], False
    for line in text.split("\n"):
        within = bool(re.match(r"\d+\. ", line)) or (within and (not line or line.startswith("   ")))
        lines.append(f" {line}" if within and line.startswith("   ") else line)
    return "\n".join(lines)


def with_generated_pages(configuration: str) -> str:
    """The configuration, from the folder below, with all generated pages in the menu."""
    for page, below in (
        ("reference/commands", sorted(command_reference.COMMANDS)),
        (
            "reference/run-file",
            [*run_file_reference.TOP, *(page for page, _ in run_file_reference.KINDS.values())],
        ),
    ):
        line = re.search(rf"^( +)- (.+): {page}/index.md\n", configuration, re.MULTILINE)
        assert line is not None, page
        entries = "".join(f"{line[1]}    - {name}: {page}/{name}.md\n" for name in below)
        whole = f"{line[1]}- {line[2]}:\n{line[1]}    - {page}/index.md\n{entries}"
        configuration = configuration.replace(line[0], whole)
    return configuration.replace("build/", "").replace("paths: [src]", "paths: [../src]")


def stage(build: Path) -> None:
    """Write the folder anew."""
    target = build / "docs"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(DOCS, target, ignore=shutil.ignore_patterns("_site"))
    for address, text in generated().items():
        page = target / address
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
    for page in target.rglob("*.md"):
        address = page.relative_to(target).as_posix()
        text = page.read_text(encoding="utf-8")
        text = without_outer_links(with_deep_lists(text), address, os.environ.get("DEEPWIRE_REPOSITORY", ""))
        page.write_text(
            with_whole_options(with_breakable_names(without_escaped_pipes(with_kinds_of_columns(text)))),
            encoding="utf-8",
        )
    configuration = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    (build / "mkdocs.yml").write_text(with_generated_pages(configuration), encoding="utf-8")


if __name__ == "__main__":
    stage(ROOT / "build")
