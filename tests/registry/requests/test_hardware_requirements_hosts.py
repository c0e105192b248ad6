"""What a host lacks of what a request asks, in words."""

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.requests.hardware_requirements import (
    Accelerator,
    AcceleratorCondition,
    HostConditions,
    HostFacts,
    driver_version,
    explain_unfit_platform,
    list_unmet_conditions,
    parse_drivers,
    select_accelerators,
    split_name,
)
from benchlock.registry.text.quantities import Amount

GIB = 1 << 30
ABSENT = "nvidia-smi is not there"
A100 = Accelerator("NVIDIA A100-SXM4-40GB", 40 * GIB, "535.104.05")
H200 = Accelerator("NVIDIA H200 NVL", 143771 << 20, "550.54.15")
UNSAID = Accelerator("NVIDIA GB10", None, "580.95")
NO_DRIVER = Accelerator("NVIDIA GB10", None, "[N/A]")
OLD = Accelerator("NVIDIA T4", 15 * GIB, "525.60.12")
ANYTHING = HostConditions()
GB40 = Amount.parse("40GB")
MORE = "of 40GB or more"


def host(*accelerators: Accelerator) -> HostFacts:
    return HostFacts("linux", "amd64", 2, int(23.46 * GIB), accelerators, "" if accelerators else ABSENT)


@pytest.mark.parametrize(
    ("conditions", "lacking"),
    [
        (ANYTHING, ()),
        (HostConditions(cpus=2, memory=Amount.parse("23GiB")), ()),
        (HostConditions(cpus=8), ("requires 8 CPUs; this host has 2",)),
        (HostConditions(memory=Amount.parse("64GiB")), ("requires 64GiB of memory; this host has 23.4GiB",)),
        (
            HostConditions(cpus=3, memory=Amount.parse("1TB")),
            ("requires 3 CPUs; this host has 2", "requires 1TB of memory; this host has 23.4GiB"),
        ),
        (HostConditions(accelerator=AcceleratorCondition("H200", count=8)), ()),
    ],
)
def test_cpus_and_memory_are_least_amounts_for_every_device(conditions: HostConditions, lacking: tuple[str]) -> None:
    """An accelerator is asked of platforms whose device is one."""
    assert list_unmet_conditions(conditions, "cpu", host()) == lacking
    assert list_unmet_conditions(conditions, "cpu", host(H200)) == lacking


@pytest.mark.parametrize(
    ("device", "accelerators", "lacking"),
    [
        ("cpu", (), ()),
        ("cuda", (H200,), ()),
        ("cuda12", (A100,), ()),
        ("cuda12", (), (f"needs an NVIDIA accelerator; none found ({ABSENT})",)),
        ("cuda12", (OLD,), ("needs NVIDIA's driver 525.60.13 or newer; this host has 525.60.12",)),
        ("cuda12", (H200, OLD), ("needs NVIDIA's driver 525.60.13 or newer; this host has 550.54.15, 525.60.12",)),
        ("cuda12", (Accelerator("NVIDIA T4", 15 * GIB, "525.60.13"),), ()),
        ("cuda11", (OLD,), ()),
        ("rocm6", (H200,), ("the device rocm6 cannot be detected on a host",)),
        ("CPU", (), ("the device CPU cannot be detected on a host",)),
    ],
)
def test_a_device_needs_its_accelerator(
    device: str, accelerators: tuple[Accelerator, ...], lacking: tuple[str, ...]
) -> None:
    assert list_unmet_conditions(ANYTHING, device, host(*accelerators)) == lacking


