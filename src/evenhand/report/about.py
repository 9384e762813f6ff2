"""Who asks, what for, and who signs: the first and the last part of a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from .markup import Html, element, label

NOT_STATED = "not stated"
_HEADS = {
    "owner": "Asked by",
    "purpose": "Purpose",
    "model_name": "Model",
    "period": "Period",
    "note": "Note",
}


@dataclass(frozen=True)
class About:
    """What a report is about, in the words of whoever asks for it.

    Whatever is left out is printed as "not stated".

    Attributes
    ----------
    title : str
        The heading.
    owner : str
        Who is responsible for the score, or asks for the report.
    purpose : str
        What the score decides.
    model_name : str
        The model and its version.
    period : str
        The time that the data are from.
    note : str
        Anything else that a reader should know.

    Examples
    --------
    >>> from evenhand.report import About
    >>> About(owner="Pricing", purpose="motor renewals").owner
    'Pricing'
    """

    title: str | None = None
    owner: str | None = None
    purpose: str | None = None
    model_name: str | None = None
    period: str | None = None
    note: str | None = None

    def __post_init__(self) -> None:
        for part in fields(self):
            value = getattr(self, part.name)
            if value is not None and not isinstance(value, str):
                raise ValueError(f"`{part.name}` must be text or None, got {type(value).__name__}.")

    @classmethod
    def of(cls, about: About | Mapping[str, Any] | None) -> About:
        """An About, or one made of a mapping with its fields.

        Parameters
        ----------
        about : About, mapping or None
        """
        if about is None:
            return cls()
        if isinstance(about, About):
            return about
        if not isinstance(about, Mapping):
            raise ValueError(
                f"`about` must be an About or a dict, got {type(about).__name__}. Hint: "
                "eh.report.About(title=..., owner=...)."
            )
        known = [part.name for part in fields(cls)]
        unknown = [str(name) for name in about if name not in known]
        if unknown:
            raise ValueError(f"`about` must hold only {', '.join(known)}, got {unknown[0]!r}.")
        return cls(**about)

    def to_dict(self) -> dict[str, str | None]:
        """Plain values."""
        return dict(vars(self))


def about_section(about: About, asked: str) -> Html:
    """What is asked and by whom, one line each.

    Parameters
    ----------
    about : About
    asked : str
        What the page answers, in a sentence.
    """
    cells: list[Html] = []
    for name, head in _HEADS.items():
        value = getattr(about, name)
        stated = element("dd", label(value, 2000)) if value else None
        cells += [element("dt", head), stated or element("dd", NOT_STATED, class_="soft")]
    return element(
        "section",
        element("h2", "What is asked, and by whom"),
        element("p", asked),
        element("dl", *cells, class_="facts"),
    )


def signature_block() -> Html:
    """Lines for those who sign: who made the report, and who decides on it."""
    boxes = []
    for role in ("Prepared by", "Approved by"):
        lines = [
            element("div", element("dt", name), element("dd", "\u00a0"), class_="to-fill")
            for name in ("Name", "Role", "Date", "Signature")
        ]
        boxes.append(element("div", element("h3", role), element("dl", *lines), class_="signs"))
    return element(
        "section",
        element("h2", "Signatures"),
        element(
            "p",
            "Who signs has read the limits above, and decides; the numbers do not.",
            class_="note",
        ),
        element("div", *boxes, class_="signatures"),
        class_="whole",
    )
