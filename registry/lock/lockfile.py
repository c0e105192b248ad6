"""The lock file: a resolution with digests as TOML, its id, and all blobs that it references.

``id`` is the SHA-256 of the RFC 8785 JSON of all other content, unknown fields of newer versions included. Reading a
lock and writing it again therefore gives the same lock. The text depends only on the content: the order of keys is
fixed.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from benchlock.artifacts.digest import Digest, DigestText, digest_bytes, from_hex
from benchlock.artifacts.errors import IntegrityError, InvalidInputError
from benchlock.artifacts.file_trees import check_path
from benchlock.artifacts.json_codec import decode_untyped, encode_canonical, prepare_decoder
from benchlock.registry.artifact_names import Kind
from benchlock.registry.text import toml

SCHEMA = (1, 1)
"""Major and minor version of the newest supported schema."""
MAX_VALUES: Final = 300_000
"""Maximum number of values in a lock, as ``toml.loads`` counts them; enough for 40,000 files."""
FINISHED_SCHEMA, PLAIN_SCHEMA = "1.1", "1.0"
"""The schemas to write: minor version 1 added finished images and levels; a lock without them keeps version 1.0."""

_ORDER = (
    *("schema", "id", "kind", "name", "version", "split", "digest", "path", "sha256", "size"),
    *("os", "arch", "device", "python", "reference", "image_id", "config_size", "diff_ids", "wheels_lock", "wheels"),
    *(
        "request",
        "model",
        "operator",
        "recipe",
        "dataset",
        "framework",
        "image",
        "harness",
        "prereleases",
        "hardware",
        "limits",
    ),
    *(
        "seconds",
        "bytes",
        "cpus",
        "processes",
        "target",
        "distribution",
        "settings",
        "environment",
        "scenario",
        "metrics",
    ),
)
_ROWS = ("files", "platforms")
_NAME_LOCKFILE = "choose a lockfile, or lock the request first"
_LOCK_AGAIN = "restore it, or delete it and lock the request again"


HexText = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Whole = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]


class LockedFile(Struct, frozen=True, kw_only=True):
    """A locked file, or a tree if ``path`` ends in ``/``: its SHA-256 as 64 hex digits, and its size in bytes."""

    path: str
    sha256: HexText
    size: Whole


class LockedArtifact(Struct, frozen=True, kw_only=True):
    """A locked artifact; ``digest`` is that of its manifest."""

    name: str
    version: str
    digest: DigestText
    files: tuple[LockedFile, ...] = ()


class LockedDataset(LockedArtifact, frozen=True, kw_only=True):
    """A locked dataset with the split to use."""

    split: str


class LockedLayer(Struct, frozen=True, kw_only=True):
    """A locked layer of an image: its digest, and its size in bytes."""

    digest: DigestText
    size: Whole


class LockedPlatform(Struct, frozen=True, kw_only=True):
    """A locked platform of the image: what a process needs and, if the image has layers, what a container needs.

    ``image_id`` is the digest of the image's configuration, a blob of ``config_size`` bytes. A finished image has a
    ``reference``, from which an engine pulls it, and the ``diff_ids`` of its layers in place of wheels and layers.
    """

    os: str
    arch: str
    device: str
    python: str
    wheels_lock: LockedFile | UnsetType = UNSET
    wheels: tuple[LockedFile, ...] = ()
    reference: Annotated[str, Meta(pattern=r"\A[^@\s]+@sha256:[0-9a-f]{64}\Z")] | UnsetType = UNSET
    image_id: DigestText | UnsetType = UNSET
    config_size: Whole | UnsetType = UNSET
    diff_ids: tuple[DigestText, ...] | UnsetType = UNSET
    layers: tuple[LockedLayer, ...] | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Require the fields of an image built from wheels, or those of a finished image."""
        if not self.finished and self.wheels_lock is UNSET:
            raise ValueError("a platform needs wheels_lock or reference")
        if self.finished and UNSET in (self.image_id, self.config_size, self.diff_ids):
            raise ValueError("a finished image needs image_id, config_size and diff_ids")

    @property
    def finished(self) -> bool:
        """Whether the platform is a finished image, which ``reference`` identifies."""
        return self.reference is not UNSET

    def __str__(self) -> str:
        """Return OS/ARCH/DEVICE."""
        return f"{self.os}/{self.arch}/{self.device}"


