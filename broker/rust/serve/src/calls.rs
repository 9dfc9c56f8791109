//! What Python has to decide: a bounded queue of calls that Python's loop takes in batches, and the way back for its answers.
//!
//! Nothing here waits for the GIL: a call is queued and an eventfd made readable; Python's loop takes all that wait, and
//! answers each whenever it is decided.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::oneshot;
use tonic::{Code, Status};

use crate::connection::Caller;

/// What a call is about; the last two want no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A unary method, by name.
    Call,
    /// A publish stream opens.
    Publish,
    /// A publish stream wants to write an exchange.
    Permit,
    Consume,
    Read,
    Get,
    Settle,
    /// Rows are to be staged for a target, or a staged batch to be decided; the answer is a `StagePlace`.
    Stage,
    /// A connection ended.
    Disconnected,
    /// An auto-delete queue lost its last consumer.
    Unused,
}

/// Python's decision.
#[derive(Debug)]
pub enum Answer {
    Payload(Vec<u8>),
    Admitted { vhost: String, queue_id: u32 },
}

/// Python's refusal: a gRPC status code, a text, and a serialised google.rpc.Status.
#[derive(Debug)]
pub struct Refusal {
    pub code: i32,
    pub message: String,
    pub details: Vec<u8>,
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Status {
        let code = Code::from_i32(refusal.code);
        if refusal.details.is_empty() {
            return Status::new(code, refusal.message);
        }
        Status::with_details(code, refusal.message, refusal.details.into())
    }
}

/// One thing to decide. Dropping it unanswered tells whoever asked that the broker failed.
#[derive(Debug)]
pub struct Call {
    pub kind: Kind,
    pub method: String,
    pub caller: Caller,
    pub vhost: String,
    pub subject: String,
    pub payload: Bytes,
    pub reply: Option<oneshot::Sender<Result<Answer, Refusal>>>,
}

impl Call {
    pub(crate) fn new(kind: Kind, caller: &Caller) -> Call {
        Call {
            kind,
            method: String::new(),
            caller: caller.clone(),
            vhost: String::new(),
            subject: String::new(),
            payload: Bytes::new(),
            reply: None,
        }
    }
}

/// See the module. Invariant: the eventfd is readable whenever a call waits.
#[derive(Debug)]
pub struct Calls {
    waiting: Mutex<VecDeque<Call>>,
    wake: OwnedFd,
    open_count: AtomicUsize,
    calls_max: usize,
    generation: AtomicU64,
}

impl Calls {
    pub(crate) fn new(calls_max: usize) -> std::io::Result<Calls> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Calls {
            waiting: Mutex::default(),
            wake,
            open_count: AtomicUsize::new(0),
            calls_max,
            generation: AtomicU64::new(0),
        })
    }

    /// Readable while calls wait.
    #[must_use]
    pub fn wake_fd(&self) -> RawFd {
        self.wake.as_raw_fd()
    }

    /// All calls that wait, oldest first.
    #[must_use]
    pub fn take(&self) -> Vec<Call> {
        let mut count = [0; 8];
        // Nothing to read means that another take was faster: the calls below are what counts.
        let _ = rustix::io::read(&self.wake, &mut count);
        self.waiting.lock().map(|mut waiting| waiting.drain(..).collect()).unwrap_or_default()
    }

    /// Makes streams ask again for what they were admitted to.
    pub fn forget(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Asks Python and waits for its answer.
    pub(crate) async fn ask(&self, mut call: Call) -> Result<Answer, Status> {
        let _open = self.enter()?;
        let (reply, answer) = oneshot::channel();
        call.reply = Some(reply);
        self.queue(call);
        match answer.await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Status::internal("the broker failed while it decided this call; its log says why")),
        }
    }

    /// Asks for admission to a vhost or a queue.
    pub(crate) async fn admit(&self, call: Call) -> Result<(String, u32), Status> {
        match self.ask(call).await? {
            Answer::Admitted { vhost, queue_id } => Ok((vhost, queue_id)),
            Answer::Payload(_) => Err(Status::internal("the broker answered an admission with a payload")),
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

    fn enter(&self) -> Result<Open<'_>, Status> {
        let open = Open(&self.open_count);
        if self.open_count.fetch_add(1, Ordering::AcqRel) >= self.calls_max {
            let text = format!("{} calls wait for a decision already; try again later", self.calls_max);
            return Err(Status::resource_exhausted(text));
        }
        Ok(open)
    }
}

/// Counts a call as open until it is dropped.
struct Open<'a>(&'a AtomicUsize);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
