"""oneDNN's lines as rows of kernels; the lines are those of TensorFlow's ResNet-8 and PyTorch's MobileNet."""

import os
import subprocess
import sys
from collections import Counter
from itertools import chain

import pytest

from benchlock.evaluator.harness.tracing.onednn import VARIABLES, convert, read_problem

CONV = (
    "convolution,brg_conv_fwd:avx512_core,forward_training,src:f32::blocked:acdb::f0 wei:f32:a:blocked:Acdb16a::f0 "
    "bia:f32:a:blocked:a::f0 dst:f32::blocked:acdb::f0,attr-scratchpad:user,alg:convolution_direct,"
    "mb1_ic3oc16_ih32oh32kh3sh1dh0ph1_iw32ow32kw3sw1dw0pw1"
)
DEPTHWISE = (
    "convolution,jit_dw:avx512_core,forward_training,src:f32::blocked:aBcd16b::f0 wei:f32:a:blocked:Abcde16a::f0 "
    "bia:f32:a:blocked:a::f0 dst:f32::blocked:aBcd16b::f0,attr-scratchpad:user,alg:convolution_direct,"
    "g16mb1_ic16oc16_ih112oh56kh3sh2dh0ph0_iw112ow56kw3sw2dw0pw0"
)
REORDER = "reorder,jit:blk,undef,src:f32::blocked:abcd::f0 dst:f32::blocked:aBcd16b::f0,,,1x16x112x112"
DENSE = (
    "inner_product,brgemm:avx512_core,forward_inference,src:f32::blocked:ab::f0 wei:f32:ap:blocked:AB16b16a::f0 "
    "dst:f32::blocked:ab::f0,attr-scratchpad:user,,mb1ic64oc10"
)
OFFSET = 1_795_463_000_000_000_000


def output(*lines: str, start: float = 982_964.0) -> bytes:
    """What oneDNN writes in a call, beside a line of somebody else and one that is no execution."""
    written = [
        f"onednn_verbose,v1,1795463{start + number:013.6f},primitive,exec,cpu,{line},0.0939941"
        for number, line in enumerate(lines)
    ]
    other = ["onednn_verbose,v1,info,cpu,runtime:threadpool,nthr:1", "loss, accuracy"]
    return "".join(f"{line}\n" for line in chain(other, written)).encode()


def test_a_primitive_is_a_row_with_its_time_and_shapes() -> None:
    profile = convert([output(REORDER, CONV, DENSE), output(REORDER, CONV, DENSE, start=982_970.25)])
    assert [(row.level, row.type, row.variant, row.provider) for row in profile.rows] == [
        ("kernel", "reorder", "jit:blk", "oneDNN"),
        ("kernel", "convolution", "brg_conv_fwd:avx512_core", "oneDNN"),
        ("kernel", "inner_product", "brgemm:avx512_core", "oneDNN"),
    ]
    conv = profile.rows[1]
    assert [(tensor.shape, tensor.dtype, tensor.role) for tensor in conv.inputs] == [
        ((1, 3, 32, 32), "float32", "data"),
        ((16, 3, 3, 3), "float32", "weight"),
    ]
    assert [(tensor.shape, tensor.dtype) for tensor in conv.outputs] == [((1, 16, 32, 32), "float32")]
    assert (conv.attributes["algorithm"], conv.attributes["weight_format"]) == ("convolution_direct", "OIHW")
    assert profile.durations.tolist() == [[93_994] * 3] * 2
    assert profile.starts[0].tolist() == [
        OFFSET + milliseconds * 1_000_000 for milliseconds in (982_964, 982_965, 982_966)
    ]
    assert profile.starts[1, 0] == OFFSET + 982_970_250_000
    assert profile.incomplete is None


def test_a_depthwise_convolution_has_its_groups() -> None:
    (row,) = convert([output(DEPTHWISE)]).rows
    assert (row.attributes["group"], row.inputs[1].shape, row.outputs[0].shape) == (16, (16, 1, 3, 3), (1, 16, 56, 56))


@pytest.mark.parametrize(
    ("text", "inputs", "result", "form"),
    [
        ("1x64:64x10", [(1, 64), (64, 10)], (1, 10), "IO"),
        ("1x16x8x8:1x16x8x8", [(1, 16, 8, 8)] * 2, (1, 16, 8, 8), None),
        ("mb1ic64_ih8oh1kh8sh8dh0ph0_iw8ow1kw8sw8dw0pw0", [(1, 64, 8, 8)], (1, 64, 1, 1), None),
        ("mb2ic64oc10", [(2, 64), (10, 64)], (2, 10), "OI"),
        ("", [], None, None),
        ("t5mb1", [], None, None),
    ],
)
def test_problems_give_shapes(
    text: str, inputs: list[tuple[int, ...]], result: tuple[int, ...] | None, form: str | None
) -> None:
    shapes, after, attributes = read_problem(text)
    assert (shapes, after, attributes.get("weight_format")) == (inputs, result, form)


def test_calls_with_other_primitives_make_the_profile_incomplete() -> None:
    profile = convert([output(CONV, DENSE), output(CONV, DENSE), output(CONV)])
    assert profile.incomplete == "1 of 3 calls have other rows; rows per call: [1, 2]"
    assert profile.durations[2].tolist() == [-1, -1]


def test_a_model_without_onednn_has_no_rows_and_a_note() -> None:
    profile = convert([output(), output()])
    assert (profile.rows, profile.starts.shape, profile.durations.shape) == ([], (2, 0), (2, 0))
    assert profile.notes == ("oneDNN executed no primitive: the model's kernels are those of another library",)


PROFILED = """
import os
from benchlock.evaluator.harness.tracing import onednn

class Predictor:
    in_caller, device, threads = True, "cpu", {{}}
    def predict(self, batch):
        os.write(1, {line!r})
        return batch
    def close(self):
        pass

profiler = onednn.Profiler(Predictor())
profiler.predict({{}})
profiler.start()
for _ in range(3):
    profiler.predict({{}})
profile = profiler.finish()
print(profile.durations.shape, profile.incomplete)
"""


def test_the_output_of_each_call_is_caught_and_standard_output_restored() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROFILED.format(line=output(CONV, DENSE))],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **VARIABLES},
    )
    assert done.stdout == "(3, 2) None\n"


def test_rows_count_primitives() -> None:
    profile = convert([output(*[REORDER] * 3, *[DEPTHWISE] * 2, CONV)])
    counts = Counter((row.type, row.variant) for row in profile.rows)
    assert counts[("convolution", "jit_dw:avx512_core")] == 2
    assert counts[("reorder", "jit:blk")] == 3
