"""The shape of the code is tested like its behaviour: contracts, sizes, names, and that everything is documented."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "neve"
MODULES = sorted(PACKAGE.rglob("*.py"))
TESTS = ROOT / "tests"
TEST_MODULES = sorted(TESTS.rglob("*.py"))
REFERENCE = ROOT / "docs" / "reference"

MAX_LINES = 500
MAX_DEPTH = 3
FORBIDDEN_WORDS = frozenset(
    {"manager", "helper", "helpers", "base", "abstract", "impl", "dto", "util", "utils", "common", "misc"}
)

# Written so that this line does not match itself.
HOME_PATH = re.compile(r"(?<![\w.])/(?:home|Users)/[a-z]+/|(?<![\w.])/roo[t]/\w|(?<![\w.])/wor[k]/\w")


def relative(module: Path) -> str:
    return str(module.relative_to(ROOT))


def things_in(tree: ast.Module) -> Iterator[str]:
    """Classes that a module defines, at any depth."""
    return (node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def getters_in(tree: ast.Module) -> list[str]:
    """Functions called get-something; methods are left out, since foreign classes ask for such names."""
    functions = (node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [name for name in functions if re.match(r"_?get_", name)]


def words_of(name: str) -> set[str]:
    """`TableManager` and `table_manager` are both made of table and manager."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)}


def forbidden_in(names: Iterator[str]) -> list[str]:
    return [name for name in names if words_of(name) & FORBIDDEN_WORDS]


def init_logic(tree: ast.Module) -> list[str]:
    """What an `__init__` holds besides a docstring, imports, and the names that it exports (lazily, if it likes)."""
    found = []
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant | ast.List | ast.Tuple):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.FunctionDef) and node.name in {"__getattr__", "__dir__"}:
            continue
        found.append(f"line {node.lineno}: {type(node).__name__}")
    return found


def imported_tests(tree: ast.Module, package: str) -> list[str]:
    """Test modules and conftests that a module of this package imports, absolutely or relative to it."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*parents, *([node.module] if node.module else [])])
            found += [source, *(f"{source}.{alias.name}" for alias in node.names)]
    # Tests are functions called test_ as well: only a name that is a file counts.
    modules = [name for name in found if name.startswith("tests.") and is_test_module(name.rpartition(".")[2])]
    return sorted({name for name in modules if (ROOT / (name.replace(".", "/") + ".py")).exists()})


def is_test_module(name: str) -> bool:
    return name == "conftest" or name.startswith("test_")


def home_paths(text: str) -> list[str]:
    return [match[0] for match in HOME_PATH.finditer(text)]


def repository_files() -> list[Path]:
    """What git tracks or would track, so that a new file is checked before it is added."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip(f"not a git checkout: {listed.stderr.strip()}")
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def documented(page: str) -> str:
    return (REFERENCE / page).read_text(encoding="utf-8")


def test_import_contracts_hold() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert re.search(r"Contracts: [1-9]\d* kept, 0 broken", done.stdout), done.stdout


@pytest.mark.parametrize("module", MODULES, ids=relative)
def test_a_module_is_short_and_says_what_it_owns(module: Path) -> None:
    text = module.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_LINES
    docstring = ast.get_docstring(ast.parse(text)) if text.strip() else None
    assert docstring, "the module has no docstring"


