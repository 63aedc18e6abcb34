"""OTLP, the OpenTelemetry protocol: requests to batches, and batches to requests for agents and the simulator."""
