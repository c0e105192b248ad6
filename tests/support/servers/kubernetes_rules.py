"""The rules of the API server for the fields of Jobs that the launcher sends, beyond the published schemas.

``tests/conformance/test_kubernetes_api.py`` compares them with those of a real server.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from benchlock.evaluator.launchers.pod_manifests import read_quantity

Document = Mapping[str, Any]
NAMED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_LABEL: Final = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_NAME: Final = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_KEY: Final = f"({_SUBDOMAIN}/)?{_NAME}"
_QUANTITY: Final = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?"
_MOST_ANNOTATIONS: Final = 256 << 10
_LONGEST_NAME: Final = 63
"""Of a Job, because it is the value of a label of its pods."""


def find_malformation(job: Document, namespace: str) -> str:
    """Why a document cannot be read as a Job of a namespace; empty if it can."""
    if (job.get("apiVersion"), job.get("kind")) != ("batch/v1", "Job"):
        return f"{job.get('kind')} in version {job.get('apiVersion')} cannot be handled as a Job"
    if job.get("metadata", {}).get("namespace", namespace) != namespace:
        return "the namespace of the provided object does not match the namespace sent on the request"
    wrong = [text for _, text in _quantities(job) if not re.fullmatch(_QUANTITY, text)]
    return f"quantities must match the regular expression: {wrong}" if wrong else ""


def find_problems(job: Document) -> Iterator[str]:
    """What is invalid in a Job that the schema admits."""
    metadata, template = job["metadata"], job["spec"]["template"]
    yield from _match("metadata.name", _SUBDOMAIN, [metadata.get("name", "")])
    if len(metadata.get("name", "")) > _LONGEST_NAME:
        yield "spec.template.labels: must be no more than 63 characters"
    yield from _check_labels("metadata.labels", metadata.get("labels", {}))
    yield from _check_labels("spec.template.labels", template["metadata"].get("labels", {}))
    annotations = metadata.get("annotations", {})
    yield from _match("metadata.annotations", _KEY, annotations)
    if sum(map(len, [*annotations, *annotations.values()])) > _MOST_ANNOTATIONS:
        yield "metadata.annotations: Too long: must have at most 262144 bytes"
    if "selector" in job["spec"]:
        yield "spec.selector: `selector` not auto-generated"
    counts = {name: job["spec"].get(name, 0) for name in ("backoffLimit", "ttlSecondsAfterFinished")}
    yield from (f"spec.{name}: must be greater than or equal to 0" for name, count in counts.items() if count < 0)
    yield from _check_pod(template["spec"])


def _check_pod(spec: Document) -> Iterator[str]:
    if spec.get("restartPolicy") not in ("Never", "OnFailure"):
        yield 'restartPolicy: Required value: valid values: "OnFailure", "Never"'
    if not spec["containers"]:
        yield "containers: Required value"
    yield from _check_labels("nodeSelector", spec.get("nodeSelector", {}))
    tolerations = spec.get("tolerations", ())
    yield from _match("tolerations", _KEY, [one["key"] for one in tolerations if one.get("key")])
    if any(one.get("operator") == "Exists" and one.get("value") for one in tolerations):
        yield "tolerations: value must be empty when `operator` is 'Exists'"
    context = spec.get("securityContext", {})
    if context.get("runAsUser", 0) < 0:
        yield "securityContext.runAsUser: must be between 0 and 2147483647, inclusive"
    if context.get("seccompProfile", {}).get("type", "Unconfined") not in ("Localhost", "RuntimeDefault", "Unconfined"):
        yield "securityContext.seccompProfile.type: Unsupported value"
    yield from _check_affinity(spec.get("affinity", {}).get("nodeAffinity", {}))
    yield from _check_volumes(spec.get("volumes", ()))
    for one in spec["containers"]:
        yield from _check_container(one, [volume["name"] for volume in spec.get("volumes", ())])


def _check_affinity(affinity: Document) -> Iterator[str]:
    for one in (
        field for term in affinity.get(NAMED, {}).get("nodeSelectorTerms", ()) for field in term["matchFields"]
    ):
        if one["key"] != "metadata.name" or one["operator"] not in ("In", "NotIn") or len(one["values"]) != 1:
            yield "matchFields: not one node name with In or NotIn"


def _check_volumes(volumes: Sequence[Document]) -> Iterator[str]:
    yield from _match("volumes", _LABEL, [one["name"] for one in volumes])
    yield from _unique("volumes", [one["name"] for one in volumes])
    for secret in (one["secret"] for one in volumes if "secret" in one):
        if not secret.get("secretName"):
            yield "secretName: Required value"
        if not 0 <= secret.get("defaultMode", 0) <= 0o777:
            yield "defaultMode: must be a number between 0 and 0777"


def _check_container(container: Document, volumes: Iterable[str]) -> Iterator[str]:
    yield from _match("containers.name", _LABEL, [container["name"]])
    if not container.get("image"):
        yield "image: Required value"
    if container.get("terminationMessagePolicy", "File") not in ("File", "FallbackToLogsOnError"):
        yield "terminationMessagePolicy: must be 'File' or 'FallbackToLogsOnError'"
    yield from _match("env", "[-._a-zA-Z][-._a-zA-Z0-9]*", [one["name"] for one in container.get("env", ())])
    mounts = container.get("volumeMounts", ())
    yield from _unique("mountPath", [one["mountPath"] for one in mounts])
    yield from (f"volumeMounts: Not found: {one['name']}" for one in mounts if one["name"] not in volumes)
    requests, limits = (container.get("resources", {}).get(name, {}) for name in ("requests", "limits"))
    for name, text in (*requests.items(), *limits.items()):
        if text.startswith("-") or ("/" in name and read_quantity(text).denominator != 1):
            yield f"resources: {name}: Invalid value: {text}"
    for name, text in requests.items():
        if "/" in name and limits.get(name) != text:
            yield f"resources: {name}: limit must be set for non overcommitable resources"
        elif name in limits and read_quantity(text) > read_quantity(limits[name]):
            yield f"resources: {name}: must be less than or equal to limit"


def _check_labels(where: str, labels: Mapping[str, str]) -> Iterator[str]:
    yield from _match(where, _KEY, labels)
    yield from _match(where, f"({_NAME})?", labels.values())


def _match(where: str, pattern: str, texts: Iterable[str]) -> Iterator[str]:
    yield from (f"{where}: Invalid value: {one[:80]!r}" for one in texts if not re.fullmatch(pattern, one))


def _unique(where: str, texts: Iterable[str]) -> Iterator[str]:
    yield from (f"{where}: Duplicate value: {one!r}" for one, count in Counter(texts).items() if count > 1)


def _quantities(job: Document) -> Iterator[tuple[str, str]]:
    for container in job.get("spec", {}).get("template", {}).get("spec", {}).get("containers", ()):
        for amounts in container.get("resources", {}).values():
            yield from amounts.items()


def check_selector(selector: str) -> str:
    """Why a label selector is refused; empty if it is not."""
    for part in filter(None, selector.split(",")):
        key, _, value = part.partition("=")
        if not re.fullmatch(_KEY, key) or not re.fullmatch(f"({_NAME})?", value):
            return f"unable to parse requirement: {part[:80]!r}"
    return ""
