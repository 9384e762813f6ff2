"""The pages of the site, as far as they can be checked without building it (`make docs`)."""

import inspect
import re
import sys
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import evenhand as eh

DOCS = Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(DOCS / "_ext"))

import package  # noqa: E402

# Written by scripts from committed results.
MADE = {"accuracy", "atlas", "performance", "reproduction"}
WRITTEN = sorted({page.stem for page in DOCS.glob("*.md")} - MADE)
PAGES = {name: (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in WRITTEN}
# Made by the build.
BUILT = {"gallery/index", "api/index", "api/command-line"}


def test_public_names_are_all_in_the_reference():
    listed = [name for names in package.public_names().values() for name in names]
    assert len(listed) == len({*listed})
    modules = {"boosting", "datasets", "distributed", "onnx", "report", "tables"}
    assert {*listed} == {name for name in eh.__all__ if name[0] != "_"} - modules


@pytest.mark.parametrize("name", [n for names in package.public_names().values() for n in names])
def test_every_public_name_has_an_example_and_relatives(name):
    text = inspect.getdoc(getattr(eh, name))
    assert re.search(r"\nExamples\n--------\n(.+\n+)?>>> ", text)
    related = re.search(r"\nSee Also\n--------\n((?:evenhand\.\w+\n?)+)", text)
    assert related, f"{name} must name related functions under See Also"
    for other in related[1].split():
        assert other.removeprefix("evenhand.") in eh.__all__


def test_a_name_that_is_no_longer_public_is_noticed(monkeypatch):
    monkeypatch.setitem(package.SECTIONS, "Audit", ("audit", "gone"))
    with pytest.raises(LookupError, match="Names in `SECTIONS` must be public; gone is not"):
        package.public_names()


def test_functions_behind_formulas_are_found():
    names = [n for body in package.COMPUTED_BY.findall(PAGES["how-it-works"]) for n in body.split()]
    assert len(names) > 15
    pages = [
        n for text in PAGES.values() for b in package.COMPUTED_BY.findall(text) for n in b.split()
    ]
    public = {name for listed in package.public_names().values() for name in listed}
    shown = [name for name in pages if name not in public]
    # Sphinx warns of what is documented twice, which fails the build.
    assert len(shown) == len({*shown})
    for name in [*names, *package.RESULTS]:
        kind, full = package.locate(name)
        thing = import_module(full.removesuffix(f".{name}"))
        for part in name.split("."):
            thing = getattr(thing, part)
        assert thing.__doc__, f"{name} has no docstring for the page"
        assert isinstance(thing, type) == (kind == "class")


def test_no_function_is_documented_on_two_pages():
    """Sphinx warns of it, which fails the build."""
    public = {name for listed in package.public_names().values() for name in listed}
    blocks = package.COMPUTED_BY.findall("\n".join(PAGES.values()))
    names = [name for block in blocks for name in block.split() if name not in public]
    assert len(names) == len({*names})


@pytest.mark.parametrize(
    ("name", "where"), [("no_such_thing", "it is not defined"), ("Rows", "it is defined in .*,")]
)
def test_names_of_nothing_or_of_several_things_are_refused(name, where, monkeypatch):
    monkeypatch.setitem(package.definitions(), "Rows", ["evenhand.one", "evenhand.other"])
    with pytest.raises(LookupError, match=f"`{name}` must be defined in one module.*{where}"):
        package.locate(name)


# Blocks of a page that the build of the site cannot run, as they need more than its packages.
SHOWN = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in WRITTEN if package.EXECUTED.search(PAGES[n])])
def test_blocks_run(name, capsys, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    namespace: dict = {"__name__": name}
    for source in package.EXECUTED.findall(PAGES[name]):
        exec(compile(source, f"{name}.md", "exec"), namespace)
    assert capsys.readouterr().out
    if name == "signature":
        check_blocks_for_mlflow(SHOWN.findall(PAGES[name]), namespace, monkeypatch)


def check_blocks_for_mlflow(blocks, namespace, monkeypatch):
    told: dict = {}
    fake = ModuleType("mlflow")
    fake.start_run = nullcontext
    fake.log_metrics = told.update
    fake.log_dict = fake.log_text = lambda held, name: told.update({name: held})
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    for source in blocks:
        exec(compile(source, "signature.md", "exec"), namespace)
    assert told["evenhand.independence"] == namespace["audit"].independence.value
    assert {"evenhand.json", "evenhand.html"} < set(told)


def test_no_block_of_the_page_to_a_signature_is_left_out():
    """Of all fences, whatever their language: they are run when the site is built, or above."""
    text = PAGES["signature"]
    run = len(package.EXECUTED.findall(text)) + len(SHOWN.findall(text))
    assert run > 8
    assert len(re.findall(r"^```", text, re.MULTILINE)) == 2 * run


def test_architecture_names_functions_in_the_files_that_hold_them():
    text = PAGES["architecture"]
    pairs = re.findall(r"`((?:\w+/)+\w+\.py)` `(\w+)`", text)
    pairs += [(file, name) for name, file in re.findall(r"`(\w+)` of `((?:\w+/)+\w+\.py)`", text)]
    assert len(pairs) > 8
    for file, name in pairs:
        source = (DOCS.parent / "src" / "evenhand" / file).read_text(encoding="utf-8")
        assert re.search(rf"(def|class) {name}\b|^{name}\b", source, re.MULTILINE), (file, name)


@pytest.mark.parametrize("name", WRITTEN)
def test_links_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)#]+)\)", PAGES[name]):
        example = DOCS.parent / "examples" / f"{Path(target).name}.py"
        assert (DOCS / target).exists() or target in BUILT or example.exists(), target


def test_measured_pages_show_pictures_that_exist():
    for page in DOCS.glob("*.md"):
        for target in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert (DOCS / target).is_file(), f"{page.name}: {target}"
