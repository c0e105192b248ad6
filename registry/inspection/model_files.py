"""Inspection of the files of a model: readable, complete, safe to unpack, and with the step functions."""

import ast
import posixpath
import stat
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import BinaryIO, TypeVar

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.trees import check_collisions, check_path
from benchlock.registry.inspection.draft_content import DraftContent
from benchlock.registry.inspection.executable_code import GRAPH_FORMS, ZIPPED, list_model_code_reasons
from benchlock.registry.inspection.formats import model_graphs
from benchlock.registry.inspection.formats.foreign_files import (
    BUDGET,
    check_count,
    describe_mismatch,
    meter_stream,
    read_whole,
    recognize,
)
from benchlock.registry.inspection.formats.model_graphs import GraphSignature
from benchlock.registry.inspection.formats.protobuf import MalformedError
from benchlock.registry.inspection.formats.tensor_files import read_header
from benchlock.registry.inspection.model_ports import check_goldens, check_labels, check_ports
from benchlock.registry.manifests import Model
from benchlock.registry.manifests.model_card import LARGEST
from benchlock.registry.manifests.steps import Python
from benchlock.registry.text.problems import Problems

_UNIX = 3


def find_unsafe_members(stream: BinaryIO) -> Iterator[str]:
    """Why the file should not be unpacked, as sentences without a subject; none where it is no zip file."""
    stream = meter_stream(stream)
    stream.seek(0)
    if not zipfile.is_zipfile(stream):
        return
    try:
        archive = zipfile.ZipFile(stream)
    except (zipfile.BadZipFile, ValueError, OSError):
        return
    with archive:
        members = archive.infolist()
        check_count(len(members), BUDGET.members, "members")
    names = [member.filename for member in members]
    for member in members:
        try:
            check_path(member.filename.removesuffix("/"))
        except InvalidInputError as error:
            yield f"holds a file that would leave its folder: {error.what}"
        if member.create_system == _UNIX and stat.S_ISLNK(member.external_attr >> 16):
            yield f"holds a symbolic link, {member.filename!a}"
    seen: set[str] = set()
    twice = next((name for name in names if name in seen or seen.add(name)), None)  # type: ignore[func-returns-value]
    if twice is not None:
        yield f"holds {twice!a} twice"
    try:
        check_collisions(name for name in names if not name.endswith("/"))
    except InvalidInputError as error:
        yield f"holds names that are one: {error.what}"


_DYNAMIC = frozenset({"globals", "exec", "eval", "setattr", "vars"})
"""Names by which a module may define others at run time."""


def check_functions(model: Model, content: DraftContent, problems: Problems) -> None:
    """Check that the file of each step ``python`` defines its function; what is wrong goes to ``problems``."""
    for side, ports in (("inputs", model.inputs), ("outputs", model.outputs)):
        for number, port in enumerate(ports):
            steps = getattr(port, "steps", ())
            for index, step in enumerate(steps if isinstance(steps, tuple) else ()):
                if isinstance(step.arguments, Python):
                    where = f"{side}[{number}].steps[{index}].python.function"
                    with problems.noted():
                        _check_function(step.arguments, content, where)


def _check_function(step: Python, content: DraftContent, where: str) -> None:
    names = _names_in(step.file, content, where)
    if names is not None and step.function not in names:
        raise content.error(
            f"{step.file} defines no function {step.function!r}",
            where,
            f"write one of {', '.join(sorted(names)[:10])}" if names else "define it in that file",
        )


def _names_in(path: str, content: DraftContent, where: str) -> set[str] | None:
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


T = TypeVar("T")

_CODELESS = ("code", "card", "labels", "vocabulary")
"""Roles of files that no framework unpickles: text, and code that says so."""


def check_model(model: Model, content: DraftContent, problems: Problems) -> None:
    """Look at every file that is read as more than text; what is wrong goes to ``problems``."""
    for index, file in enumerate(model.files):
        if file.role == "card":
            with problems.noted():
                _check_card(file.path, content, f"files[{index}]")
        if file.role in _CODELESS:
            continue
        for path in content.inside(file.path):
            with problems.noted():
                _check_file(model, path, content, f"files[{index}]")
    graph = None
    with problems.noted():
        graph = read_graph(model, content)
    if graph is not None:
        check_ports(model, graph, content, problems)
    check_labels(model, graph, content, problems)
    check_goldens(model, content, problems)
    check_functions(model, content, problems)
    if model.format == "onnx" and graph is not None:
        _check_external(model, content, problems)


