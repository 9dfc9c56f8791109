"""Bounds that several packages share: the limit of every queue, cache and retry, with the reason for the number.

They are not configuration; a bound that users should change belongs in `node.config`.
"""

# Calls that may be under way at a time; the listener refuses one more. A call waits for a sync at most, so this is how
# many can share one, and the bound on the tasks that decide them.
CALLS_MAX = 4_096

# Concurrent password checks: each takes 19 MiB and some 30 ms of a core, and a flood must not starve the broker.
PASSWORD_CHECKS_MAX = 4

# Waiting password checks; one more is refused at once rather than after minutes.
PASSWORD_CHECKS_WAITING_MAX = 256

# Of these, those of one connection and of one address. More wait for these, so that guesses from one place leave room
# for log-ins from others.
PASSWORD_CHECKS_OF_CONNECTION_MAX = 4
PASSWORD_CHECKS_OF_ADDRESS_MAX = 64

# Verified credentials remembered per process. 16,384 digests of 32 bytes are some 2 MiB.
CREDENTIALS_MAX = 16_384

# Log-ins that may wait while the keys of tokens are fetched. One more is refused at once, so that an issuer that hangs
# does not take the calls of all others.
KEY_WAITERS_MAX = 256

# Calls that may wait for a server of the operator to decide, half of CALLS_MAX: one that hangs leaves the other half to
# users that it is not asked about. The connections to it that can be open; further requests wait for one.
DECISIONS_WAITING_MAX = 2_048
CONNECTIONS_PER_SERVER_MAX = 100

# A definitions file is rewritten when more frames than this are dead, and they are more than half of it.
DEAD_FRAMES_MAX = 8_192

# Partitions and groups that a scrape has series for. More would make it slow and Prometheus heavy; the lists and the
# command line show all.
PARTITION_SERIES_MAX = 200
GROUP_SERIES_MAX = 1_000

# Threads that may wait for disks at once, over all virtual hosts, and those of one of them: definitions and what else
# waits alone come on top. What one more asks for waits its turn.
THREADS_MAX = 1_024
VHOST_THREADS_MAX = 8

# Objects a page of a listing holds when the caller asks for more or names no number.
PAGE_SIZE_MAX = 1_000

# Manifests of archives that are kept read. One of a year of hourly files is some 2 MB of JSON.
ARCHIVE_MANIFESTS_MAX = 64

# Threads that read archives. Each holds one piece, a row group of some 8 MiB, so that readers beyond them wait.
ARCHIVE_THREADS_MAX = 2
