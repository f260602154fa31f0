"""Receives OTLP over HTTP, reads it with the official protobuf package, and prints one line of JSON per span and per point of a metric."""

import gzip
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def attributes(pairs):
    values = {}
    for pair in pairs:
        kind = pair.value.WhichOneof("value")
        values[pair.key] = getattr(pair.value, kind) if kind in ("string_value", "int_value", "double_value") else None
    return values


def spans(body):
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield {
                    "span": span.name,
                    "trace_id": span.trace_id.hex(),
                    "span_id": span.span_id.hex(),
                    "parent_id": span.parent_span_id.hex(),
                    "kind": span.kind,
                    "seconds": (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
                    "attributes": attributes(span.attributes),
                    "resource": attributes(resource.resource.attributes),
                }


def points(body):
    for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in getattr(metric, metric.WhichOneof("data")).data_points:
                    value = getattr(point, point.WhichOneof("value"))
                    yield {"metric": metric.name, "unit": metric.unit, "attributes": attributes(point.attributes), "value": value}


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        read = {"/v1/traces": spans, "/v1/metrics": points}[self.path]
        for line in read(body):
            line["token"] = self.headers.get("x-token")
            sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
print(f"listens on http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
