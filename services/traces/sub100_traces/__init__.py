"""The traces service: OTLP/HTTP in, the list of requests and the waterfall of each out."""
