//! AMQP 0-9-1 on the host: sockets and hot frames here, by the codec and the states of `penstock_wire::amqp`; everything that has to
//! be decided is asked of Python.
//!
//! Files use each other without a circle, in this order: `errors`, `greeting`, `space`; `arrived`, `requests`; one channel's `publisher` and
//! `consumers`; `session` (the frames of a connection); `exceeding`, `socket` and `conversation` (its socket); `listener`.

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
mod requests;
mod session;
mod socket;
mod space;
mod stream_consumers;
