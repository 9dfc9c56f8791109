//! AMQP 0-9-1 on the host: sockets and hot frames here, by the codec and the states of `penstock_wire::amqp`; everything that has to
//! be decided is asked of Python.
//!
//! Files use each other without a circle, in this order: `errors`, `greeting`, `space`; `arrived`, `requests`; one channel's `publisher` and
//! `consumers`; `relay` (the way to a leader); `session` (the frames of a connection); `flow` and `splice` (a connection that is relayed); `exceeding`,
//! `socket` and `conversation` (its socket); `listener`.

mod arrived;
mod consume_arguments;
mod consumers;
mod conversation;
mod errors;
mod exceeding;
mod greeting;
pub(crate) mod listener;
mod outgoing;
mod publisher;
mod relay;
mod requests;
mod session;
mod socket;
mod space;
mod stream_consumers;
