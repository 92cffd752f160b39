"""`headwater run --reload`: apply changes of an application's files to the running process.

The files are compared a few times a second, which needs no package. A change of function bodies or of values of names
is patched into the modules, and only members that do something else run again. A change that cannot be patched
(`NeedsRestart`), for example of the shape of a class, asks for a new start on the same data. A file that does not
compile, or whose new statements raise, is reported, and the old code goes on.

A patch keeps identities: classes stay the classes of existing pieces, functions stay the functions that other modules
imported.
"""

from __future__ import annotations

import ast
import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import resolve_name
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headwater.cli.limits import DEFAULT_COMMAND_LIMITS, CommandLimits
from headwater.cli.output import count_noun, print_error, print_note
from headwater.pieces.declarations import Declaration
from headwater.pieces.fingerprints.fingerprint import fingerprint_of
from headwater.pieces.piece import Piece
from headwater.runtime.pieces.classes import changed, fingerprints
from headwater.runtime.pieces.hot_reload import renew

if TYPE_CHECKING:
    from headwater.runtime.api.runtime import Runtime


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class NeedsRestart(Exception):
    """A change beyond the bodies of functions and the values of names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceVersion:
    """One version of a source file."""

    text: str
    tree: ast.Module

    @classmethod
    def read(cls, file: Path) -> SourceVersion:
        """Read the file. Raises SyntaxError, OSError or UnicodeDecodeError if it is no program."""
        text = file.read_text(encoding="utf-8")
        tree = ast.parse(text, str(file))
        compile(tree, str(file), "exec", dont_inherit=True)
        return cls(text=text, tree=tree)


_Others: TypeAlias = Sequence[tuple[ModuleType, ast.Module]]


def patch_module(module: ModuleType, file: Path, old: SourceVersion, new: SourceVersion, others: _Others = ()) -> None:
    """Change a module that was loaded from version `old` to version `new`, completely or not at all.

    `others` are the other modules of the application: a name that one of them imported from this module gets the new
    value there, too.
    """
    if _class_shapes(old.tree) != _class_shapes(new.tree):
        raise NeedsRestart("the shape of a class changed")
    names = vars(module)
    before = dict(names)
    replaced: list[tuple[FunctionType, FunctionType]] = []
    codes = list(_methods_with_new_code(module, file, old, new))
    kept = [(function, function.__code__) for function, _ in codes]
    try:
        for statement in _new_statements(old.tree, new.tree):
            exec(compile(ast.Module([statement], []), str(file), "exec", dont_inherit=True), names)
        for name in _bound_names(old.tree) - _bound_names(new.tree):
            names.pop(name, None)
        _check_uses(new.tree, before, names)
        for name, value in before.items():
            fresh = names.get(name)
            if isinstance(value, FunctionType) and isinstance(fresh, FunctionType) and fresh is not value:
                if value.__code__.co_freevars or fresh.__code__.co_freevars:
                    raise NeedsRestart(f"{name} is made by another function")
                replaced.append((value, _copy(value)))
                _replace_function(value, fresh)
                names[name] = value
        executed = list(_new_statements(old.tree, new.tree))
        rest = ast.Module([each for each in new.tree.body if each not in executed], [])
        rebound = _rebindings(module, rest, _changed_names(before, names), others)
        for function, code in codes:
            function.__code__ = code
        for namespace, name, value in rebound:
            namespace[name] = value
    except BaseException:
        for function, copy in replaced:
            _replace_function(function, copy)
        for function, code in kept:
            function.__code__ = code
        names.clear()
        names.update(before)
        raise


# ---- identity of classes -------------------------------------------------------------------------------


class _BodyRemover(ast.NodeTransformer):
    """Removes the bodies of functions, and statements without an effect."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        return ast.FunctionDef(
            node.name, node.args, [ast.Pass()], node.decorator_list, node.returns, None, lineno=0, col_offset=0
        )

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        return ast.AsyncFunctionDef(
            node.name, node.args, [ast.Pass()], node.decorator_list, node.returns, None, lineno=0, col_offset=0
        )

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) else node


