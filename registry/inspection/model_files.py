"""Inspection of the files of a model: readable, complete, safe to unpack, and with the step functions."""

import ast
import posixpath
import stat
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import BinaryIO, TypeVar

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.file_trees import check_collisions, check_path
from benchlock.registry.inspection.draft_content import DraftContent
from benchlock.registry.inspection.executable_code import GRAPH_FORMS, ZIPPED, list_model_code_reasons
from benchlock.registry.inspection.formats import model_graphs
from benchlock.registry.inspection.formats.model_graphs import GraphSignature
from benchlock.registry.inspection.formats.protobuf import MalformedError
from benchlock.registry.inspection.formats.tensor_files import read_header
from benchlock.registry.inspection.formats.untrusted_files import (
    BUDGET,
    check_count,
    describe_mismatch,
    meter_stream,
    read_whole,
    recognize,
)
from benchlock.registry.inspection.model_signature import check_goldens, check_labels, check_ports
from benchlock.registry.manifests import Model, Recipe
from benchlock.registry.manifests.model_card import LARGEST
from benchlock.registry.manifests.recipe_checks import is_initial
from benchlock.registry.manifests.steps import Python
from benchlock.registry.text.collected_problems import Problems

_UNIX = 3


def find_unsafe_members(stream: BinaryIO) -> Iterator[str]:
    """Yield why an archive should not be unpacked, as sentences without a subject; nothing if it is not a zip file."""
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
            yield f"contains a file outside its folder: {error.what}"
        if member.create_system == _UNIX and stat.S_ISLNK(member.external_attr >> 16):
            yield f"contains a symbolic link, {member.filename!a}"
    seen: set[str] = set()
    duplicate = next((name for name in names if name in seen or seen.add(name)), None)  # type: ignore[func-returns-value]
    if duplicate is not None:
        yield f"contains {duplicate!a} twice"
    try:
        check_collisions(name for name in names if not name.endswith("/"))
    except InvalidInputError as error:
        yield f"contains names that collide: {error.what}"


_DYNAMIC = frozenset({"globals", "exec", "eval", "setattr", "vars"})
"""Names by which a module may define others at run time."""


def check_functions(model: Model, content: DraftContent, problems: Problems) -> None:
    """Check that the file of each ``python`` step defines its function.

    Args:
        model: The manifest.
        content: The files of the draft.
        problems: Receives what is wrong.
    """
    for side, ports in (("inputs", model.inputs), ("outputs", model.outputs)):
        for number, port in enumerate(ports):
            steps = getattr(port, "steps", ())
            for index, step in enumerate(steps if isinstance(steps, tuple) else ()):
                if isinstance(step.arguments, Python):
                    where = f"{side}[{number}].steps[{index}].python.function"
                    with problems.noted():
                        _check_function(step.arguments, content, where)


def _check_function(step: Python, content: DraftContent, where: str) -> None:
    """Check that the file of one step defines its function."""
    names = _names_in(step.file, content, where)
    if names is not None and step.function not in names:
        raise content.error(
            f"{step.file} defines no function {step.function!r}",
            where,
            f"write one of {', '.join(sorted(names)[:10])}" if names else "define it in that file",
        )


def _names_in(path: str, content: DraftContent, where: str) -> set[str] | None:
    """Return the names that a module defines; None if its text alone does not determine them.

    That is the case if the module imports everything from another one, defines names at run time, or needs another
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
    """Yield the names that a node binds, in any scope."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.alias):
        yield node.asname or node.name.partition(".")[0]
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id


T = TypeVar("T")

_CODELESS = ("code", "card", "labels", "vocabulary")
"""Roles of files that no framework unpickles: text, and declared code."""


def check_model(model: Model, content: DraftContent, problems: Problems) -> None:
    """Inspect every file of a model that is more than text.

    Args:
        model: The manifest.
        content: The files of the draft.
        problems: Receives what is wrong.
    """
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


def check_initial_weights(recipe: Recipe, content: DraftContent, problems: Problems) -> None:
    """Check that the initial weights of a recipe are safetensors files."""
    for index, file in enumerate(recipe.files):
        if is_initial(file):
            with problems.noted():
                _read(read_header, (file.path, "safetensors file"), content, f"files[{index}]")


