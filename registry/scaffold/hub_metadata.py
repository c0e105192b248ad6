"""Metadata of Hugging Face models beside a model file: task, classes and preprocessing."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from benchlock.artifacts.atomic_files import open_regular
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.json_codec import decode_untyped
from benchlock.registry.inspection.formats.untrusted_files import OverBudgetError, read_whole

CONFIG: Final = "config.json"
PROCESSOR: Final = "preprocessor_config.json"
CARD: Final = "README.md"
METADATA_FILES: Final = (CONFIG, PROCESSOR, CARD)
LARGEST: Final = 4 << 20
"""Maximum bytes of a metadata file."""
_HEADER: Final = 1 << 16  # bytes of a model card
_MOST_CLASSES: Final = 100_000
_EXPORTS: Final = "onnx"
"""The folder of exported models in a repository, whose metadata is in the folder above."""
_LICENSE: Final = re.compile(r"^license:[ \t]*[\"']?([\w.+-]{1,64})[\"']?[ \t]*$", re.ASCII | re.MULTILINE)
"""The license in the header of a model card."""
_TASKS: Final = {
    "ForImageClassification": "image-classification",
    "ForImageClassificationWithTeacher": "image-classification",
    "ForObjectDetection": "object-detection",
    "ForSemanticSegmentation": "semantic-segmentation",
    "ForAudioClassification": "audio-classification",
    "ForSequenceClassification": "text-classification",
}
"""The task by the end of the name of an architecture."""
_IMAGE_TASKS: Final = ("image-classification", "object-detection", "semantic-segmentation")


@dataclass(frozen=True, slots=True)
class HubMetadata:
    """What the metadata beside a model states.

    Attributes:
        task: The task; None if it is not stated.
        architecture: The architecture that implies the task.
        classes: The name of each class, in order; empty if they are not stated.
        processor: The content of ``preprocessor_config.json``; empty without the file.
        license: The license in the header of the model card ``README.md``; empty if it is not stated.
    """

    task: str | None = None
    architecture: str = ""
    classes: tuple[str, ...] = ()
    processor: Mapping[str, Any] = field(default_factory=dict)
    license: str = ""

    @property
    def reads_images(self) -> bool:
        """Whether the model is certainly fed images."""
        return self.task in _IMAGE_TASKS


def read_metadata(model: Path) -> HubMetadata:
    """Read the metadata beside a model file or in its folder, and above a folder ``onnx`` of exported models.

    Raises:
        InvalidInputError: A metadata file is too large, or is not a JSON object.
    """
    folder = model if model.is_dir() else model.parent
    folders = (folder, folder.parent) if folder.name == _EXPORTS else (folder,)
    config, processor = (_read_object(folders, name) for name in (CONFIG, PROCESSOR))
    if not isinstance(config.get("architectures"), list) and "model_type" not in config:
        config = {}  # another program's file of this name
    architecture, task = _find_task(config)
    return HubMetadata(task, architecture, _find_classes(config), processor, _find_license(folders))


def _find_file(folders: tuple[Path, ...], name: str) -> Path | None:
    """Return the path of the file in the first folder that has it."""
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def _find_license(folders: tuple[Path, ...]) -> str:
    """Return the license in the header of the model card: the YAML between two lines of three hyphens."""
    path = _find_file(folders, CARD)
    if path is None:
        return ""
    with open_regular(path) as stream:
        text = stream.read(_HEADER).decode("utf-8", "replace").replace("\r\n", "\n")
    header = text.removeprefix("---\n").partition("\n---")[0] if text.startswith("---\n") else ""
    match = _LICENSE.search(header)
    return match[1] if match else ""


def _read_object(folders: tuple[Path, ...], name: str) -> dict[str, Any]:
    """Return the JSON object in the first folder that has the file; empty without one."""
    path = _find_file(folders, name)
    if path is None:
        return {}
    with open_regular(path) as stream:
        try:
            value = decode_untyped(read_whole(stream, LARGEST))
        except OverBudgetError as error:
            raise InvalidInputError(f"{name} {error}", where=str(path), next_step="move it elsewhere") from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidInputError(
                f"{name} is not valid JSON: {error}", where=str(path), next_step="correct it, or move it elsewhere"
            ) from error
    if not isinstance(value, dict):
        raise InvalidInputError(f"{name} is not a JSON object", where=str(path), next_step="move it elsewhere")
    return value


def _find_task(config: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the architecture that implies a task, and the task."""
    names = config.get("architectures")
    for name in names if isinstance(names, list) else ():
        for ending, task in _TASKS.items():
            if isinstance(name, str) and name.endswith(ending):
                is_regression = task == "text-classification" and config.get("problem_type") == "regression"
                return name, "regression" if is_regression else task
    return "", None


def _find_classes(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names in ``id2label``, if it has exactly one for each number from 0, each on one line."""
    names = config.get("id2label")
    if not isinstance(names, dict) or not 1 < len(names) <= _MOST_CLASSES:
        return ()
    classes = tuple(names.get(str(number)) for number in range(len(names)))
    if not all(isinstance(name, str) and name.strip() and name.isprintable() for name in classes):
        return ()
    if classes == tuple(f"LABEL_{number}" for number in range(len(classes))):
        return ()  # the placeholders of a configuration without names
    return classes  # type: ignore[return-value] # all are texts
