import pytest

from benchlock.artifacts.errors import InvalidInputError, UnknownNameError
from benchlock.evaluator.images.frameworks import FRAMEWORKS, choose_framework, parse_requirement


@pytest.mark.parametrize(
    ("spec", "framework", "requirement"),
    [
        ("onnxruntime==1.31.1", "onnxruntime", "onnxruntime==1.31.1"),
        ("litert==2.3.0", "litert", "ai-edge-litert==2.3.0"),
        ("pytorch==2.13.0", "pytorch", "torch==2.13.0"),
        ("tensorflow==2.21.0rc1", "tensorflow", "tensorflow-cpu==2.21.0rc1"),
    ],
)
def test_a_framework_is_installed_as_its_distribution_for_the_device(
    spec: str, framework: str, requirement: str
) -> None:
    chosen = choose_framework(spec, "cpu")
    assert (chosen.framework.name, chosen.requirement) == (framework, requirement)
    assert chosen.distribution in chosen.framework.distributions


def test_an_unknown_framework_is_named_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError) as raised:
        choose_framework("jax==0.4.0", "cpu")
    assert "jax" in str(raised.value)
    assert all(name in str(raised.value) for name in FRAMEWORKS)


@pytest.mark.parametrize(
    ("spec", "requirement", "is_pinned"),
    [
        ("litert", "ai-edge-litert", False),
        ("litert<2.3", "ai-edge-litert<2.3", False),
        ("litert==2.*", "ai-edge-litert==2.*", False),
        ("litert==2.3.0", "ai-edge-litert==2.3.0", True),
    ],
)
def test_without_a_pinned_version_any_release_may_be_chosen(spec: str, requirement: str, is_pinned: bool) -> None:
    choice = choose_framework(spec, "cpu")
    assert (choice.requirement, choice.is_pinned) == (requirement, is_pinned)


@pytest.mark.parametrize("spec", ["onnxruntime[x]==1", "onnxruntime; python_version>'3'", "", "-r file", "=="])
def test_what_is_no_framework_is_refused(spec: str) -> None:
    with pytest.raises(InvalidInputError):
        choose_framework(spec, "cpu")


@pytest.mark.parametrize(
    ("spec", "distribution", "requirement"),
    [
        ("onnxruntime==1.31.1", "onnxruntime-gpu", "onnxruntime-gpu[cuda,cudnn]==1.31.1"),
        ("pytorch==2.13.0", "torch", "torch==2.13.0"),
        ("tensorflow==2.21.0", "tensorflow", "tensorflow[and-cuda]==2.21.0"),
    ],
)
def test_an_accelerator_has_a_distribution_of_its_own(spec: str, distribution: str, requirement: str) -> None:
    chosen = choose_framework(spec, "cuda12")
    assert (chosen.distribution, chosen.requirement) == (distribution, requirement)
    assert distribution in chosen.framework.distributions


@pytest.mark.parametrize(("spec", "device"), [("onnxruntime==1.31.1", "cuda"), ("litert==2.3.0", "cuda12")])
def test_another_device_is_refused(spec: str, device: str) -> None:
    with pytest.raises(InvalidInputError, match="not supported yet"):
        choose_framework(spec, device)


def test_a_direct_reference_is_no_requirement() -> None:
    with pytest.raises(InvalidInputError, match="has a URL"):
        parse_requirement("numpy @ file:///numpy-2.0-py3-none-any.whl")
