"""Deep500, level 3: what two processes of a data-parallel training send, and whether their bits are those of one."""

from collections.abc import Iterator

from benchmarks.claims.measured_runs import EXAMPLES, Laboratory, abbreviate
from benchmarks.claims.rows import Row, format_rows

_REQUEST = EXAMPLES / "training" / "requests" / "digits-distributed.yaml"


def measure(laboratory: Laboratory) -> Iterator[str]:
    """Yield the section."""
    laboratory.publish(EXAMPLES / "digits" / "dataset.yaml", EXAMPLES / "training" / "recipe.yaml")
    run = laboratory.run(_REQUEST)
    sent, logical, difference, speedup = (
        float(run.metric(name)["value"])
        for name in ("communication", "communication_logical", "loss_difference", "speedup")
    )
    verdict = laboratory.commands.call("rerun", run.file, "--against", run.id, "--isolation", "process", "--allow-code")
    yield from format_rows(
        (
            Row(
                "Deep500 L3: the communication volume of a process",
                f"each of 2 processes sends {sent:.0f} B a step, {sent / logical:.3f} of {logical:.0f} B of gradients",
                "partly",
                "the method, for all-reduce alone: counted by the kernel for the sockets of a process; all-reduce by n "
                "processes sends 2(n-1)/n of the gradients; barriers and headers are the rest",
                abbreviate(run),
            ),
            Row(
                "Deep500 L3: a distributed optimizer computes what one process does",
                f"largest difference of the losses of 60 steps: {difference:g}; rerun: {verdict.document['verdict']}",
                "yes" if difference == 0 else "partly",
                "compared with one process that adds the gradients of both halves of each batch: the sum of two has "
                "one order; a training on whole batches rounds differently",
                abbreviate(run),
            ),
            Row(
                "Deep500 L3: speed of distributed steps",
                f"speedup {speedup:.2f} with 2 processes of one thread",
                "partly",
                "the method: small steps on two CPUs of one host say nothing about a cluster",
                abbreviate(run),
            ),
        )
    )
