//! What Python has to decide: a bounded queue of calls that Python's loop takes in batches, and the way back for its answers.
//!
//! Nothing here waits for the GIL: a call is queued and an eventfd made readable; Python's loop takes all that wait, and
//! answers each whenever it is decided.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use penstock_engine::StreamReplica;
use rustc_hash::FxHashMap;
use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::host::caller::Caller;
use crate::host::changes::Changes;
use crate::host::connection_state::ConnectionState;
use crate::host::listing::Listing;
use crate::host::refusal::Refusal;
use crate::host::relay::Origin;
use crate::host::topology::{Outcome, TopologyRequest};

/// Streams that ask again at a time whether they may go on.
const RECHECKS_MAX: usize = 64;

/// Permits that publishers ask for at a time.
const PERMITS_ASKED_MAX: usize = 256;

/// Calls that wait for messages, of all connections.
const WAITS_MAX: usize = 16_384;

/// The rows of an archive that a reader asks for: the offsets from `first` up to `end`, and of those what a ticket filters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveRows {
    pub first: u64,
    pub end: u64,
    pub columns: Option<Vec<String>>,
    pub key_is: Option<Vec<u8>>,
    pub routing_key_is: Option<Vec<u8>>,
    pub header_is: Option<(Vec<u8>, Vec<u8>)>,
    /// Whether files that cannot be read are passed over.
    pub skip_unreadable: bool,
}

/// What Python is asked, or hears of: the last two want no answer. Names and keys are those of the client's message, which was
/// parsed already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallRequest {
    /// A unary method with its serialised request.
    Unary {
        method: String,
        payload: Bytes,
    },
    /// A publish stream opens.
    OpenPublish {
        vhost: String,
    },
    /// A publish stream wants to write to an exchange.
    PermitExchange {
        vhost: String,
        exchange: String,
    },
    /// It wants to write with routing keys to an exchange.
    PermitKeys {
        vhost: String,
        exchange: String,
        keys: Vec<Vec<u8>>,
    },
    /// It wants to publish with another user's name as `user_id`.
    PermitUserId {
        vhost: String,
    },
    OpenConsume {
        vhost: String,
        queue: String,
    },
    OpenRead {
        vhost: String,
        partition: String,
        group: String,
        single_active: bool,
        /// A replica of this broker may be read.
        from_replica: bool,
    },
    /// A piece of a stream's archive.
    ReadArchive {
        vhost: String,
        partition: String,
        wanted: ArchiveRows,
    },
    /// The partitions of streams, and what their archives have. Again, only whether the caller may go on.
    DescribeStreams {
        vhost: String,
        streams: Vec<String>,
        at_timestamp_ms: Option<u64>,
        /// The caller waits for messages, and has to be asked about again.
        waits: bool,
    },
    OpenGet {
        vhost: String,
        queue: String,
    },
    OpenSettle {
        vhost: String,
        queue: String,
    },
    /// A request is larger than an unauthenticated client may send.
    Enter,
    /// The client of a connection shows newer credentials of the same user.
    Renew,
    /// Whether the certificate of a client names a user. The client has not logged in by that.
    NamesUser,
    /// Which other broker leads the virtual host that a connection has entered. The one that is known cannot be reached; empty for none.
    /// Again, whether the one that is known still leads.
    FindLeader {
        vhost: String,
        known: String,
    },
    /// A connection is being closed by its client: its exclusive queues are to be deleted.
    EndQueues,
    /// Exchanges, queues or bindings are to be changed.
    Topology {
        vhost: String,
        wanted: TopologyRequest,
    },
    /// Rows are to be staged for a target, or a staged batch is to be decided.
    OpenStage {
        vhost: String,
        stage: String,
        stream: String,
        exchange: String,
        routing_key: String,
    },
    /// A connection ended.
    Disconnected,
    /// An auto-delete queue lost its last consumer, or a queue was unused for its time. Another queue may have its name by the time that this is decided.
    QueueUnused {
        vhost: String,
        queue: String,
        queue_id: u64,
    },
}

