"""Who reports: what OpenTelemetry calls a resource, from the environment and /proc. Read once for each start of a process."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path

# attribute -> the environment variables that may hold it, the first that is set
_VARIABLES = {
    "k8s.pod.name": ("K8S_POD_NAME", "POD_NAME"),
    "k8s.pod.uid": ("K8S_POD_UID", "POD_UID"),
    "k8s.namespace.name": ("K8S_NAMESPACE_NAME", "K8S_NAMESPACE", "POD_NAMESPACE"),
    "k8s.node.name": ("K8S_NODE_NAME", "NODE_NAME"),
    "k8s.container.name": ("K8S_CONTAINER_NAME", "CONTAINER_NAME"),
    "slurm.job_id": ("SLURM_JOB_ID",),
    "slurm.job_name": ("SLURM_JOB_NAME",),
    "slurm.procid": ("SLURM_PROCID",),
    "slurm.nodeid": ("SLURM_NODEID",),
}
_CONTAINER_ID = re.compile(r"[0-9a-f]{64}")


def resource_attributes(environ: Mapping[str, str], proc: Path = Path("/proc/self")) -> dict[str, str]:
    """Without the process's own (pid, instance id), which come with each snapshot."""
    out = {"host.name": socket.gethostname()}
    for attribute, names in _VARIABLES.items():
        value = next((environ[name] for name in names if environ.get(name)), "")
        if value:
            out[attribute] = value
    if "k8s.pod.name" not in out and environ.get("KUBERNETES_SERVICE_HOST") and environ.get("HOSTNAME"):
        out["k8s.pod.name"] = environ["HOSTNAME"]  # Kubernetes' default
    container = container_id(proc)
    if container:
        out["container.id"] = container
    return out


def container_id(proc: Path) -> str:
    """From cgroup v1's path, or where v2 hides it, from the mounts of /etc/hostname."""
    for name, marker in (("cgroup", ""), ("mountinfo", "/etc/hostname")):
        try:
            lines = (proc / name).read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            found = _CONTAINER_ID.search(line) if marker in line else None
            if found:
                return found[0]
    return ""


def process_name(argv: list[str]) -> str:
    """What service.name is where nobody says: the program's file name."""
    name = os.path.basename(argv[0]) if argv and argv[0] not in ("", "-c", "-m") else ""
    return name.removesuffix(".py") or "python"