class LockedImage(LockedArtifact, frozen=True, kw_only=True):
    """A locked image with its platforms."""

    platforms: tuple[LockedPlatform, ...]


class LockedHarness(Struct, frozen=True, kw_only=True):
    """The locked harness; ``digest`` is that of the zipapp, a blob of ``size`` bytes."""

    version: str
    digest: DigestText
    size: Whole


class LockedLimits(Struct, frozen=True, kw_only=True):
    """The resources of a run: seconds, bytes of memory, CPUs (also the thread count of every runtime), processes."""

    seconds: Annotated[float, Meta(gt=0)]
    bytes: Count
    cpus: Count
    processes: Count


class LockedTarget(Struct, frozen=True, kw_only=True):
    """The quality that ends a training: a metric on a split of the dataset, and the least value."""

    metric: str
    split: str
    value: Annotated[float, Meta(gt=0, le=1)]


class LockedDistribution(Struct, frozen=True, kw_only=True):
    """The processes that share each batch of a training: their number, their threads, and the size of a bucket."""

    processes: Annotated[int, Meta(ge=2, le=16)]
    threads: Count
    bucket_bytes: Count
    strategy: Literal["all-reduce"]
    backend: Literal["gloo"]


_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "model": ("model", "dataset"),
    "operator": ("operator",),
    "recipe": ("recipe", "dataset", "target", "settings", "environment"),
    "distribution": ("recipe", "dataset", "distribution", "settings", "environment"),
}
"""The parts of a lock that depend on what it evaluates."""


@prepare_decoder
class LockContent(Struct, frozen=True, kw_only=True):
    """The content of a lock, without its id.

    ``request`` is the request as parsed. The lock has ``model`` and ``dataset``, or ``operator``, or ``recipe`` and
    ``dataset``. A recipe also has the ``target`` or the ``distribution``, all ``settings`` and the ``environment``, in
    which an empty value stands for a variable that is absent. ``scenario`` has its ``name``, every setting, and
    ``seeds``. ``metrics`` maps each name to the version of its definition.
    """

    schema: str
    request: dict[str, Any]
    model: LockedArtifact | UnsetType = UNSET
    operator: LockedArtifact | UnsetType = UNSET
    recipe: LockedArtifact | UnsetType = UNSET
    dataset: LockedDataset | UnsetType = UNSET
    framework: LockedArtifact
    image: LockedImage
    harness: LockedHarness
    limits: LockedLimits
    target: LockedTarget | UnsetType = UNSET
    distribution: LockedDistribution | UnsetType = UNSET
    settings: dict[str, Any] | UnsetType = UNSET
    environment: dict[str, str] | UnsetType = UNSET
    scenario: dict[str, Any]
    metrics: dict[str, int]

    def __post_init__(self) -> None:
        """Require a model with a dataset, or an operator, or a recipe with all that a training needs."""
        subject = next((name for name in ("operator", "recipe") if getattr(self, name) is not UNSET), "model")
        is_distributed = subject == "recipe" and self.distribution is not UNSET
        needed = _PARTS["distribution" if is_distributed else subject]
        for name in ("model", "operator", "recipe", "dataset", "target", "distribution", "settings", "environment"):
            if (getattr(self, name) is UNSET) == (name in needed):
                article = "an" if subject == "operator" else "a"
                what = (
                    f"Object missing required field `{name}`"
                    if name in needed
                    else f"a lock of {article} {subject} has no {name}"
                )
                raise ValueError(what)


class Lock(LockContent, frozen=True, kw_only=True):
    """A lock with a verified ``id``; ``document`` has all of its content as plain values, without the id."""

    id: Digest
    document: dict[str, Any]
    warnings: tuple[str, ...] = ()

    def artifacts(self) -> Mapping[Kind, LockedArtifact]:
        """Return the locked artifacts by kind."""
        optional: dict[Kind, LockedArtifact | UnsetType] = {
            "model": self.model,
            "operator": self.operator,
            "recipe": self.recipe,
            "dataset": self.dataset,
        }
        present: dict[Kind, LockedArtifact] = {
            kind: artifact for kind, artifact in optional.items() if artifact is not UNSET
        }
        return present | {"framework": self.framework, "image": self.image}

    @property
    def subject(self) -> LockedArtifact:
        """The model, the operator or the recipe that is evaluated."""
        return next(part for part in (self.model, self.operator, self.recipe) if part is not UNSET)

    @property
    def inputs(self) -> tuple[Digest, str]:
        """The identity of the inputs, which comparable runs share: of the dataset and its split, or of the operator."""
        if self.dataset is UNSET:
            return Digest(self.subject.digest), ""
        return Digest(self.dataset.digest), self.dataset.split


