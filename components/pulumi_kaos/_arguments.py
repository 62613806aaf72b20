"""Reads a component's arguments against their TypedDict, before any resource exists.

Pulumi passes arguments as plain dictionaries, from Python as from any other language, and checks
none of them. `read` does: unknown keys, missing keys, wrong kinds, outputs where a plain value is
needed. It only collects problems, so that a user sees those of all arguments together.
"""

import difflib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any, NotRequired, Required, Union, cast, get_args, get_origin, is_typeddict

import pulumi

Path = tuple[str, ...]
"""Where a value stands in the arguments: its keys from the outside in."""


class ArgumentsError(pulumi.RunError):
    """Arguments that break rules. `problems` holds one sentence for each, without secrets.

    A sentence names the resource, the path of the argument, the rule and the remedy. Pulumi shows
    a RunError without a traceback.
    """

    def __init__(self, kind: str, resource: str, problems: list[str]) -> None:
        self.problems = [f"{kind} {resource}: {problem}" for problem in problems]
        super().__init__("\n".join(self.problems))


def read(arguments: object, shape: type, problems: list[str], path: Path = ()) -> dict[str, Any]:
    """Return what of `arguments` fits `shape`; everything else becomes a problem.

    None counts as not given. Whole numbers that arrive as floats, as they do over gRPC, become
    integers. Outputs are kept where the shape says `Input`.
    """
    if not isinstance(arguments, Mapping):
        problems.append(f"{_dotted(path) or 'args'} must be a mapping, not {_kind(arguments)}")
        return {}
    given = cast("Mapping[str, object]", arguments)
    known = shape.__annotations__
    for key in given:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known here: {', '.join(known)}"
            problems.append(f"{_dotted((*path, str(key)))} is not an argument; {hint}")
    required = cast("frozenset[str]", getattr(shape, "__required_keys__", frozenset()))
    result: dict[str, Any] = {}
    for key, annotation in known.items():
        here = (*path, key)
        if given.get(key) is None:
            if key in required:
                problems.append(f"{_dotted(here)} is required but not given; set it")
            continue
        found = _value(given[key], annotation, problems, here)
        if found is not None:
            result[key] = found
    return result


def _value(given: object, annotation: Any, problems: list[str], path: Path) -> Any:
    """Return the given value in the annotation's form, or None after noting a problem."""
    while get_origin(annotation) in (NotRequired, Required):
        annotation = get_args(annotation)[0]
    awaited = _awaited(annotation)
    if awaited is not None:
        if isinstance(given, pulumi.Output | Awaitable):
            return pulumi.Output.from_input(cast("Any", given))
        annotation = awaited
    if isinstance(given, pulumi.Output | Awaitable):
        problems.append(
            f"{_dotted(path)} must be a plain value, not an output: it decides what is created; "
            "take it from the configuration"
        )
        return None
    if is_typeddict(annotation):
        return read(given, annotation, problems, path)
    if get_origin(annotation) is list:
        return _items(given, get_args(annotation)[0], problems, path)
    if get_origin(annotation) is dict:
        return _entries(given, get_args(annotation)[1], problems, path)
    return _plain(given, annotation, problems, path)


def _items(given: object, annotation: Any, problems: list[str], path: Path) -> list[Any] | None:
    if not isinstance(given, list | tuple):
        problems.append(f"{_dotted(path)} must be a list, not {_kind(given)}")
        return None
    items = enumerate(cast("list[object]", given))
    found = [_value(item, annotation, problems, (*path, str(index))) for index, item in items]
    return [item for item in found if item is not None]


def _entries(
    given: object, annotation: Any, problems: list[str], path: Path
) -> dict[str, Any] | None:
    if not isinstance(given, Mapping):
        problems.append(f"{_dotted(path)} must be a mapping, not {_kind(given)}")
        return None
    entries = cast("Mapping[object, object]", given).items()
    problems += [
        f"{_dotted((*path, str(key)))} has a key that is not text; quote it"
        for key, _ in entries
        if not isinstance(key, str)
    ]
    found = {
        key: _value(item, annotation, problems, (*path, key))
        for key, item in entries
        if isinstance(key, str)
    }
    return {key: item for key, item in found.items() if item is not None}


