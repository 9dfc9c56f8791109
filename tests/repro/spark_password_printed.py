"""A URI with a mistake is refused; the error must not hold the password, because it ends in logs of the driver."""

from rig import CannotRunError, run

SECRET = "s3cret-w0rd"
URIS = (
    f"penstock://loader:{SECRET}@broker:568o/",
    f"penstok://loader:{SECRET}@broker:5680/",
    f"penstock://loader:{SECRET}@broker:5680/?color=red",
    f"penstock://loader:{SECRET}@/",
)


def check():
    try:
        from penstock.spark.source import PenstockSource
    except ImportError:
        raise CannotRunError("PySpark is missing; install it with: make .venv/.spark") from None

    printed = []
    for uri in URIS:
        for verb in ("read", "write"):
            source = PenstockSource({"uri": uri, "stream": "events"})
            try:
                source.schema() if verb == "read" else source.writer(None, overwrite=False)
            except Exception as error:  # noqa: BLE001  (any error may hold the password: its text is the verdict)
                if SECRET in str(error):
                    printed.append(str(error))
    return bool(printed), f"{len(printed)} of {2 * len(URIS)} messages hold the password" + (
        f", as: {printed[0]}" if printed else ""
    )


run(check)