@pytest.mark.parametrize("module", [m for m in MODULES if m.name == "__init__.py"], ids=relative)
def test_an_init_file_holds_names_and_no_logic(module: Path) -> None:
    assert init_logic(ast.parse(module.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("module", MODULES, ids=relative)
def test_names_say_what_a_thing_is(module: Path) -> None:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    assert forbidden_in(iter([module.stem, *things_in(tree)])) == []
    assert getters_in(tree) == []


def test_no_two_public_classes_have_the_same_name() -> None:
    homes: dict[str, list[str]] = {}
    for module in MODULES:
        for node in ast.parse(module.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(relative(module))
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_folders_are_at_most_three_deep() -> None:
    depths = {relative(m): len(m.relative_to(PACKAGE).parents) - 1 for m in MODULES}
    assert {name: depth for name, depth in depths.items() if depth > MAX_DEPTH} == {}


def test_every_folder_of_the_package_is_a_package() -> None:
    # Alembic runs its scripts by path; they are no modules of ours.
    folders = {m.parent for m in MODULES if "migrations" not in m.parts}
    assert sorted(relative(f) for f in folders if not (f / "__init__.py").exists()) == []


def test_no_module_imports_a_test_module_or_a_conftest() -> None:
    """What test modules share is in `tests/builders`; a fixture is shared by its name."""
    found = {}
    for module in TEST_MODULES:
        package = ".".join(module.relative_to(ROOT).parent.parts)
        found[relative(module)] = imported_tests(ast.parse(module.read_text(encoding="utf-8")), package)
    assert {name: modules for name, modules in found.items() if modules} == {}


@pytest.mark.parametrize("module", sorted((TESTS / "builders").glob("*.py")), ids=relative)
def test_a_builder_says_what_it_builds(module: Path) -> None:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "the module has no docstring"
    assert forbidden_in(iter([module.stem])) == []
    assert [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")] == []


def test_every_folder_of_the_tests_is_in_the_table_for_contributors() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    folders = {relative(path.parent) for path in TEST_MODULES} - {"tests"}
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    rows = {name for cell in cells for name in re.findall(r"`(tests/[\w/]+)`", cell)}
    assert rows == folders


@pytest.mark.parametrize("module", ["neve", "neve.errors", "neve.cli.app"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    script = f"import sys, {module}; print(sorted({{'pyspark', 'fastapi', 'pyarrow', 'pyiceberg'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_the_environment_of_the_older_spark_has_every_library_that_the_package_needs() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    needed = {re.split(r"[<>=\[]", line)[0] for line in declared}
    pinned = (ROOT / "scripts" / "spark35-requirements.txt").read_text(encoding="utf-8").splitlines()
    assert needed - {line.partition("==")[0] for line in pinned} == set()


def test_no_file_names_a_home_directory() -> None:
    found = {}
    for file in repository_files():
        try:
            paths = home_paths(file.read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            continue
        if paths:
            found[relative(file)] = paths
    assert found == {}


def error_classes() -> list[Any]:
    from neve.errors import NeveError

    found, queue = [], [NeveError]
    while queue:
        found.append(queue.pop())
        queue += found[-1].__subclasses__()
    return [c for c in found if c.__module__ == "neve.errors"]


def test_every_error_code_is_unique_and_documented() -> None:
    codes = [c.code for c in error_classes()]
    assert len(codes) == len(set(codes))
    assert [code for code in codes if f"`{code}`" not in documented("errors.md")] == []


def test_every_error_code_has_a_troubleshooting_entry() -> None:
    page = (ROOT / "docs" / "guide" / "troubleshooting.md").read_text(encoding="utf-8")
    assert [c.code for c in error_classes() if f"\n## {c.code}\n" not in page] == []


def test_every_knob_is_documented() -> None:
    from neve.policy.model import knobs

    page = documented("policy.md")
    missing = [key for key in knobs() if f"`{key}`" not in page]
    assert missing == []
    properties = [name for knob in knobs().values() for name in knob.properties]
    assert [name for name in properties if f"`{name}`" not in page] == []


def test_every_setting_is_documented() -> None:
    from neve.settings.keys import leaves, settings_tree

    page = documented("settings.md")
    keys = [".".join(path) for path, _ in leaves(settings_tree()) if path[0] != "policy"]
    # The last name of a free mapping is the user's own.
    assert [key for key in keys if f"`{key}`" not in page and f"`{key.removesuffix('.<name>')}`" not in page] == []
    assert len(keys) > 30


def command_paths(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, child in (getattr(command, "commands", None) or {}).items():
        yield from command_paths(child, f"{path} {name}")


def test_every_command_and_option_is_documented() -> None:
    import typer.main

    from neve.cli.app import app

    page = documented("cli.md")
    missing = []
    for path, command in command_paths(typer.main.get_command(app), "neve"):
        if getattr(command, "hidden", False):
            continue
        missing += [path] if f"`{path}`" not in page else []
        parameters = command.get_params(command.context_class(command))
        options = [p.opts[-1] for p in parameters if p.param_type_name == "option" and not p.hidden]
        missing += [f"{path} {name}" for name in options if name != "--help" and f"`{name}`" not in page]
    assert missing == []


def test_the_word_check_sees_both_spellings_and_spares_longer_words() -> None:
    names = ["TableManager", "table_utils", "BaseCatalog", "Database", "managed", "baseline", "Baseline"]
    assert forbidden_in(iter(names)) == ["TableManager", "table_utils", "BaseCatalog"]


def test_the_getter_check_sees_functions_and_spares_methods() -> None:
    tree = ast.parse("def get_table(): ...\ndef getter(): ...\nclass Command:\n    def get_params(self): ...\n")
    assert getters_in(tree) == ["get_table"]


def test_the_init_check_sees_logic_and_spares_exports() -> None:
    exports = '"""Doc."""\nfrom neve.errors import NeveError\n__all__ = ["NeveError"]\n__version__ = "1"\n'
    assert init_logic(ast.parse(exports)) == []
    assert init_logic(ast.parse(exports + "def load(): ...\n")) == ["line 5: FunctionDef"]


def test_the_import_check_sees_every_way_to_import_and_spares_builders() -> None:
    imports = [
        "from tests.core.test_files import x",
        "from tests.core import test_files",
        "import tests.conftest",
        "from .test_files import x",
        "from ..conftest import x",
        "def late():\n    from tests.core.test_files import x",
    ]
    found = [imported_tests(ast.parse(text), "tests.core") for text in imports]
    here, above = ["tests.core.test_files"], ["tests.conftest"]
    assert found == [here, here, above, here, above, here]
    assert imported_tests(ast.parse("from tests.builders.files import make_files, test_x"), "tests.core") == []


def test_the_path_check_sees_homes_and_spares_addresses() -> None:
    ann, bob = (f"/{top}/{name}/" for top, name in (("home", "ann"), ("Users", "bob")))
    assert home_paths(f"{ann}x and https://host{ann}x and {bob}y") == [ann, bob]