/// Python's decision.
#[derive(Debug)]
pub enum Answer {
    Payload(Vec<u8>),
    Admitted(Admitted),
    /// The broker that leads; `None` when the connection is to be served here.
    Leader(Option<String>),
    /// Whether each of the routing keys is permitted.
    Keys(Vec<bool>),
    Stage(StagePlace),
    Topology(Outcome),
    Streams(FoundStreams),
}

/// The partitions of streams, and who asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundStreams {
    pub vhost: String,
    pub user: String,
    pub partitions: Vec<FoundPartition>,
}

/// A partition of a stream, by the name of its queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundPartition {
    pub stream: String,
    pub name: String,
    pub queue_id: u64,
    /// The first offset at the time that was asked for.
    pub at_timestamp: Option<u64>,
    pub archived: Option<ArchivedRuns>,
    /// Why messages that were archived cannot be read, in a sentence.
    pub archive_error: Option<String>,
    /// With how many partitions the stream was declared, unless it is one queue or was made by hand.
    pub partition_count: Option<u32>,
}

/// What the archive has of a partition below the log's first offset, as that was then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchivedRuns {
    pub below: u64,
    /// Ascending ranges of offsets that have messages; each ends before its second number.
    pub runs: Vec<(u64, u64)>,
    /// About how many bytes their bodies have.
    pub bytes: u64,
}

/// Where a stage is, what it is for, and who asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagePlace {
    pub vhost: String,
    pub queue_id: u64,
    pub user: String,
    pub exchange: String,
    pub routing_key: String,
}

/// Who may enter which vhost, and the queue that was asked for, if any.
#[derive(Clone, Debug, Default)]
pub struct Admitted {
    pub vhost: String,
    pub queue_id: u64,
    pub user: String,
    /// About an exchange: each routing key has to be asked for besides.
    pub by_key: bool,
    /// About a stream: the replica to read, where that is not the leader's.
    pub replica: Option<Arc<dyn StreamReplica>>,
}

/// One thing to decide. Dropping it unanswered tells whoever asked that the broker failed.
#[derive(Debug)]
pub struct Call {
    pub request: CallRequest,
    pub caller: Caller,
    /// The stream is open already: this asks whether it may go on.
    pub again: bool,
    pub reply: Option<Reply>,
}

/// The way back to whoever asked. The call counts as open until this is gone, also when nobody waits for it any more: a client
/// that asks and hangs up does not get around the bound.
#[derive(Debug)]
pub struct Reply {
    answer: oneshot::Sender<Result<Answer, Refusal>>,
    _place: Place,
}

/// What a call holds while it is open.
#[derive(Debug)]
enum Place {
    /// Of the calls of its connection and of all, which have a bound.
    Counted { _open: [Open; 2] },
    /// A turn of those that wait for one.
    Turn { _permits: Vec<OwnedSemaphorePermit> },
}

impl Reply {
    /// Whoever asked may be gone already; then there is nobody to tell.
    pub fn send(self, answer: Result<Answer, Refusal>) {
        let _ = self.answer.send(answer);
    }
}

impl Call {
    pub(crate) fn new(request: CallRequest, caller: &Caller) -> Call {
        Call { request, caller: caller.clone(), again: false, reply: None }
    }

    /// The same question about what it admitted.
    pub(crate) fn again(&self) -> Call {
        Call { request: self.request.clone(), caller: self.caller.clone(), again: true, reply: None }
    }

    /// Nobody waits for the answer that was wanted.
    fn is_abandoned(&self) -> bool {
        self.reply.as_ref().is_some_and(|reply| reply.answer.is_closed())
    }
}