def dataset_of(lock: Lock) -> LockedDataset:
    """Return the dataset of a lock.

    Raises:
        InvalidInputError: The lock is of an operator, which has no dataset.
    """
    if lock.dataset is UNSET:
        raise InvalidInputError(
            f"operator/{lock.subject.name} is evaluated without a dataset", next_step="choose runs of models"
        )
    return lock.dataset


def describe_dataset(lock: Lock) -> str:
    """Return name and version of the dataset; ``-`` for a lock without one."""
    return "-" if lock.dataset is UNSET else f"{lock.dataset.name} {lock.dataset.version}"


def lock_id(document: Mapping[str, Any]) -> Digest:
    """Return the id of a lock with the content ``document``.

    Raises:
        InvalidInputError: The content has a value that JSON cannot represent exactly.
    """
    return digest_bytes(encode_canonical(document))


def from_content(content: LockContent) -> Lock:
    """Return the lock with this content.

    Raises:
        InvalidInputError: The content has a value that TOML or JSON cannot represent, such as null.
    """
    parts = {name: getattr(content, name) for name in LockContent.__struct_fields__}
    stated = {name: part for name, part in parts.items() if part is not UNSET}
    encoded = msgspec.json.encode(stated)
    document: dict[str, Any] = decode_untyped(encoded)
    if b"null" in encoded:
        _check_no_null(document, "lock")
    return read(_drop_empty_lists(document), "lock")


def read(document: dict[str, Any], where: str) -> Lock:
    """Read a lock from its parsed content without ``id``; ``where`` names it in errors.

    Raises:
        InvalidInputError: The schema has a newer major version, or the content is invalid.
    """
    warnings = _check_schema(document.get("schema"), where)
    try:
        content = msgspec.convert(document, LockContent)
        for path in _paths(content):
            check_path(path.removesuffix("/"))
    except msgspec.ValidationError as error:
        raise InvalidInputError(f"{where} is not a lockfile: {error}", where=where, next_step=_LOCK_AGAIN) from error
    parts = {name: getattr(content, name) for name in LockContent.__struct_fields__}
    return Lock(**parts, id=lock_id(document), document=document, warnings=warnings)


def load(text: str, where: str) -> Lock:
    """Read a lock from the text of its file; ``where`` names it in errors.

    ``Lock.warnings`` warns of a newer minor schema version.

    Raises:
        InvalidInputError: The text is not TOML, the schema has a newer major version, or the content is invalid.
        IntegrityError: The ``id`` does not match the content.
    """
    try:
        document = toml.loads(text, MAX_VALUES)
    except ValueError as error:
        raise InvalidInputError(
            f"{where} is not a lockfile: invalid TOML: {error}", where=where, next_step=_NAME_LOCKFILE
        ) from error
    claimed = document.pop("id", None)
    _check_schema(document.get("schema"), where)
    if not isinstance(claimed, str):
        raise InvalidInputError(f"{where} has no id", where=where, next_step=_LOCK_AGAIN)
    actual = lock_id(document)
    if claimed != actual:
        raise IntegrityError(
            f"{where} was changed after it was locked: its id is {claimed}, its content has the id {actual}",
            where=where,
            next_step=_LOCK_AGAIN,
        )
    return read(document, where)


def dump(lock: Lock) -> str:
    """Return the text of a lock file. It depends only on the content, and ``load`` gives an equal lock."""
    return toml.dumps({"id": lock.id, **lock.document}, _ORDER, _ROWS)