def read_graph(model: Model, content: DraftContent) -> GraphSignature | None:
    """Return the inputs and outputs in the model's graph; None if its format does not declare them.

    Raises:
        InvalidInputError: The graph is not of its format, or lacks the signature.
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
    """Check that a file executes no code, and is safe to unpack."""
    if path.endswith(".safetensors"):
        _read(read_header, (path, "safetensors file"), content, where)
        return
    target = (path, GRAPH_FORMS.get(model.format, model.format))
    reasons = _read(partial(_find_reasons, model, path), target, content, where)
    with content.open(path, where) as stream:
        unsafe = next(find_unsafe_members(stream), None)
    if reasons:
        what = f"{path} executes code when it is read: it {'; it '.join(reasons)}"
        step = "export only the weights (a state_dict, safetensors), or write unsafe: true"
        raise content.error(what, where, step)
    if unsafe:
        raise content.error(f"{path} {unsafe}", where, "create the archive again, with plain names")


def _find_reasons(model: Model, path: str, stream: BinaryIO, size: int) -> tuple[str, ...]:
    """Return why a file would execute code; nothing if the manifest declares it.

    Raises:
        MalformedError: The file is a graph, but not of the model's format.
    """
    graph = is_graph(model, path)
    if graph and model.format in ZIPPED and not zipfile.is_zipfile(stream):
        raise MalformedError("the list of files at its end is missing")
    return () if model.unsafe is True else list_model_code_reasons(stream, path, size, model.format, is_graph=graph)


def _check_card(path: str, content: DraftContent, where: str) -> None:
    """Check that a card is UTF-8 text of bounded size, since it is displayed."""
    with content.open(path, where) as stream:
        text = stream.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise content.error(f"the card {path} has more than {LARGEST} bytes", where, "shorten it")
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise content.error(f"the card {path} is not UTF-8", where, "save it as UTF-8") from error


def _check_external(model: Model, content: DraftContent, problems: Problems) -> None:
    """Check that external weights of an ONNX graph lie where the graph looks for them, and are long enough."""
    index, file = next((index, file) for index, file in enumerate(model.files) if file.role == "graph")
    where, folder = f"files[{index}]", posixpath.dirname(file.path)
    tensors = _read(model_graphs.external_files, (file.path, "ONNX model"), content, where)
    needed: dict[str, int] = {}
    for tensor in tensors:
        end = tensor.offset + (tensor.length or 0)
        needed[tensor.location] = max(needed.get(tensor.location, 0), end)
        if tensor.offset < 0 or (tensor.length or 0) < 0:
            problems.add(content.error(f"{file.path} places {tensor.tensor!r} before {tensor.location}", where))
    for location, end in needed.items():
        with problems.noted():
            _check_location(location, posixpath.join(folder, location), end, content, where)


def _check_location(location: str, path: str, end: int, content: DraftContent, where: str) -> None:
    """Check one file of external weights."""
    try:
        check_path(location)
    except InvalidInputError as error:
        what = f"the graph has weights in {location!a}, which is not a path beside it: {error.what}"
        raise content.error(what, where, "export it with its external data beside the graph") from error
    if path not in content.files:
        content.refuse_untaken(path)
        what = f"the graph has weights in {path}, which is not in files"
        raise content.error(what, where, f"add it with path: {path} and role: weights")
    if content.size(path) < end:
        what = f"{path} has {content.size(path)} bytes, but the graph reads {end} of them"
        raise content.error(what, where, "add the file that belongs to the graph")


def _read(reader: Callable[[BinaryIO, int], T], target: tuple[str, str], content: DraftContent, where: str) -> T:
    """Return the result of ``reader`` for a file.

    Args:
        reader: A function of the stream and its size.
        target: The path of the file, and the name of its format.
        content: The files of the draft.
        where: The place in the manifest.
    """
    path, form = target
    with content.open(path, where) as stream:
        try:
            result = reader(stream, content.size(path))
        except MalformedError as error:
            step = f"add a valid {form}, or create the manifest from the model file"
            if recognize(stream, form) is None:
                step = "create it again"
            raise content.error(f"{path} {describe_mismatch(stream, form, error)}", where, step) from error
        if isinstance(result, GraphSignature):
            check_count(max(len(result.inputs), len(result.outputs)), BUDGET.ports, "inputs or outputs")
        return result
