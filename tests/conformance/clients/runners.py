"""The clients that run against the broker, by name, in the order of the table."""

from conformance.clients.java_suites import java, perf_test
from conformance.clients.language_suites import amqp091_go, amqp_client_js, amqplib
from conformance.clients.python_suites import PYTHON_SUITES, run_suite
from conformance.clients.runs import Runner

RUNNERS: dict[str, Runner] = {
    **{suite.client: run_suite(suite) for suite in PYTHON_SUITES},
    "amqp091-go": amqp091_go,
    "amqplib": amqplib,
    "amqp-client.js": amqp_client_js,
    "Java client": java,
    "PerfTest": perf_test,
}