@pytest.mark.parametrize(
    ("condition", "accelerators", "lacking"),
    [
        (AcceleratorCondition("H200"), (H200,), ()),
        (AcceleratorCondition("h200 nvidia"), (H200,), ()),
        (AcceleratorCondition("A100"), (A100,), ()),
        (AcceleratorCondition("A100 40GB"), (H200, A100), ()),
        (AcceleratorCondition("A10"), (A100,), (f"requires an accelerator named A10; this host has {A100}",)),
        (AcceleratorCondition(count=2), (H200, A100), ()),
        (AcceleratorCondition(count=3), (A100, A100), (f"requires 3 accelerators; this host has 2 x {A100}",)),
        (AcceleratorCondition("A100", 2), (A100, A100), ()),
        (
            AcceleratorCondition("A100", 2),
            (H200, A100),
            (f"requires 2 accelerators named A100; this host has {H200}, {A100}",),
        ),
        (AcceleratorCondition(memory=GB40), (A100,), ()),
        (AcceleratorCondition(memory=GB40), (UNSAID,), (f"requires an accelerator {MORE}; this host has {UNSAID}",)),
        (AcceleratorCondition(count=2, memory=GB40), (A100, H200), ()),
        (
            AcceleratorCondition(count=3, memory=GB40),
            (A100, A100),
            (f"requires 3 accelerators {MORE}; this host has 2 x {A100}",),
        ),
        (AcceleratorCondition(driver=parse_drivers(">=535.104.05 <536")), (A100,), ()),
        (
            AcceleratorCondition(driver=parse_drivers(">=550")),
            (A100, A100),
            ("requires the driver >=550; this host has 535.104.05",),
        ),
        (
            AcceleratorCondition(driver=parse_drivers("*")),
            (NO_DRIVER,),
            (
                "needs NVIDIA's driver 525.60.13 or newer; this host has [N/A]",
                "requires the driver *; this host has [N/A]",
            ),
        ),
        (
            AcceleratorCondition("H100", driver=parse_drivers("^560")),
            (H200,),
            (
                f"requires an accelerator named H100; this host has {H200}",
                "requires the driver ^560; this host has 550.54.15",
            ),
        ),
        (
            AcceleratorCondition("H100", driver=parse_drivers("^560")),
            (),
            (f"needs an NVIDIA accelerator; none found ({ABSENT})",),
        ),
    ],
)
def test_what_is_asked_of_accelerators(
    condition: AcceleratorCondition, accelerators: tuple[Accelerator, ...], lacking: tuple[str, ...]
) -> None:
    assert list_unmet_conditions(HostConditions(accelerator=condition), "cuda12", host(*accelerators)) == lacking


def test_a_platform_of_another_host_has_that_one_reason() -> None:
    asked = HostConditions(cpus=8, accelerator=AcceleratorCondition("H200"))
    assert explain_unfit_platform(("linux", "arm64", "cuda12"), asked, host()) == ("this host is linux/amd64",)
    assert explain_unfit_platform(("darwin", "amd64", "cpu"), ANYTHING, host()) == ("this host is linux/amd64",)
    assert explain_unfit_platform(("linux", "amd64", "cpu"), ANYTHING, host()) == ()
    assert len(explain_unfit_platform(("linux", "amd64", "cuda12"), asked, host())) == 2


@pytest.mark.parametrize(
    ("device", "condition", "given"),
    [
        ("cpu", AcceleratorCondition("H200"), ()),
        ("cuda12", None, (0,)),
        ("cuda12", AcceleratorCondition("H200"), (1,)),
        ("cuda12", AcceleratorCondition(count=2, memory=GB40), (1, 2)),
    ],
)
def test_a_run_gets_the_first_accelerators_that_will_do(
    device: str, condition: AcceleratorCondition | None, given: tuple[int, ...]
) -> None:
    assert select_accelerators(device, HostConditions(accelerator=condition), host(UNSAID, H200, A100, H200)) == given


def test_an_accelerator_is_named_with_its_memory() -> None:
    shown = [str(one) for one in (A100, H200, UNSAID)]
    assert shown == [
        "NVIDIA A100-SXM4-40GB (40GiB)",
        "NVIDIA H200 NVL (140.4GiB)",
        "NVIDIA GB10 (unknown memory)",
    ]


def test_words_are_letters_and_digits_without_case() -> None:
    assert split_name("NVIDIA A100-SXM4-40GB") == {"nvidia", "a100", "sxm4", "40gb"}
    assert split_name(" - _") == frozenset()


@pytest.mark.parametrize(
    ("text", "version"),
    [("535.104.05", "535.104.5"), ("550.54", "550.54.0"), ("550", "550.0.0"), ("390.07.00", "390.7.0")],
)
def test_a_driver_is_a_version(text: str, version: str) -> None:
    assert str(driver_version(text)) == version


@pytest.mark.parametrize("text", ["", "[N/A]", "535.104.05.1", "535.", "535-rc1", "v535.1", "\u0665.1"])
def test_what_is_no_driver(text: str) -> None:
    with pytest.raises(InvalidInputError, match="invalid driver version"):
        driver_version(text)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        (">=535.104.05", "535.104.05", "535.104.04"),
        ("535.104.05", "535.104.05", "535.104.50"),
        ("~535.04", "535.4.9", "535.40.1"),
        (">=470.0 <=550.54.010", "550.54.10", "550.54.11"),
        (">=0.10 || 20.00.x", "0.10.0", "0.9"),
    ],
)
def test_drivers_are_a_set_of_versions_with_leading_zeros(text: str, inside: str, outside: str) -> None:
    assert parse_drivers(text).admits(driver_version(inside))
    assert not parse_drivers(text).admits(driver_version(outside))


def test_a_bare_partial_driver_is_refused_as_everywhere() -> None:
    with pytest.raises(InvalidInputError, match="'535' is a partial version"):
        parse_drivers("535")
