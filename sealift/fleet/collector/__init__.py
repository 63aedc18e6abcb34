"""The collector, `sealift fleet serve`: takes OTLP over HTTP, keeps it, and answers questions about it."""
