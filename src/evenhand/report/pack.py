"""An evidence pack: results as Markdown, under the headings that supervisors ask for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from .._core.files import check_free, write_text
from .page import About, software
from .view import Table, View, view_markdown, view_of

# What a person has to write, in square brackets in the documents of the package.
OPEN = "> **To be written:** "
PACK = ("ai-act.md", "eiopa.md", "model-card.md", "naic.md")


def write_pack(
    folder: Any, results: Mapping[str, Any], *, about: About | Mapping[str, Any] | None = None,
    source: Mapping[str, Any] | None = None, force: bool = False,
) -> dict[Path, int]:  # fmt: skip
    """Write results under the headings of EIOPA, the EU AI Act, NAIC's exhibits and model cards.

    Parameters
    ----------
    folder : str or Path
        For `ai-act.md`, `eiopa.md`, `naic.md` and `model-card.md`; made where there is none.
    results : mapping
        "audit" and, where there are any, "verdict", "impact", "alternatives" and "model", the
        fitted model that is documented.
    about : About or mapping, optional
        Who asks and what for.
    source : mapping, optional
        Facts about the data to print.
    force : bool
        Overwrite files that exist.

    Returns
    -------
    dict of Path → int
        How many passages of each file a person still has to write; each is marked "To be written".

    See Also
    --------
    evenhand.audit
    evenhand.alternatives

    Examples
    --------
    >>> import tempfile, evenhand as eh
    >>> data = eh.datasets.make_bivariate_normal(500, random_state=0)
    >>> audit = eh.audit(data.y, data.s, sensitive_features=data.a, estimator="logistic")
    >>> files = eh.report.write_pack(tempfile.mkdtemp(), {"audit": audit})
    >>> [path.name for path in files]
    ['ai-act.md', 'eiopa.md', 'model-card.md', 'naic.md']
    """
    asked = About.of(about)
    said = {f.metadata["head"]: getattr(asked, f.name) for f in fields(asked) if f.metadata}
    parts = {
        name: _model(result) if name == "model" else view_markdown(view_of(result), 4)
        for name, result in results.items()
    }
    parts["about"] = _facts({head: text or "To be written" for head, text in said.items()})
    parts["data"] = _facts({**(source or {}), **software()})
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    for name in PACK:
        check_free(out / name, force)
    written = {}
    for name in PACK:
        text = files(__package__).joinpath("assets", "pack", name).read_text(encoding="utf-8")
        text = re.sub(r"^\[(.*)\]$", rf"{OPEN}\1.", text, flags=re.MULTILINE)
        text = re.sub(
            r"^\{(\w+)\}$", lambda part: _filled(parts, part[1]), text, flags=re.MULTILINE
        )
        written[write_text(out / name, text, force)] = text.count("To be written")
    return written


def _filled(parts: Mapping[str, str], name: str) -> str:
    """A result, or that somebody has to say why there is none."""
    return parts.get(name) or f"{OPEN}{name}. None was handed to the pack: add it, or say why not."


def _model(model: Any) -> str:
    """Kind and parameters of a fitted model, and why it was chosen where it says so."""
    facts = {"Kind": type(model).__name__, **model.get_params(deep=False)}
    chosen = getattr(model, "explanation_", None)
    return _facts(facts if chosen is None else {**facts, "Choice": chosen})


def _facts(rows: Mapping[str, Any]) -> str:
    """Facts as a table of Markdown."""
    table = Table(["fact", "value"], [[name, str(value)] for name, value in rows.items()])
    return view_markdown(View("", table), 4)