/// See the module. Invariant: the eventfd is readable whenever a call waits.
#[derive(Debug)]
pub struct Calls {
    waiting: Mutex<VecDeque<Call>>,
    wake: OwnedFd,
    open_count: Arc<AtomicUsize>,
    calls_max: usize,
    changes: Changes,
    rechecks: Arc<Semaphore>,
    permits: Arc<Semaphore>,
    #[cfg_attr(not(feature = "flight"), allow(dead_code))]
    waits: Arc<Semaphore>,
    connections: Mutex<FxHashMap<u64, Weak<ConnectionState>>>,
    listing: Listing,
}

impl Calls {
    pub(crate) fn new(calls_max: usize) -> std::io::Result<Calls> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Calls {
            waiting: Mutex::default(),
            wake,
            open_count: Arc::default(),
            calls_max,
            changes: Changes::default(),
            rechecks: Arc::new(Semaphore::new(RECHECKS_MAX)),
            permits: Arc::new(Semaphore::new(PERMITS_ASKED_MAX)),
            waits: Arc::new(Semaphore::new(WAITS_MAX)),
            connections: Mutex::default(),
            listing: Listing::default(),
        })
    }

    /// Readable while calls wait.
    #[must_use]
    pub fn wake_fd(&self) -> RawFd {
        self.wake.as_raw_fd()
    }

    /// What is open of those who call.
    #[must_use]
    pub fn listing(&self) -> &Listing {
        &self.listing
    }

    /// All calls that wait and that somebody still wants to be decided, oldest first.
    #[must_use]
    pub fn take(&self) -> Vec<Call> {
        let mut count = [0; 8];
        // Nothing to read means that another take was faster: the calls below are what counts.
        let _ = rustix::io::read(&self.wake, &mut count);
        let Ok(mut waiting) = self.waiting.lock() else { return Vec::new() };
        waiting.drain(..).filter(|call| !call.is_abandoned()).collect()
    }

    /// Make publishers of one virtual host, or of all, ask again for the exchanges that they were admitted to.
    pub fn forget(&self, vhost: Option<&str>) {
        self.changes.topology(vhost);
    }

    /// Make the open streams of one user or of all, in one virtual host or in all, ask again whether they may go on, and
    /// publishers among them for their exchanges.
    pub fn recheck(&self, user: Option<&str>, vhost: Option<&str>) {
        self.changes.rights(user, vhost);
    }

    /// Make the open streams of one connection ask again whether they may go on, and its publishers for their exchanges.
    pub fn recheck_connection(&self, connection: u64) {
        let state = self.connections.lock().ok().and_then(|connections| connections.get(&connection)?.upgrade());
        if let Some(state) = state {
            state.recheck();
        }
    }

    /// Return the connection at another broker whose exclusive queues an open connection may use.
    #[must_use]
    pub fn origin_of(&self, connection: u64) -> Option<Origin> {
        self.connections.lock().ok()?.get(&connection)?.upgrade()?.origin
    }

    /// Remember a connection, to be rechecked.
    pub(crate) fn connected(&self, connection: u64, state: &Arc<ConnectionState>) {
        if let Ok(mut connections) = self.connections.lock() {
            connections.insert(connection, Arc::downgrade(state));
        }
    }

    /// Let all connections look for requests that wait though there is room in their part of the memory. Return the connection
    /// that holds most, with its bytes.
    pub(crate) fn look_at_accounts(&self) -> Option<(u64, usize)> {
        let connections = self.connections.lock().ok()?;
        let states = connections.iter().filter_map(|(connection, state)| Some((*connection, state.upgrade()?)));
        let held = states.map(|(connection, state)| {
            state.account.look();
            (connection, state.account.used())
        });
        held.max_by_key(|(_, bytes)| *bytes)
    }

    pub(crate) fn disconnected(&self, connection: u64) {
        if let Ok(mut connections) = self.connections.lock() {
            connections.remove(&connection);
        }
    }

    /// Return the changes that open streams ask again after.
    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Return a number that grows with every change, also with those that do not concern the caller.
    pub(crate) fn last_change(&self, caller: &Caller) -> u64 {
        self.changes.last() + caller.state.generation()
    }

    /// Return a number that grows with every change of what a caller may publish.
    pub(crate) fn generation(&self, caller: &Caller, user: &str, vhost: &str) -> u64 {
        self.changes.permits_of(user, vhost) + caller.state.generation()
    }

    /// Ask Python and wait for its answer.
    ///
    /// # Errors
    /// Python's refusal, and [`Kind::LimitReached`](crate::host::refusal::Kind) when too many calls wait already.
    pub(crate) async fn ask(&self, call: Call) -> Result<Answer, Refusal> {
        let place = Place::Counted { _open: self.enter(&call.caller)? };
        self.ask_from(place, call).await
    }

    /// Ask for a stream that is open whether it may go on, when few enough do.
    pub(crate) async fn ask_again(&self, call: Call) -> Result<Answer, Refusal> {
        let turns = [Arc::clone(&self.rechecks)];
        self.ask_in_turn(turns, call).await
    }

    /// Ask for a publisher that is open what it may write, when few enough do: one change may make all of them ask.
    pub(crate) async fn ask_permit(&self, call: Call) -> Result<Answer, Refusal> {
        let turns = [Arc::clone(&call.caller.state.turns), Arc::clone(&self.permits)];
        self.ask_in_turn(turns, call).await
    }

    /// A place among the calls that wait for messages, which have a bound, and one of each connection.
    ///
    /// # Errors
    /// [`Kind::LimitReached`](crate::host::refusal::Kind) when there is none.
    #[cfg(feature = "flight")]
    pub(crate) fn wait_place(&self, caller: &Caller) -> Result<[OwnedSemaphorePermit; 2], Refusal> {
        let full = |whose: &str| {
            Refusal::limit_reached(format!("too many calls{whose} wait for messages; ask without `wait_ms`"))
        };
        let of_connection = Arc::clone(&caller.state.waits).try_acquire_owned();
        let of_connection = of_connection.map_err(|_| full(" of this connection"))?;
        let of_all = Arc::clone(&self.waits).try_acquire_owned().map_err(|_| full(""))?;
        Ok([of_connection, of_all])
    }

    async fn ask_in_turn<const N: usize>(&self, turns: [Arc<Semaphore>; N], call: Call) -> Result<Answer, Refusal> {
        let mut permits = Vec::with_capacity(N);
        for turn in turns {
            // It is never closed.
            permits.extend(turn.acquire_owned().await);
        }
        self.ask_from(Place::Turn { _permits: permits }, call).await
    }

    async fn ask_from(&self, place: Place, mut call: Call) -> Result<Answer, Refusal> {
        let (reply, answer) = oneshot::channel();
        let state = Arc::clone(&call.caller.state);
        let is_log_in = !call.again && call.request != CallRequest::NamesUser;
        let _deciding = state.deciding();
        call.reply = Some(Reply { answer: reply, _place: place });
        self.queue(call);
        let Ok(answer) = answer.await else {
            return Err(Refusal::bug("the broker failed while it decided this call; its log says why"));
        };
        if is_log_in {
            state.decided(answer.as_ref().err().map(|refused| refused.kind));
        }
        answer
    }

    /// Asks for admission to a vhost or a queue.
    pub(crate) async fn admit(&self, call: Call) -> Result<Admitted, Refusal> {
        match self.ask(call).await? {
            Answer::Admitted(admitted) => Ok(admitted),
            _ => Err(Refusal::bug("the broker answered an admission with something else")),
        }
    }

    /// Tells Python something that wants no answer.
    pub(crate) fn tell(&self, call: Call) {
        self.queue(call);
    }

    fn queue(&self, call: Call) {
        let Ok(mut waiting) = self.waiting.lock() else { return };
        let was_empty = waiting.is_empty();
        waiting.push_back(call);
        drop(waiting);
        if was_empty {
            // The counter cannot overflow: it is written once per transition from empty.
            let _ = rustix::io::write(&self.wake, &1_u64.to_le_bytes());
        }
    }

    fn enter(&self, caller: &Caller) -> Result<[Open; 2], Refusal> {
        let of_connection_max = self.calls_max / CONNECTION_PART;
        let (of_connection, own_count) = Open::count(&caller.state.waiting);
        let (of_all, count) = Open::count(&self.open_count);
        if own_count > of_connection_max || count > self.calls_max {
            let (max, whose) = if own_count > of_connection_max {
                (of_connection_max, " of this connection")
            } else {
                (self.calls_max, "")
            };
            let text = format!("{max} calls{whose} wait for a decision already; try again later");
            return Err(Refusal::limit_reached(text));
        }
        Ok([of_connection, of_all])
    }
}

