"""Base class and checked scalar types of manifest fields, with their JSON Schema descriptions.

An optional key that is absent is ``UNSET``: it stays absent in the content, and an explicit value stays too.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from benchlock.registry.artifact_names import LONGEST_TAG, NAME, TAG


class Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, repr_omit_defaults=True):
    """A mapping of a manifest: immutable, and without unknown keys."""


NameText = Annotated[str, Meta(extra_json_schema={"pattern": NAME})]
VersionText = Annotated[str, Meta(description="a SemVer 2.0.0 version")]
ConstraintText = Annotated[str, Meta(description="a set of versions, such as '>=1.20 <2'")]
PathText = Annotated[str, Meta(description="a path of `files`, or inside a tree of `files`; a tree ends in /")]
HexText = Annotated[str, Meta(description="SHA-256 as 64 hex digits", extra_json_schema={"pattern": "^[0-9a-f]{64}$"})]
DigestText = Annotated[str, Meta(extra_json_schema={"pattern": "^sha256:[0-9a-f]{64}$"})]
TagText = Annotated[str, Meta(extra_json_schema={"pattern": TAG, "maxLength": LONGEST_TAG})]
MAX_TAGS = 16
"""Maximum number of tags of a manifest."""
MAX_FILES = 10_000
"""Maximum number of files and trees of a manifest."""
MAX_PORTS = 256
"""Maximum number of inputs, of outputs, and of claims of a model."""
MAX_STEPS = 64
"""Maximum number of steps of one input or output."""
MAX_AXES = 32
"""Maximum number of axes of a tensor."""
MAX_CHANNELS = 4096
"""Maximum number of values of one step, one per channel."""
MAX_SPLITS = 64
"""Maximum number of splits of a dataset, and of fields of a split."""
MAX_CASES = 128
"""Maximum number of cases of an operator."""
MAX_SETTINGS = 16
"""Maximum number of settings of a custom optimizer."""
MAX_ELEMENTS = 1 << 26
"""Maximum number of elements of one tensor of a case."""
MAX_PLATFORMS = 64
"""Maximum number of platforms of an image, and of distributions of a framework."""
MAX_LAYERS = 512
"""Maximum number of layers of an image for one platform."""

Text = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=1)]
Whole = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Fraction = Annotated[float, Meta(gt=0, le=1)]

FloatType = Literal["float16", "float32", "float64"]
IntegerType = Literal["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DType = Literal[
    "bool",
    "float16", "float32", "float64",
    "int8", "int16", "int32", "int64",
    "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip
Layout = Literal["NHWC", "NCHW"]
