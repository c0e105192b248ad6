"""The kind of an operator: one vocabulary for the operators of all frameworks.

The type of the framework decides, but for three rules: a convolution whose groups are its channels is depthwise; a
fully connected layer that executes a convolution of the model file, as XNNPACK does with a filter of one point, is that
convolution; and where the runtime's type is unknown, the type in the model file decides.
"""

import re
from functools import lru_cache
from typing import Final

from benchlock.evaluator.analysis.trace_types import Row, RowTensor, Shape

KINDS: Final = (
    "conv",
    "depthwise_conv",
    "dense",
    "pool",
    "norm",
    "activation",
    "elementwise",
    "softmax",
    "layout",
    "copy",
    "constant",
    "other",
)
WEIGHT_FORMATS: Final = frozenset({"IO", "OI", "OIHW", "IOHW", "HWIO", "OHWI", "HWIM", "1HWO"})
"""Orders of the axes of weights: input and output channels, a depthwise convolution's multiplier, and the kernel."""
CONVOLUTIONS: Final = frozenset({"conv", "depthwise_conv"})
COMPUTING: Final = frozenset({"conv", "depthwise_conv", "dense"})

_TYPES: Final = {
    "conv": "conv conv1d conv2d conv3d convolution convinteger qlinearconv nhwcconv convtranspose transposeconv "
    "conv2dbackpropinput deconvolution mkldnnconvolution thnnconv2d slowconv2dforward slowconv2d",
    "depthwise_conv": "depthwiseconv2d depthwiseconv2dnative dwconv depthwiseconvolution convdepthwise2d",
    "dense": "gemm matmul fullyconnected batchmatmul batchmatmulv2 batchmatmulv3 addmm linear mm bmm innerproduct "
    "matmulinteger qlinearmatmul qgemm dynamicquantizematmul matmulintegertofloat transposematmul baddbmm",
    "pool": "averagepool averagepooling averagepool2d avgpool avgpool2d maxpool maxpool2d maxpooling globalaveragepool "
    "globalmaxpool mean reducemean adaptiveavgpool2d adaptiveavgpool1d qlinearaveragepool qlinearglobalaveragepool "
    "pooling maxpool2dwithindices globalaveragepooling reduction",
    "norm": "batchnorm batchnormalization batchnormv3 fusedbatchnormv3 layernorm layernormalization "
    "instancenormalization lrn groupnorm nativebatchnorm nativelayernorm simplifiedlayernormalization "
    "skiplayernormalization l2normalization",
    "activation": "relu relu6 relu0to1 leakyrelu clip clamp sigmoid tanh hardswish hardsigmoid elu selu gelu silu "
    "swish prelu hardtanh logistic softplus quickgelu fastgelu mish biasgelu eltwise",
    "elementwise": "add addv2 addn sub mul div realdiv pow sqrt rsqrt exp log neg abs square maximum minimum max min "
    "erf biasadd floor ceil round where greater less equal not and or cast quantize dequantize quantizelinear "
    "dequantizelinear dynamicquantizelinear qlinearadd qlinearmul qlinearsigmoid sum binary squareddifference convert "
    "elementwise",
    "softmax": "softmax logsoftmax",
    "layout": "transpose reorder reorderinput reorderoutput pad constantpad constantpadnd padv2 reshape staticreshape "
    "flatten squeeze unsqueeze expanddims expand permute view slice stridedslice staticslice concat concatv2 "
    "concatenation concatenate split gather gathernd statictranspose staticconstantpad pack stack unpack resize "
    "resizenearestneighbor resizebilinear upsample tile cat contiguous depthtospace spacetodepth shape t select "
    "narrow chunk unsafechunk shufflechannel",
    "copy": "copy copyto clone memcpy memcpytohost memcpyfromhost identity",
    "constant": "const constant constantofshape noop arg retval varhandleop readvariableop placeholder ones zeros "
    "empty fill source sink",
}
_KIND_OF: Final = {name: kind for kind, names in _TYPES.items() for name in names.split()}
_IDENTITY_IS_CONSTANT: Final = {"Identity", "IdentityN"}
"""Types of TensorFlow that pass a tensor on; the same name elsewhere copies one."""
_WRAPPERS: Final = re.compile(r"^(_?Mkl|Native|Quantized|XNNPACK|Fused|onednn|FusedNode)+", re.IGNORECASE)


def kind_of(row: Row) -> str:
    """Return the kind of a row, one of ``KINDS``."""
    kind = _kind_of_type(row.type)
    source = "other" if row.source_type is None else _kind_of_type(row.source_type)
    if kind == "other" or (kind == "dense" and source in CONVOLUTIONS):
        kind = source
    if kind == "dense" and _has_filter(row):
        kind = "conv"
    return "depthwise_conv" if kind == "conv" and _is_depthwise(row) else kind


@lru_cache(maxsize=4096)
def _kind_of_type(type_: str) -> str:
    if type_ in _IDENTITY_IS_CONSTANT:
        return "constant"
    plain = re.sub(r"\(.*?\)", "", type_.rpartition("::")[2])
    for text in (plain, _WRAPPERS.sub("", plain.lstrip("_"))):
        name = re.sub(r"[^a-z0-9]", "", text.lower())
        if name in _KIND_OF:
            return _KIND_OF[name]
    return "other"


def find_weights(row: Row) -> RowTensor | None:
    """Return the weights of an operator: the input of that role, else the second one."""
    marked = [tensor for tensor in row.inputs if tensor.role == "weight"]
    if marked:
        return marked[0]
    is_unmarked = all(tensor.role is None for tensor in row.inputs)
    return row.inputs[1] if is_unmarked and len(row.inputs) > 1 else None


def find_data(row: Row) -> RowTensor | None:
    """Return the data that an operator reads: the first input that is not of another role."""
    return next((tensor for tensor in row.inputs if tensor.role in (None, "data")), None)


def count_output_channels(weights: Shape, weight_format: str | None) -> int | None:
    """Return the number of output channels of weights; None if their axes are unknown or others."""
    if weight_format is None or len(weights) != len(weight_format):
        return None
    axes = dict(zip(weight_format, weights, strict=True))
    return axes["I"] * axes["M"] if "M" in axes else axes.get("O")


def _has_filter(row: Row) -> bool:
    """Return whether the weights of a fully connected layer have the four axes of a convolution."""
    weights = find_weights(row)
    four = len("OHWI")
    return weights is not None and weights.role == "weight" and len(weights.shape or ()) == four


def _is_depthwise(row: Row) -> bool:
    """Return whether each output channel of a convolution reads one of several input channels."""
    weights, data = find_weights(row), find_data(row)
    layout = row.attributes.get("weight_format")
    if weights is None or not weights.shape or not isinstance(layout, str) or len(layout) != len(weights.shape):
        return False
    axes = dict(zip(layout, weights.shape, strict=True))
    if "M" in axes:
        return axes["I"] > 1
    group = row.attributes.get("group")
    if isinstance(group, int) and group > 1 and axes.get("I") == 1:
        return True
    one_input = axes.get("I", axes.get("1")) == 1
    channels = data.shape[1 if layout == "OIHW" else -1] if data and data.shape else 1
    return one_input and channels > 1