def _remove_bodies(tree: ast.Module) -> list[ast.ClassDef]:
    copy = ast.parse(ast.unparse(tree))
    return [_BodyRemover().visit(each) for each in ast.walk(copy) if isinstance(each, ast.ClassDef)]


def _class_shapes(tree: ast.Module) -> list[str]:
    return [ast.dump(each) for each in _remove_bodies(tree)]


def _check_uses(tree: ast.Module, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise NeedsRestart if a name that a class body uses has another value now."""
    used = {name for cls in _remove_bodies(tree) for name in _looked_up_names(cls)}
    for name in sorted(used):
        was, is_now = before.get(name, now), now.get(name, now)
        if was is not is_now and (type(was) is not type(is_now) or was != is_now):
            raise NeedsRestart(f"{name}, which a class is made of, changed")


def _looked_up_names(node: ast.AST) -> Iterator[str]:
    """Return the names that are looked up when a class is created. Names in a lambda are looked up when it is
    called.
    """
    waiting: list[ast.AST] = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, ast.Name):
            yield each.id
        waiting += [each.args] if isinstance(each, ast.Lambda) else ast.iter_child_nodes(each)


# ---- statements --------------------------------------------------------------------------------------


def _new_statements(old: ast.Module, new: ast.Module) -> Iterator[ast.stmt]:
    there = {ast.dump(each) for each in old.body}
    for each in new.body:
        if not isinstance(each, ast.ClassDef) and ast.dump(each) not in there:
            yield each


def _bound_names(tree: ast.Module) -> set[str]:
    """Return the names that the statements of a module bind explicitly."""
    found: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
            found.add(statement.name)
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            found |= {(each.asname or each.name).partition(".")[0] for each in statement.names}
        else:
            stored = (each for each in ast.walk(statement) if isinstance(each, ast.Name))
            found |= {each.id for each in stored if isinstance(each.ctx, ast.Store)}
    return found


# ---- names that other code holds ----------------------------------------------------------------------


def _changed_names(before: dict[str, Any], now: dict[str, Any]) -> set[str]:
    """Return the names of a module that have another value now, or none."""
    return {name for name in before.keys() | now.keys() if _differs(before.get(name, before), now.get(name, before))}


def _differs(was: object, is_now: object) -> bool:
    try:
        return was is not is_now and (type(was) is not type(is_now) or bool(was != is_now))
    except Exception:  # Arrays, for example, are not compared to a bool.
        return True


def _rebindings(
    module: ModuleType, rest: ast.Module, changed: set[str], others: _Others
) -> list[tuple[dict[str, Any], str, Any]]:
    """Return the names of other modules that were imported from a module, with their new values.

    Raises NeedsRestart if a statement of another module, or of `rest` of the module itself, used an old value when it
    was imported: it is executed again only by a new start.
    """
    _check_import_time(module, rest, changed)
    found: list[tuple[dict[str, Any], str, Any]] = []
    waiting = [(module, name, vars(module).get(name, NeedsRestart)) for name in sorted(changed)]
    for source, name, value in waiting:  # The list grows: a module may hand on what it imported.
        for other, theirs in others:
            if other is module or other is source:
                continue
            for alias in _imported_as(other, theirs, source, name):
                if value is NeedsRestart:
                    raise NeedsRestart(f"{name}, which {other.__name__} imports, is gone")
                _check_import_time(other, theirs, {alias})
                if not any(one is other and named == alias for one, named, _ in waiting):
                    found.append((vars(other), alias, value))
                    waiting.append((other, alias, value))
            for base, attribute in _attributes_at_import(theirs):
                if attribute == name and vars(other).get(base) is source:
                    raise NeedsRestart(f"{base}.{name}, which {other.__name__} used when it was imported, changed")
    return found


def _check_import_time(module: ModuleType, tree: ast.Module, changed: set[str]) -> None:
    """Raise NeedsRestart if a statement used a changed name when the module was imported."""
    for statement in tree.body:
        for each in _nodes_at_import(statement):
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load) and each.id in changed:
                raise NeedsRestart(f"{each.id}, which {module.__name__} used when it was imported, changed")


def _imported_as(other: ModuleType, tree: ast.Module, source: ModuleType, name: str) -> Iterator[str]:
    """Return the names under which a module imported a name of another module."""
    for statement in tree.body:
        for each in _nodes_at_import(statement):
            if isinstance(each, ast.ImportFrom) and _module_named(other, each) is source:
                for imported in each.names:
                    alias = imported.asname or name
                    if imported.name in (name, "*") and alias in vars(other):
                        yield alias


def _module_named(other: ModuleType, statement: ast.ImportFrom) -> ModuleType | None:
    name = "." * statement.level + (statement.module or "")
    try:
        return sys.modules.get(resolve_name(name, other.__package__))
    except ImportError:
        return None


def _attributes_at_import(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Return the attributes of names that are looked up at import, such as `("helper", "RATE")`."""
    for statement in tree.body:
        for each in _nodes_at_import(statement):
            if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
                yield each.value.id, each.attr


def _nodes_at_import(statement: ast.AST) -> Iterator[ast.AST]:
    """Return the nodes that are evaluated at import: bodies of functions are not, nor is `if __name__ == ...`."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        each = waiting.pop()
        yield each
        match each:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                waiting += [*each.decorator_list, each.args, *([] if each.returns is None else [each.returns])]
            case ast.Lambda():
                waiting.append(each.args)
            case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
                waiting += each.orelse
            case _:
                waiting += ast.iter_child_nodes(each)


# ---- functions ---------------------------------------------------------------------------------------


def _methods_with_new_code(
    module: ModuleType, file: Path, old: SourceVersion, new: SourceVersion
) -> Iterator[tuple[FunctionType, CodeType]]:
    """Return the functions of a module's classes, each with its new code."""
    codes = {version.text: _method_codes(version.tree, file) for version in (old, new)}
    lines = {(code.co_qualname, code.co_firstlineno): place for place, code in codes[old.text].items()}
    found = set()
    for function in _methods(module):
        code = function.__code__
        place = lines.get((code.co_qualname, code.co_firstlineno))
        if place is None or code.co_filename != str(file):
            continue  # A function of a decorator, or inherited from another module.
        found.add(place)
        fresh = codes[new.text][place]
        if fresh.co_freevars != code.co_freevars:
            raise NeedsRestart(f"{code.co_qualname} refers to other names around it")
        yield function, fresh
    then, now = (_method_bodies(version.tree) for version in (old, new))
    for place, body in now.items():
        if place not in found and then.get(place) != body:
            raise NeedsRestart(f"{place[0]} is wrapped in something that cannot be changed")


def _method_codes(tree: ast.Module, file: Path) -> dict[tuple[str, int], CodeType]:
    """Return the code of every function in a class body, by its name and the number of earlier ones of that name."""
    found: dict[tuple[str, int], CodeType] = {}
    classes = {each.name for each in ast.walk(tree) if isinstance(each, ast.ClassDef)}
    waiting = [(compile(tree, str(file), "exec", dont_inherit=True), "")]
    while waiting:
        outer, prefix = waiting.pop()
        for code in outer.co_consts:
            if not isinstance(code, CodeType):
                continue
            if code.co_name in classes and code.co_qualname == f"{prefix}{code.co_name}":
                waiting.append((code, f"{code.co_qualname}."))
            elif prefix and not code.co_name.startswith("<"):
                number = sum(1 for name, _ in found if name == code.co_qualname)
                found[code.co_qualname, number] = code
    return found


def _method_bodies(tree: ast.Module) -> dict[tuple[str, int], str]:
    """Return the source of every function in a class body, by the same keys."""
    found: dict[tuple[str, int], str] = {}
    waiting: list[tuple[ast.ClassDef, str]] = [(each, "") for each in tree.body if isinstance(each, ast.ClassDef)]
    while waiting:
        cls, prefix = waiting.pop()
        for each in cls.body:
            if isinstance(each, ast.ClassDef):
                waiting.append((each, f"{prefix}{cls.name}."))
            elif isinstance(each, _FUNCTIONS):
                name = f"{prefix}{cls.name}.{each.name}"
                found[name, sum(1 for known, _ in found if known == name)] = ast.dump(each)
    return found


def classes_of(module: ModuleType) -> list[type[Any]]:
    """Return the classes that a module defines, nested ones included."""
    found: dict[type[Any], None] = {}
    waiting = list(vars(module).values())
    while waiting:
        each = waiting.pop()
        if isinstance(each, type) and each.__module__ == module.__name__ and each not in found:
            found[each] = None
            waiting += vars(each).values()
    return list(found)


def _methods(module: ModuleType) -> Iterator[FunctionType]:
    """Return every function of a module's classes, unwrapped."""
    for cls in classes_of(module):
        for held in vars(cls).values():
            yield from _inside(held)


def _inside(held: object) -> Iterator[FunctionType]:
    match held:
        case FunctionType():
            yield held
        case staticmethod() | classmethod():
            yield from _inside(held.__func__)
        case property():
            for each in (held.fget, held.fset, held.fdel):
                yield from _inside(each)
        case Declaration():
            yield from _inside(getattr(held, "fn", None))
        case _:
            return


def _copy(function: FunctionType) -> FunctionType:
    copy = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    copy.__kwdefaults__, copy.__doc__ = function.__kwdefaults__, function.__doc__
    copy.__annotations__ = function.__annotations__
    copy.__dict__.update(function.__dict__)
    return copy


def _replace_function(function: FunctionType, other: FunctionType) -> None:
    """Change a function into another one for all its users."""
    function.__code__, function.__defaults__ = other.__code__, other.__defaults__
    function.__kwdefaults__, function.__doc__ = other.__kwdefaults__, other.__doc__
    function.__annotations__ = other.__annotations__
    function.__dict__.clear()
    function.__dict__.update(other.__dict__)


BEGINNINGS: Final = ("start", "work", "main")

_TRY: Final = "import sys; from headwater.cli.loading import load_application; load_application(sys.argv[1])"


class Reload:
    """The files of one application, and the version of each that runs."""

    def __init__(self, app: str, file: Path, main: ModuleType, limits: CommandLimits = DEFAULT_COMMAND_LIMITS) -> None:
        self._app = app
        self._limits = limits
        self._main = main
        self._folder = file.parent
        self._stamps: dict[Path, tuple[int, int]] = {}
        self._versions: dict[Path, tuple[ModuleType, SourceVersion]] = {}
        self._seen: set[str] = set()  # names of modules that were inspected
        self._find_modules()

    # ---- looking -----------------------------------------------------------------------------------

    async def until_reshaped(
        self, runtimes: Callable[[], Iterable[Runtime]], is_broken: Callable[[], bool] = lambda: False
    ) -> None:
        """Apply changes until one needs a new start; if the program does not run well, any change does."""
        while True:
            await asyncio.sleep(self._limits.reload_s)
            is_needed = bool(self._changed_files()) if is_broken() else self.apply_changes(runtimes())
            if is_needed and await asyncio.to_thread(self.can_be_imported):
                return

    def _changed_files(self) -> list[Path]:
        """Return the files that changed since the last call."""
        self._find_modules()
        return [file for file in self._versions if self._has_changed(file)]

    def apply_changes(self, runtimes: Iterable[Runtime]) -> bool:
        """Apply the changes since the last call, and return whether a new start is needed."""
        files = self._changed_files()
        if not files:
            return False
        before = self._fingerprints()
        begins = self._beginnings()
        fates = [self._patch_file(file) for file in files]
        if True in fates:
            self._run_again(changed(before, self._fingerprints()), runtimes)
        return False in fates or begins != self._beginnings()

    def _find_modules(self) -> None:
        """Find the modules of the application's folder that were imported since the last call."""
        for name in sys.modules.keys() - self._seen:
            module = sys.modules[name]
            where = getattr(module, "__file__", None)
            file = Path(where) if isinstance(where, str) and where.endswith(".py") else None
            if file is not None and file not in self._versions and self._is_own(file):
                try:
                    version = SourceVersion.read(file)
                    self._stamps[file] = _file_stamp(file)
                except (OSError, SyntaxError, UnicodeDecodeError):
                    continue  # It changed right after its import, and is read next time.
                self._versions[file] = (module, version)
            self._seen.add(name)

    def _is_own(self, file: Path) -> bool:
        inside = file.is_relative_to(self._folder)
        return inside and "site-packages" not in file.parts and not file.is_relative_to(Path(sys.prefix))

    def _has_changed(self, file: Path) -> bool:
        try:
            stamp = _file_stamp(file)
        except OSError:
            return False  # It is being replaced, or was deleted: the loaded code goes on.
        was, self._stamps[file] = self._stamps[file], stamp
        return stamp != was

    # ---- taking in ---------------------------------------------------------------------------------

    def _patch_file(self, file: Path) -> bool | None:
        """Patch a module. Return False if a new start is needed, None if the file cannot run."""
        module, old = self._versions[file]
        try:
            new = SourceVersion.read(file)
        except (OSError, SyntaxError, UnicodeDecodeError) as error:
            print_error(f"{file.name} cannot be compiled ({error}). The previous code goes on.")
            return None
        if new.text == old.text:
            return None
        try:
            others = [(each, version.tree) for each, version in self._versions.values() if each is not module]
            patch_module(module, file, old, new, others)
        except NeedsRestart as reshaped:
            print_note(f"{file.name}: {reshaped}")
            return False
        except Exception as error:  # Any error of the new statements is reported.
            print_error(f"{file.name} raises {type(error).__name__}: {error}. The previous code goes on.")
            return None
        self._versions[file] = (module, new)
        return True

    def _run_again(self, members: frozenset[tuple[str, str]], runtimes: Iterable[Runtime]) -> None:
        named = sorted(f"{cls.rpartition('.')[2]}.{member}" for cls, member in members)
        print_note(f"taken in: {', '.join(named)}" if named else "taken in: nothing that a piece does changed")
        for runtime in runtimes:
            renew(runtime.core, runtime.pieces.instances(), runtime.resume, members)

    def _fingerprints(self) -> dict[tuple[str, str], str | None]:
        modules = [module for module, _ in self._versions.values()]
        found = {each for module in modules for each in classes_of(module) if issubclass(each, Piece)}
        return dict(fingerprints(found - {Piece}))

    def _beginnings(self) -> list[str | None]:
        found = [getattr(self._main, name, None) for name in BEGINNINGS]
        return [None if each is None else fingerprint_of(each).digest for each in found]

    def can_be_imported(self) -> bool:
        """Import the application in another process: one that cannot start must not replace one that runs."""
        most_s = self._limits.import_s
        command: Sequence[str] = (sys.executable, "-c", _TRY, self._app)
        try:
            tried = subprocess.run(command, capture_output=True, text=True, check=False, timeout=most_s)
        except subprocess.TimeoutExpired:
            print_error(
                f"{self._app} takes more than {count_noun(round(most_s), 'second')} to import. The code goes on."
            )
            return False
        if tried.returncode:
            print_error(*(tried.stderr.strip().splitlines()[-3:] or ["it cannot be imported"]))
            print_note("The previous code goes on.")
        return tried.returncode == 0


def _file_stamp(file: Path) -> tuple[int, int]:
    state = file.stat()
    return state.st_mtime_ns, state.st_size
