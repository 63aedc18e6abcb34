"""What would be sent: the answer to "does this upload anything?"."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from sealift.fleet.errors import WireError
from sealift.fleet.otlp import encode

NEVER = (
    "the values of tensors, inputs, outputs, weights and gradients",
    "source code, prompts, file contents and environment variables other than those named below",
    "shapes and labels, unless the program asks for them (shapes=True, or a label of its own)",
)


def explained(file: Path | None) -> tuple[dict[str, Any], str]:
    """(the requests as JSON, the same as text). `file`: a request as a spool holds it; without one, an example with this machine's own attributes."""
    if file is not None:
        requests = {file.name: _read(file.read_bytes())}
    else:
        metrics, logs = ExportMetricsServiceRequest(), ExportLogsServiceRequest()
        resource = _own_resource()
        metrics.ParseFromString(encode.metrics_request(resource, 0, 0, 10 * 10**9, [_EXAMPLE], {"dropped": 0, "overflow": 0, "overhead": 0.002}))
        logs.ParseFromString(encode.logs_request(resource, 1, [("sealift.api_usage", 0, {"sealift.api.key": "torch.load"})]))
        requests = {"/v1/metrics": metrics, "/v1/logs": logs}
    value = {name: json_format.MessageToDict(message) for name, message in requests.items()}
    lines = []
    for name, body in value.items():
        lines += [f"{name}:", json.dumps(body, indent=2), ""]
    if file is None:
        lines.append(
            "Nothing is sent unless the program asks for it: an agent needs an endpoint, given by the program or OTEL_EXPORTER_OTLP_ENDPOINT."
        )
        lines.append(f"Endpoint here: {os.environ.get('OTEL_EXPORTER_OTLP_ENDPOINT', 'none')}")
        lines.append("Histogram counts say how many calls took how long; offset and bucketCounts are powers of 2**(1/8) ns.")
    lines += ["Never sent:", *(f"  - {text}" for text in NEVER)]
    return {"requests": value, "never_sent": list(NEVER)}, "\n".join(lines)


_EXAMPLE = encode.Histogram(
    (("sealift.operator", "aten::mm"), ("sealift.source", "torch"), ("sealift.scope", "function"), ("sealift.model.id", "my-model")),
    count=700,
    samples=7,
    total_ns=3_100_000,
    self_ns=3_100_000,
    zero=0,
    first=95,
    counts=(200, 300, 200),
)


def _own_resource() -> dict[str, encode.Value]:
    try:
        from sealift.observe.sinks.resource import resource_attributes

        found: dict[str, encode.Value] = dict(resource_attributes(os.environ))
    except ImportError:
        found = {}
    return {
        "service.name": "this-program",
        "service.instance.id": "(random for each process)",
        "host.name": socket.gethostname(),
        "process.pid": os.getpid(),
        **found,
    }


def _read(data: bytes) -> Message:
    for kind in (ExportMetricsServiceRequest, ExportLogsServiceRequest):
        message: Any = kind()
        try:
            message.ParseFromString(data)
        except DecodeError:
            continue
        scopes = [s for r in (message.resource_metrics if kind is ExportMetricsServiceRequest else message.resource_logs) for s in r.ListFields()]
        if scopes and (kind is ExportLogsServiceRequest or any(m.name for r in message.resource_metrics for s in r.scope_metrics for m in s.metrics)):
            return message  # type: ignore[no-any-return]
    raise WireError("no OTLP metrics or logs request")