def read_graph(model: Model, content: DraftContent) -> GraphSignature | None:
    """What the model's graph says of its inputs and outputs; None where its format does not say it.

    Raises:
        InvalidInputError: it is not of its format, or has no such signature.
    """
    index = next((index for index, file in enumerate(model.files) if file.role == "graph"), None)
    if index is None:
        return None
    path, where = model.files[index].path, f"files[{index}]"
    if model.format == "onnx":
        return _read(model_graphs.read_onnx_graph, (path, "ONNX model"), content, where)
    if model.format == "tflite":
        return _read(model_graphs.read_tflite_graph, (path, "TFLite graph"), content, where)
    if model.format == "savedmodel":
        inner = f"{path}{model_graphs.FILE}" if path.endswith("/") else path
        signatures = _read(model_graphs.read_signatures, (inner, "SavedModel"), content, where)
        if model.signature in signatures:
            return signatures[str(model.signature)]
        what = f"the SavedModel has no signature {model.signature!r}"
        raise content.error(what, "signature", f"it has {', '.join(signatures) or 'none'}")
    return None


def is_graph(model: Model, path: str) -> bool:
    """Return whether a file is the graph of a model, or lies in the tree that is its graph."""
    graphs = (file.path for file in model.files if file.role == "graph")
    return any(path == graph or (graph.endswith("/") and path.startswith(graph)) for graph in graphs)


def _check_file(model: Model, path: str, content: DraftContent, where: str) -> None:
    if path.endswith(".safetensors"):
        _read(read_header, (path, "safetensors file"), content, where)
        return
    called = (path, GRAPH_FORMS.get(model.format, model.format))
    found = _read(partial(_find_reasons, model, path), called, content, where)
    with content.open(path, where) as stream:
        broken = next(find_unsafe_members(stream), None)
    if found:
        what = f"{path} executes code when it is read: it {'; it '.join(found)}"
        step = "export the weights alone (a state_dict, safetensors), or write unsafe: true"
        raise content.error(what, where, step)
    if broken:
        raise content.error(f"{path} {broken}", where, "write the archive again, with plain names")


def _find_reasons(model: Model, path: str, stream: BinaryIO, size: int) -> tuple[str, ...]:
    """Return why a file would run code, nothing where the manifest says that it does.

    Raises:
        MalformedError: It is a graph, and not of the model's format.
    """
    graph = is_graph(model, path)
    if graph and model.format in ZIPPED and not zipfile.is_zipfile(stream):
        raise MalformedError("the list of files at its end is missing")
    return () if model.unsafe is True else list_model_code_reasons(stream, path, size, model.format, is_graph=graph)


def _check_card(path: str, content: DraftContent, where: str) -> None:
    """A card is a text of bounded size: it is printed."""
    with content.open(path, where) as stream:
        text = stream.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise content.error(f"the card {path} has more than {LARGEST} bytes", where, "shorten it")
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise content.error(f"the card {path} is not UTF-8", where, "save it as UTF-8") from error


def _check_external(model: Model, content: DraftContent, problems: Problems) -> None:
    """Weights that an ONNX graph keeps in other files: each lies where the graph looks for it, and is long enough."""
    index, file = next((index, file) for index, file in enumerate(model.files) if file.role == "graph")
    where, folder = f"files[{index}]", posixpath.dirname(file.path)
    named = _read(model_graphs.external_files, (file.path, "ONNX model"), content, where)
    needed: dict[str, int] = {}
    for tensor in named:
        end = tensor.offset + (tensor.length or 0)
        needed[tensor.location] = max(needed.get(tensor.location, 0), end)
        if tensor.offset < 0 or (tensor.length or 0) < 0:
            problems.add(content.error(f"{file.path} places {tensor.tensor!r} before {tensor.location}", where))
    for location, end in needed.items():
        with problems.noted():
            _check_location(location, posixpath.join(folder, location), end, content, where)


def _check_location(location: str, path: str, end: int, content: DraftContent, where: str) -> None:
    try:
        check_path(location)
    except InvalidInputError as error:
        what = f"the graph keeps weights in {location!a}, which is no path beside it: {error.what}"
        raise content.error(what, where, "export it with its external data beside the graph") from error
    if path not in content.files:
        content.refuse_untaken(path)
        what = f"the graph keeps weights in {path}, which is none of the files"
        raise content.error(what, where, f"add it with path: {path} and role: weights")
    if content.size(path) < end:
        what = f"{path} has {content.size(path)} bytes, and the graph reads {end} of them"
        raise content.error(what, where, "name the file that belongs to the graph")


def _read(reader: Callable[[BinaryIO, int], T], called: tuple[str, str], content: DraftContent, where: str) -> T:
    """What ``reader`` finds in a file; ``called`` is its path, and what it must be."""
    path, form = called
    with content.open(path, where) as stream:
        try:
            found = reader(stream, content.size(path))
        except MalformedError as error:
            step = f"name the {form}, or write the manifest of what the file is (`benchlock init model` does)"
            if recognize(stream, form) is None:
                step = "write it again"
            raise content.error(f"{path} {describe_mismatch(stream, form, error)}", where, step) from error
        if isinstance(found, GraphSignature):
            check_count(max(len(found.inputs), len(found.outputs)), BUDGET.ports, "inputs or outputs")
        return found
