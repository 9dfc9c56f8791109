//! One replica of a shard on its log: what `penstock-replica` decides is carried out here.
//!
//! [`Replicator`] takes events: messages of other replicas, ticks, work that is done, answers of the coordinator, and records
//! to append. It passes them to the state machine, and appends, truncates and reads the log as the machine says. It has no
//! sockets, no threads and no clock: messages are values, waits for the disk are [`Work`] that the host performs on a thread of its
//! own, and the time comes with each event.
//!
//! Invariants: the machine's end of the log is the log's; records of another replica are checked before the machine hears of
//! them; nothing above the high watermark can be read from the log; a publish ends as committed, or its outcome is unknown.
//!
//! Limits: a cut of the log waits for the disk in the step that asks for it, and so does the first epoch after a start.
//! A replica whose disk is full halts like one whose disk fails.
#![forbid(unsafe_code)]

mod carry_out;
mod copy_frames;
mod copying;
mod error;
mod frame_fields;
mod install;
mod promise_file;
mod publishes;
mod replicated_log;
mod replicator;
mod restored;
mod shipping;
mod wanted;
pub mod wire;
mod work;

pub use copying::{CopiedFile, CopyError, CopyMessage, CopySource, CopyTarget, PART_BYTES_MAX, PARTS_AHEAD};
pub use error::OpenError;
pub use promise_file::{Identity, PromiseTicket};
pub use publishes::{Published, Token};
pub use replicated_log::{AppendError, ReplicatedLog};
pub use replicator::{Input, Now, Options, Output, Replicator};
pub use restored::{Restoring, prepare_restored};
pub use shipping::{LastRead, Sent, Shipment, Shipped};
pub use work::{Work, WorkDone};
