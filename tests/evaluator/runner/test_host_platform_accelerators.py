"""What nvidia-smi says of the accelerators here, and what is said where it cannot."""

from pathlib import Path

import pytest

from benchlock.evaluator.runner.host_platform import read_accelerators, this_host
from benchlock.registry.requests.hardware_requirements import Accelerator
from tests.support.system.nvidia_smi import A100, H200, NO_DRIVER, install

MIB = 1 << 20


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([H200], (Accelerator("NVIDIA H200 NVL", 143771 * MIB, "550.54.15"),)),
        ([A100, A100], (Accelerator("NVIDIA A100-SXM4-40GB", 40960 * MIB, "535.104.05"),) * 2),
        (["NVIDIA GB10, [N/A], 580.95"], (Accelerator("NVIDIA GB10", None, "580.95"),)),
        (["An odd, name, 1024, 1.2.3", ""], (Accelerator("An odd, name", 1024 * MIB, "1.2.3"),)),
    ],
)
def test_each_line_is_an_accelerator(
    lines: list[str], found: tuple[Accelerator, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", install(tmp_path, lines))
    answer = read_accelerators()
    assert (answer.accelerators, answer.reason) == (found, "")


@pytest.mark.parametrize(
    ("lines", "ends", "reason"),
    [
        ([NO_DRIVER], 9, "nvidia-smi exited with code 9: NVIDIA-SMI has failed because it couldn't communicate"),
        (["No devices were found"], 6, "nvidia-smi exited with code 6: No devices were found"),
        ([], 3, "nvidia-smi exited with code 3: no output"),
        ([], 0, "nvidia-smi lists no GPU"),
        (["NVIDIA H200, 143771"], 0, "unexpected output of nvidia-smi: NVIDIA H200, 143771"),
        (["NVIDIA H200, 143771, "], 0, "unexpected output of nvidia-smi"),
    ],
)
def test_none_has_a_reason(
    lines: list[str], ends: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", install(tmp_path, lines, ends=ends))
    answer = read_accelerators()
    assert answer.accelerators == ()
    assert answer.reason.startswith(reason)


def test_a_tool_that_is_absent_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_accelerators().reason == "nvidia-smi not found"


def test_a_tool_that_does_not_answer_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", install(tmp_path, [H200], hangs=True))
    assert read_accelerators(0.2).reason == "nvidia-smi did not answer within 0.2 s"


def test_a_tool_that_does_not_start_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", install(tmp_path))
    (tmp_path / "nvidia-smi").write_text("#!/no/such/shell\n")
    assert read_accelerators().reason == "cannot start nvidia-smi: No such file or directory"


def test_the_fingerprint_names_each_accelerator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", install(tmp_path, [H200, H200]))
    host = this_host()
    facts = host.fingerprint(None)
    assert (facts["accelerator"], facts["driver"]) == ("NVIDIA H200 NVL; NVIDIA H200 NVL", "550.54.15")
    assert facts["accelerator_memory"] == [143771 * MIB] * 2
    assert facts["no_accelerator"] is None
    assert [str(one) for one in host.facts.accelerators] == ["NVIDIA H200 NVL (140.4GiB)"] * 2


def test_the_fingerprint_says_why_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    facts = this_host().fingerprint(None)
    assert (facts["accelerator"], facts["accelerator_memory"], facts["driver"]) == (None, [], None)
    assert facts["no_accelerator"] == "nvidia-smi not found"
