"""Bounds that several packages share: the limit of every queue, cache and retry, with the reason for the number.

They are not configuration; a bound that users should change belongs in `node.config`.
"""

# Concurrent calls; the listener refuses one more. A call waits for a sync at most, so this is how many can share one
# sync, and the bound on the tasks that decide them.
CALLS_MAX = 4_096

# Concurrent password checks: each takes 19 MiB and some 30 ms of a core, and a flood must not starve the broker.
PASSWORD_CHECKS_MAX = 4

# Waiting password checks; one more is refused at once rather than after minutes.
PASSWORD_CHECKS_WAITING_MAX = 256

# Of these, those of one connection and of one address. More wait for these, so that guesses from one address leave
# log-ins from others unaffected.
PASSWORD_CHECKS_OF_CONNECTION_MAX = 4
PASSWORD_CHECKS_OF_ADDRESS_MAX = 64

# A wrong password is refused after this time, so that the answer does not show which kind of digest was checked: the
# slowest that can be imported takes some 0.3 s.
PASSWORD_REFUSAL_SECONDS = 0.5

# Verified credentials remembered per process. 16,384 digests of 32 bytes are some 2 MiB.
CREDENTIALS_MAX = 16_384

# Log-ins that may wait while the keys of tokens are fetched. One more is refused at once, so that an issuer that hangs
# does not occupy all calls.
KEY_WAITERS_MAX = 256

# Calls that may wait for the operator's authentication server, half of CALLS_MAX: if it hangs, the other half serves
# users that it does not decide about. Also its open connections; further requests wait for one.
DECISIONS_WAITING_MAX = 2_048
CONNECTIONS_PER_SERVER_MAX = 100

# A definitions file is rewritten when more frames than this are dead, and they are more than half of it.
DEAD_FRAMES_MAX = 8_192

# Partitions and groups with series in a scrape. More would make the scrape slow and load Prometheus; the lists and the
# command line show all.
PARTITION_SERIES_MAX = 200
GROUP_SERIES_MAX = 1_000

# Threads that may wait for disks at once, over all virtual hosts, and per virtual host. Definitions and other single
# writers come on top. Further work waits its turn.
THREADS_MAX = 1_024
VHOST_THREADS_MAX = 8

# Objects per page of a listing, when a request sets no number or a larger one.
PAGE_SIZE_MAX = 1_000

# Cached manifests of archives. One of a year of hourly files is some 2 MB of JSON.
ARCHIVE_MANIFESTS_MAX = 64

# Bytes of the log that wait while its reader is slow. More lines are dropped and counted. Some 4,000 lines.
LOG_QUEUE_BYTES_MAX = 1024 * 1024

# How long a broker that exits waits for the reader of its log.
LOG_EXIT_SECONDS = 2.0

# Threads that read archives. Each holds one piece, a row group of some 8 MiB, so further readers wait.
ARCHIVE_THREADS_MAX = 2
