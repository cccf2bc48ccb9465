"""The report of a paper, as one self-contained HTML page and as Markdown with pictures."""

from pathlib import Path

from topofl.report import replacing

from .contents import Report
from .html import to_html
from .markdown import to_markdown

__all__ = ["Report", "to_html", "to_markdown", "write"]


def write(report: Report, folder: Path, stem: str) -> tuple[Path, Path]:
    """Write ``stem.html`` and ``stem.md`` into a folder and return their paths.

    Each file is written atomically; nothing is written if a picture is missing.

    Raises
    ------
    FileNotFoundError
        If the folder or a picture does not exist.
    OSError
        If a file cannot be written.
    """
    texts = {
        folder / f"{stem}.html": to_html(report),
        folder / f"{stem}.md": to_markdown(report, folder),
    }
    for path, text in texts.items():
        with replacing(path) as file:
            file.write(text)
    page, markdown = texts
    return page, markdown