/// One connection may have this part of the calls that wait for a decision.
const CONNECTION_PART: usize = 4;

/// Counts a call as open until it is dropped.
#[derive(Debug)]
struct Open(Arc<AtomicUsize>);

impl Open {
    /// One more, and how many that makes.
    fn count(of: &Arc<AtomicUsize>) -> (Open, usize) {
        let count = of.fetch_add(1, Ordering::AcqRel) + 1;
        (Open(Arc::clone(of)), count)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::{Answer, Call, CallRequest, Calls};
    use crate::host::caller::Caller;
    #[cfg(feature = "flight")]
    use crate::host::refusal::Kind;

    fn ask<'a>(calls: &'a Calls, caller: &Caller) -> std::pin::Pin<Box<dyn Future<Output = bool> + 'a>> {
        let call = Call::new(CallRequest::Enter, caller);
        let mut asking = Box::pin(async move { calls.ask(call).await.is_ok() });
        let polled = asking.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        match polled {
            Poll::Pending => asking,
            Poll::Ready(answered) => Box::pin(async move { answered }),
        }
    }

    #[test]
    #[cfg(feature = "flight")]
    fn one_connection_has_few_of_the_calls_that_may_wait_for_messages() {
        let calls = Calls::new(8).unwrap();
        let (greedy, modest) = (Caller::default(), Caller::default());
        let mut places: Vec<_> = (0..256).map(|_| calls.wait_place(&greedy).unwrap()).collect();

        assert_eq!(calls.wait_place(&greedy).unwrap_err().kind, Kind::LimitReached);
        assert!(calls.wait_place(&modest).is_ok());
        places.pop();
        assert!(calls.wait_place(&greedy).is_ok());
    }

    fn is_answered(mut asking: std::pin::Pin<Box<dyn Future<Output = bool> + '_>>) -> Poll<bool> {
        asking.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn one_connection_has_a_part_of_the_calls_that_may_wait() {
        let calls = Calls::new(8).unwrap();
        let (greedy, modest) = (Caller::default(), Caller::default());
        let waiting: Vec<_> = (0..2).map(|_| ask(&calls, &greedy)).collect();

        assert_eq!(is_answered(ask(&calls, &greedy)), Poll::Ready(false));
        assert_eq!(is_answered(ask(&calls, &modest)), Poll::Pending);
        drop(waiting);
    }

    #[test]
    fn a_call_that_nobody_waits_for_is_not_decided_and_counts_until_it_is_taken() {
        let calls = Calls::new(4).unwrap();
        let caller = Caller::default();
        drop(ask(&calls, &caller));
        assert_eq!(is_answered(ask(&calls, &caller)), Poll::Ready(false));

        assert!(calls.take().is_empty());

        let asking = ask(&calls, &caller);
        for mut call in calls.take() {
            call.reply.take().unwrap().send(Ok(Answer::Payload(Vec::new())));
        }
        assert_eq!(is_answered(asking), Poll::Ready(true));
    }
}
