"""What the schemas of Kubernetes let pass: each rule is a generator of sentences over the objects of one set."""

import re

QUANTITY = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(m|[kMGTPE]|[KMGTPE]i|[eE][-+]?\d+)?")
RESTARTS = {"Job": {"Never", "OnFailure"}, "Deployment": {"Always"}, "StatefulSet": {"Always"}}


def pods(objects):
    """Yield what starts pods, with its kind's name and its pods' template."""
    for each in objects:
        if each["kind"] in RESTARTS:
            yield each, f"{each['kind']} {each['metadata']['name']}", each["spec"]["template"]


def selectors(objects):
    """A selector that matches none of the pods that it is for."""
    labels = [template["metadata"]["labels"].items() for _, _, template in pods(objects)]
    for each in objects:
        name, spec = f"{each['kind']} {each['metadata']['name']}", each.get("spec", {})
        if each["kind"] in ("Deployment", "StatefulSet"):
            wanted, found = spec["selector"]["matchLabels"], [spec["template"]["metadata"]["labels"].items()]
        else:
            wanted = spec.get("selector") or spec.get("podSelector") or {}
            wanted, found = wanted.get("matchLabels", wanted), labels
        if wanted and not any(wanted.items() <= one for one in found):
            yield f"{name} selects {wanted}, which no pod has"


def quantities(objects):
    """An amount that Kubernetes cannot read, or a request above its limit."""
    for _, name, template in pods(objects):
        for container in template["spec"]["containers"]:
            for kind, amounts in container.get("resources", {}).items():
                yield from (f"{name}: {kind} {key}: {value!r}" for key, value in amounts.items() if not _is_quantity(value))
    for each in objects:
        for metric in each["spec"].get("metrics", []) if each["kind"] == "HorizontalPodAutoscaler" else []:
            if not _is_quantity(value := metric["pods"]["target"]["averageValue"]):
                yield f"{each['metadata']['name']}: averageValue: {value!r}"


def _is_quantity(value):
    return QUANTITY.fullmatch(str(value)) is not None


def restart_policies(objects):
    """A policy that this kind of object does not take."""
    for each, name, template in pods(objects):
        policy = template["spec"].get("restartPolicy", "Always")
        if policy not in RESTARTS[each["kind"]] or ("podFailurePolicy" in each["spec"] and policy != "Never"):
            yield f"{name} cannot have restartPolicy {policy}"


def mounts(objects):
    """A mount of a volume that the pod does not have, a volume nobody mounts, or what nobody has made."""
    made = {each["metadata"]["name"] for each in objects if each["kind"] == "ConfigMap"}
    for _, name, template in pods(objects):
        volumes = {volume["name"]: volume for volume in template["spec"].get("volumes", [])}
        mounted = [mount for container in template["spec"]["containers"] for mount in container.get("volumeMounts", [])]
        for unknown in {mount["name"] for mount in mounted} ^ volumes.keys():
            yield f"{name}: {unknown} is either no volume or not mounted"
        if len({mount["mountPath"] for mount in mounted}) < len(mounted):
            yield f"{name} mounts two volumes at one path"
        for volume in volumes.values():
            if volume.get("configMap", {"name": None})["name"] not in {None, *made}:
                yield f"{name}: there is no ConfigMap {volume['configMap']['name']}"


def lint(objects):
    """Return all that is wrong."""
    return [sentence for rule in (selectors, quantities, restart_policies, mounts) for sentence in rule(objects)]