def _check_schema(schema: Any, where: str) -> tuple[str, ...]:  # noqa: ANN401 - unchecked until here
    """Return warnings: a lock with a newer minor schema version is readable, but may contain unknown fields."""
    major, dot, minor = schema.partition(".") if isinstance(schema, str) else ("", "", "")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise InvalidInputError(f"{where} has no lockfile schema such as '1.0'", where=where, next_step=_LOCK_AGAIN)
    if int(major) != SCHEMA[0]:
        raise InvalidInputError(
            f"{where} has schema {schema}; only {SCHEMA[0]}.x is supported",
            where=where,
            next_step="use the version of benchlock that wrote it",
        )
    if int(minor) > SCHEMA[1]:
        return (
            f"{where} has schema {schema}, newer than {SCHEMA[0]}.{SCHEMA[1]}: new keys are preserved, but not used",
        )
    return ()


def _paths(content: LockContent) -> Iterator[str]:
    for artifact in (
        content.model,
        content.operator,
        content.recipe,
        content.dataset,
        content.framework,
        content.image,
    ):
        if artifact is not UNSET:
            yield from (file.path for file in artifact.files)
    for platform in content.image.platforms:
        yield from (file.path for file in (platform.wheels_lock, *platform.wheels) if file is not UNSET)


def _check_no_null(value: Any, where: str) -> None:  # noqa: ANN401 - any parsed value
    if value is None:
        raise InvalidInputError("null is not allowed in a lockfile", where=where, next_step="remove the key")
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        parts = ((f".{key}", part) for key, part in value.items())
    elif isinstance(value, list):
        parts = ((f"[{index}]", part) for index, part in enumerate(value))
    for suffix, part in parts:
        _check_no_null(part, f"{where}{suffix}")


def _drop_empty_lists(document: dict[str, Any]) -> dict[str, Any]:
    """Return the content without empty lists of files, and without wheels of finished images."""
    tables = {key: dict(part) if isinstance(part, dict) else part for key, part in document.items()}
    for part in tables.values():
        if isinstance(part, dict) and part.get("files") == []:
            del part["files"]
    for platform in tables["image"]["platforms"]:
        if "reference" in platform:
            del platform["wheels"]
    return tables


Sort = Literal["manifest", "file", "tree", "wheels lock", "wheel", "configuration", "layer", "harness"]


@dataclass(frozen=True, slots=True)
class BlobReference:
    """A blob that a lock references, with its ``name`` in messages.

    ``size`` is in bytes; it is ``None`` for manifests, whose size the lock does not contain. The digest of a ``tree``
    is that of its listing, which references further blobs, and its size is their total. ``platform`` is the only
    platform that needs the blob, or ``None`` if every run needs it.
    """

    sort: Sort
    name: str
    digest: Digest
    size: int | None
    platform: LockedPlatform | None = None


def title(kind: Kind, artifact: LockedArtifact) -> str:
    """Return the name of a locked artifact in messages, such as ``model/x@1.0.0``."""
    return f"{kind}/{artifact.name}@{artifact.version}"


def list_blob_references(lock: Lock) -> Iterator[BlobReference]:
    """Yield every blob that a lock references: manifests, files, environments of platforms, and the harness.

    A digest that occurs several times is yielded several times.
    """
    for kind, artifact in lock.artifacts().items():
        yield BlobReference("manifest", f"the manifest of {title(kind, artifact)}", artifact.digest, None)
        for file in artifact.files:
            sort: Sort = "tree" if file.path.endswith("/") else "file"
            yield BlobReference(sort, f"{title(kind, artifact)} {file.path}", from_hex(file.sha256), file.size)
    for platform in lock.image.platforms:
        yield from _environment(lock, platform)
    yield BlobReference("harness", f"harness {lock.harness.version}", lock.harness.digest, lock.harness.size)


def _environment(lock: Lock, platform: LockedPlatform) -> Iterator[BlobReference]:
    where = f"{title('image', lock.image)} ({platform})"
    listed = platform.wheels_lock
    if listed is not UNSET:
        yield BlobReference("wheels lock", f"{where} {listed.path}", from_hex(listed.sha256), listed.size, platform)
    for wheel in platform.wheels:
        yield BlobReference("wheel", f"{where} {wheel.path}", from_hex(wheel.sha256), wheel.size, platform)
    if platform.image_id is not UNSET:
        size = None if platform.config_size is UNSET else platform.config_size
        yield BlobReference("configuration", f"{where} configuration", platform.image_id, size, platform)
    for index, layer in enumerate(() if platform.layers is UNSET else platform.layers):
        yield BlobReference("layer", f"{where} layers[{index}] {layer.digest}", layer.digest, layer.size, platform)
