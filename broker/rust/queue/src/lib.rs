//! The queue machine and the routing tables: pure state, no I/O, no clock, no thread.
#![forbid(unsafe_code)]

pub mod ack_set;
mod backlog;
pub mod ids;
mod machine;
mod ring;
pub mod routing;
mod slots;
mod subscription;

pub use ack_set::AckSet;
pub use ids::{QueueId, Sequence, SequenceRange};
pub use machine::{Queue, QueueError, Settle, Settled, Settling, Taken};
pub use routing::{Destination, ExchangeKind, Matched, NoSuchExchange, Routing, RoutingError};
pub use subscription::{SubscriptionId, SubscriptionSettings};
