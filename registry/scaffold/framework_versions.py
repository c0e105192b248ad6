"""The framework versions that can load a model file, from the versions that the file states."""

import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from benchlock.registry.inspection.formats.graph_operations import OnnxVersions
from benchlock.registry.inspection.formats.protobuf import whole_message
from benchlock.registry.text.collected_problems import printable

_RELEASES = (
    ("1.0", 11, 6), ("1.3", 12, 7), ("1.6", 13, 7), ("1.8", 14, 7), ("1.9", 15, 8), ("1.11", 16, 8), ("1.12", 17, 8),
    ("1.14", 18, 8), ("1.15", 19, 9), ("1.17", 20, 9), ("1.18", 21, 10), ("1.21", 22, 10), ("1.23", 23, 11),
    ("1.24", 25, 13), ("1.25", 26, 13),
)  # fmt: skip
"""ONNX Runtime releases with the newest opset and IR version that they read.

Source: https://onnxruntime.ai/docs/reference/compatibility.html up to 1.20; since then, graphs that the releases load.
Each release also reads everything older.
"""
_KNOWN_DOMAINS = ("", "ai.onnx.ml")
"""Domains of operators that each release has as ONNX defines them."""
_VERSION = re.compile(r"(\d{1,3})\.(\d{1,3})(\.\w{1,20}){0,2}", re.ASCII)
_LARGEST = 1 << 16  # bytes of metadata.json
_TENSORFLOW, _KERAS = 2, 3  # major versions


@dataclass(frozen=True, slots=True)
class FrameworkVersions:
    """A version constraint with its reason; without a constraint, what is known instead."""

    constraint: str | None
    reason: str


def onnxruntime_versions(versions: OnnxVersions) -> FrameworkVersions:
    """Return the versions of ONNX Runtime that read a graph with these versions of its format and operators."""
    opset, ir_version = versions.opsets.get("", 0), versions.ir_version
    stated = f"opset {opset} and IR version {ir_version}"
    fitting = next((name for name, last, newest in _RELEASES if last >= opset and newest >= ir_version), None)
    if fitting is None:
        return FrameworkVersions(None, f"the graph has {stated}, newer than the releases known here")
    others = sorted(map(printable, versions.used_domains.difference(_KNOWN_DOMAINS)))
    if others:
        what = (
            f"{stated} need onnxruntime {fitting} or newer; the operators of {', '.join(others)} may need a later one"
        )
        return FrameworkVersions(None, what)
    return FrameworkVersions(f">={fitting} <2", f"{stated} need onnxruntime {fitting} or newer")


def savedmodel_versions(stream: BinaryIO, size: int) -> FrameworkVersions:
    """Return the versions of TensorFlow that load a SavedModel, from the version that wrote it.

    Source: https://www.tensorflow.org/guide/versions: later releases of the same major version load it.
    """
    graph = whole_message(stream, size).first(2)
    information = graph.first(1) if graph else None
    version = information.text(5) if information else ""
    match = _VERSION.match(version)
    if match is None or int(match[1]) != _TENSORFLOW:
        known = f"TensorFlow {printable(version)} wrote it" if version else "it does not state its TensorFlow version"
        return FrameworkVersions(None, known)
    reason = f"TensorFlow {printable(version)} wrote it, and later releases before 3 load it"
    return FrameworkVersions(f">={match[1]}.{match[2]} <3", reason)


def keras_versions(path: Path) -> FrameworkVersions | None:
    """Return the versions of TensorFlow that load a Keras archive; None if it does not state its Keras version."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open("metadata.json") as member:
            version = msgspec.json.decode(member.read(_LARGEST))["keras_version"]
    except (OSError, zipfile.BadZipFile, KeyError, TypeError, ValueError):
        return None
    match = _VERSION.match(version) if isinstance(version, str) else None
    if match is None:
        return None
    if int(match[1]) == _KERAS:
        return FrameworkVersions(">=2.16 <3", f"Keras {printable(version)} wrote it; Keras 3 needs TensorFlow 2.16")
    reason = f"Keras {printable(version)} wrote it, which TensorFlow replaced by Keras 3 in 2.16"
    return FrameworkVersions(f">={match[1]}.{match[2]} <2.16" if int(match[1]) == _TENSORFLOW else None, reason)
