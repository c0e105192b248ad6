"""Real commands at the same time on one registry: each gets the right answer, as an exit code and in words."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.api.commands import Answer, Commands
from tests.support.api.warm import Warm
from tests.support.registry.digits import written
from tests.support.registry.tiny import tree_of_digits

ROUNDS = 2


def at_once(commands: Commands, *calls: tuple[str | Path, ...]) -> list[Answer]:
    """The answers to commands that were started together, in their order."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(lambda words: commands.call(*words), calls))


def test_commands_that_make_the_registry_at_once(tmp_path: Path) -> None:
    for round_ in range(ROUNDS):
        commands = Commands(tmp_path / str(round_))
        answers = at_once(commands, *[("db", "create")] * 4)
        assert [answer.code for answer in answers] == [0] * 4, answers
        assert sorted(answer.stderr for answer in answers) == [
            "",
            "",
            "",
            f"created the registry in {commands.registry}\n",
        ]
        assert Warm(commands.registry).done("list") == {"artifacts": []}


def test_two_publish_the_same(tmp_path: Path) -> None:
    manifest = written(tmp_path / "digits.yaml", tree_of_digits("digits"))
    for round_ in range(ROUNDS):
        commands = Commands(tmp_path / str(round_))
        answers = at_once(commands, *[("publish", manifest)] * 2)
        assert [answer.code for answer in answers] == [0, 0], answers
        assert sorted(answer.document["published"][0]["changed"] for answer in answers) == [False, True]
        assert Warm(commands.registry).done("verify")["damaged"] == []


def test_two_publish_one_version_with_other_content(tmp_path: Path) -> None:
    manifests = [written(tmp_path / f"{licence}.yaml", tree_of_digits("digits")) for licence in ("MIT", "ISC")]
    for manifest in manifests:
        manifest.write_text(manifest.read_text().replace("CC-BY-4.0", manifest.stem))
    for round_ in range(ROUNDS):
        commands = Commands(tmp_path / str(round_))
        answers = at_once(commands, *[("publish", manifest) for manifest in manifests])
        won, lost = sorted(answers, key=lambda answer: answer.code)
        assert (won.code, lost.code) == (0, 2), answers
        error = lost.document["error"]
        (published,) = won.document["published"]
        assert error["message"].startswith(
            "dataset/digits@1.0.0 is already published with different content: " + published["digest"]
        )
        assert error["next"] == "publish the new content under a new version"
        alone = Warm(commands.registry)
        assert alone.done("list")["artifacts"][0]["digest"] == published["digest"]
        alone.done("gc")
        assert alone.done("verify")["damaged"] == []
