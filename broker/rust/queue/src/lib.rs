//! The queue machine and the routing tables: pure state, no I/O, no clock, no thread.
//!
//! Files only use those below them: `ids`; `bitmap`; `block`; `ack_set`, `held`, `ring`; `settled`, `delayed`; `retry`, `backlog`
//! and `subscription`; `lanes`, `slots`; `turns`; `machine`. The routing tables need `ids` alone;
//! `window` needs none of them.
#![forbid(unsafe_code)]

pub mod ack_set;
mod backlog;
mod bitmap;
mod block;
mod delayed;
mod held;
pub mod ids;
mod lanes;
mod machine;
mod retry;
mod ring;
pub mod routing;
mod settled;
mod slots;
mod subscription;
mod turns;
pub mod window;

pub use ack_set::AckSet;
pub use ids::{QueueId, Sequence, SequenceRange, TURN_LANES};
pub use machine::settling::Settling;
pub use machine::{Queue, QueueError, Taken};
pub use retry::{BackOff, RetrySchedule, RetryType};
pub use routing::{
    Choosing, Destination, ExchangeKind, ExchangeSettings, HashOn, Matched, NoSuchExchange, Routable, Routing,
    RoutingError, content_of,
};
pub use settled::{Settle, Settled, Standing};
pub use subscription::{Rank, SubscriptionId, SubscriptionSettings};
pub use turns::CONSUMER_PRIORITIES_MAX;
pub use window::{SeenId, Window};