def _plain(given: object, annotation: Any, problems: list[str], path: Path) -> Any:
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if annotation is int and number:
        if isinstance(given, int) or cast("float", given).is_integer():
            return int(cast("float", given))
        problems.append(f"{_dotted(path)} is {given}: must be a whole number; round it")
        return None
    if annotation is float and number:
        return given
    if annotation in (str, bool) and isinstance(given, annotation):
        # An enum member of Python is text here; only the text goes on.
        return str.__str__(cast("str", given)) if annotation is str else given
    wanted = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}
    problems.append(f"{_dotted(path)} must be {wanted[annotation]}, not {_kind(given)}")
    return None


def _awaited(annotation: Any) -> Any:
    """Return T of `pulumi.Input[T]`, else None."""
    if get_origin(annotation) is not Union:
        return None
    members = get_args(annotation)
    return next((get_args(m)[0] for m in members if get_origin(m) is Awaitable), None)


def _kind(value: object) -> str:
    """Name the kind of a value without showing it: it may be a secret in the wrong place."""
    if isinstance(value, bool):
        return "true or false"
    names = {str: "text", int: "a number", float: "a number", list: "a list", dict: "a mapping"}
    return next((name for kind, name in names.items() if isinstance(value, kind)), "an object")


def _dotted(path: Path) -> str:
    return ".".join(path)


def outputs(tree: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, pulumi.Output[Any]]]:
    """Yield every output in read arguments with its path."""
    for key, value in tree.items():
        here = (*path, key)
        if isinstance(value, pulumi.Output):
            yield here, cast("pulumi.Output[Any]", value)
        elif isinstance(value, Mapping):
            yield from outputs(cast("Mapping[str, Any]", value), here)
        elif isinstance(value, list):
            items = cast("list[Any]", value)
            yield from outputs({str(index): item for index, item in enumerate(items)}, here)


def replaced(tree: Any, path: Path, value: object) -> Any:
    """Return a copy of read arguments with another value at the path."""
    if not path:
        return value
    if isinstance(tree, list):
        items = list(cast("list[Any]", tree))
        items[int(path[0])] = replaced(items[int(path[0])], path[1:], value)
        return items
    mapping = cast("Mapping[str, Any]", tree)
    return {**mapping, path[0]: replaced(mapping[path[0]], path[1:], value)}


def without_echoes(faults: list[str], problems: list[str]) -> list[str]:
    """Return the problems of rules that do not only follow from a fault that `read` found.

    An argument of the wrong kind is left out of what the rules see, so that they would call it
    missing as well.
    """
    faulty = [_path_of(fault) for fault in faults]
    return [
        problem
        for problem in problems
        if not any(_related(_path_of(problem), path) for path in faulty)
    ]


def _path_of(sentence: str) -> Path:
    """Return the argument that a sentence begins with; `args` stands for all of them."""
    first = sentence.split(" ", 1)[0].rstrip(":")
    return () if first == "args" else tuple(first.split("."))


def _related(one: Path, other: Path) -> bool:
    depth = min(len(one), len(other))
    return one[:depth] == other[:depth]


Rules = Callable[[Mapping[str, Any]], list[str]]
"""Returns the problems of read arguments; outputs count as sound."""


def checked_later(
    kind: str, resource: str, arguments: Mapping[str, Any], rules: Rules
) -> dict[str, Any]:
    """Return the arguments with every output checked by the rules once its value is known.

    Each output is checked on its own, so that one that stays unknown in a preview hides no fault
    of another. A fault fails the preview too, wherever the value is known there.
    """

    def check(path: Path, value: object) -> object:
        if not isinstance(value, str):
            problem = f"{_dotted(path)} must be text, not {_kind(value)}"
            raise ArgumentsError(kind, resource, [problem])
        problems = rules(replaced(arguments, path, value))
        if problems:
            raise ArgumentsError(kind, resource, problems)
        return value

    result = dict(arguments)
    for path, output in outputs(arguments):
        result = replaced(result, path, output.apply(partial(check, path)))
    return result


def known(value: object) -> str | None:
    """Return the text that is given plainly, or None for an output or nothing."""
    return value if isinstance(value, str) else None
