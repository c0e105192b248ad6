"""Whether the functions that the steps of a model name are in their files; nothing of these is executed."""

import ast
from collections.abc import Iterator

from benchlock.registry.inspection.budgets import BUDGET, read_whole
from benchlock.registry.inspection.content import Content
from benchlock.registry.manifests import Model
from benchlock.registry.manifests.steps import Python
from benchlock.registry.problems import Problems

_DYNAMIC = frozenset({"globals", "exec", "eval", "setattr", "vars"})
"""Names by which a module may define others at run time."""


def check_functions(model: Model, content: Content, problems: Problems) -> None:
    """Check that the file of each step ``python`` defines its function; what is wrong goes to ``problems``."""
    for side, ports in (("inputs", model.inputs), ("outputs", model.outputs)):
        for number, port in enumerate(ports):
            steps = getattr(port, "steps", ())
            for index, step in enumerate(steps if isinstance(steps, tuple) else ()):
                if isinstance(step.arguments, Python):
                    where = f"{side}[{number}].steps[{index}].python.function"
                    with problems.noted():
                        _check_function(step.arguments, content, where)


def _check_function(step: Python, content: Content, where: str) -> None:
    names = _names_in(step.file, content, where)
    if names is not None and step.function not in names:
        raise content.error(
            f"{step.file} defines no function {step.function!r}",
            where,
            f"write one of {', '.join(sorted(names)[:10])}" if names else "define it in that file",
        )


def _names_in(path: str, content: Content, where: str) -> set[str] | None:
    """Return the names that a module defines; None if its text alone does not tell them.

    It does not where the module imports everything of another, defines names at run time, or is written for another
    version of Python.
    """
    with content.open(path, where) as stream:
        source = read_whole(stream, BUDGET.document)
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None
    nodes = list(ast.walk(tree))
    if any(isinstance(node, ast.Name) and node.id in _DYNAMIC for node in nodes):
        return None
    names = {name for node in nodes for name in _bound_by(node)}
    return None if names & {"*", "__getattr__"} else names


def _bound_by(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node binds, in whatever scope."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.alias):
        yield node.asname or node.name.partition(".")[0]
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
