"""Advice for options of Spark's Kafka source and sink that have no meaning here."""

__all__ = ["hint_for"]

CREDENTIALS = "use 'uri' with penstocks:// for TLS, and 'user' with 'password', or 'token'"
POSITION = "the position of a query is in its Spark checkpoint; 'group' shows its progress as a consumer group's"
RETRIES = "'retrySeconds' says how long calls are repeated"
# By the beginning of an option's name in lower case; the first that fits counts.
HINTS = {
    "kafka.bootstrap.servers": "name the broker with 'uri', as in penstock://broker:5680/",
    "kafka.sasl": CREDENTIALS,
    "kafka.ssl": CREDENTIALS,
    "kafka.security": CREDENTIALS,
    "kafka.group.id": POSITION,
    "groupidprefix": POSITION,
    "kafka.acks": "'durability' sets what a confirm promises",
    "kafka.": "leave out the settings of Kafka's clients, which have no effect here",
    "fetchoffset.": RETRIES,
    "kafkaconsumer.polltimeoutms": RETRIES,
    "topic": "name the stream with 'stream'",
    "includeheaders": "a column 'headers' is published whenever there is one",
}


def hint_for(option: str) -> str:
    """Return what to do instead of an option, or nothing when it is not one of Kafka's."""
    name = option.lower()
    return next((hint for beginning, hint in HINTS.items() if name.startswith(beginning)), "")
