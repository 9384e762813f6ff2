"""The README as a package index shows it: its links lead into the repository, or stay plain text.

The address stands once, as `Repository` under `[project.urls]` of pyproject.toml. Without it no
link of the README can be followed outside the repository, so none is left in: the words stay.
"""

import re
from pathlib import Path

try:
    from hatchling.metadata.plugin.interface import MetadataHookInterface
except ImportError:  # where only `published` is wanted
    MetadataHookInterface = object

LINK = re.compile(r"(!?)\[([^]]*)\]\((?!\w+:)([^)\s]+)\)")


class Readme(MetadataHookInterface):
    """Fill in the field `readme`."""

    def update(self, metadata):
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        address = metadata.get("urls", {}).get("Repository", "")
        metadata["readme"] = {"content-type": "text/markdown", "text": published(text, address)}


def published(text, repository):
    """Return a README with links made absolute, or as words where there is no address."""

    def replace(match):
        picture, words, target = match.groups()
        if not repository:
            return "" if picture else words
        # What shows a file, and what the file is.
        place = "raw" if picture else "blob"
        return f"{picture}[{words}]({repository.rstrip('/')}/{place}/main/{target})"

    return LINK.sub(replace, text)
