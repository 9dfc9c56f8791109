//! The native gRPC client and the load generator: one connection, publish and consume streams that reconnect, and
//! batches of waiting messages. Blocking methods may be called from any thread but those of this runtime. It knows
//! nothing of Python, and of messages only the format of `penstock-wire`.
#![forbid(unsafe_code)]

mod back_off;
mod channel;
mod codec;
mod consumer;
mod delivery;
mod error;
mod following;
mod in_flight;
mod lock;
mod message;
mod outcomes;
pub mod perf;
mod publisher;
mod ranges;
mod reader;
mod runtime;
mod settlements;
mod wake;

pub use channel::{Channel, ChannelSettings, ChannelTls};
pub use consumer::{Consumer, ConsumerSettings};
pub use delivery::{Deliveries, Delivery};
pub use error::RpcError;
pub use following::Wait;
pub use message::Message;
pub use outcomes::{CONFIRMED, OutcomeRange, RETURNED};
pub use penstock_wire::grpc::Start;
pub use publisher::{Publisher, PublisherSettings};
pub use reader::{Reader, ReaderSettings};
