//! Doors for fuzzing: parsers that nothing outside this crate needs. Whether the bytes were taken is all they say.

use prost::Message;

use crate::flight::asks::{Listing, Put, Ticket, Wanted};
use crate::flight::description;
use crate::flight::protocol::{Action, FlightData, FlightDescriptor};

/// A ticket, which reads the same when it is written again.
///
/// # Panics
/// When it does not.
#[must_use]
pub fn ticket(bytes: &[u8]) -> bool {
    let Ok(ticket) = Ticket::parse(bytes) else { return Listing::parse(bytes).is_ok() };
    assert!(Ticket::parse(&ticket.to_json()).is_ok_and(|again| again == ticket), "a ticket that changes");
    true
}

/// A descriptor as Protocol Buffers, and what it asks for.
#[must_use]
pub fn descriptor(bytes: &[u8]) -> bool {
    let Ok(descriptor) = FlightDescriptor::decode(bytes) else { return false };
    Wanted::of(&descriptor).is_ok() | Put::of(&descriptor).is_ok()
}

/// An action as Protocol Buffers, and what it asks for; or the bytes alone.
#[must_use]
pub fn action(bytes: &[u8]) -> bool {
    let in_action = Action::decode(bytes).is_ok_and(|action| description::Wanted::parse(&action.body).is_ok());
    in_action | description::Wanted::parse(bytes).is_ok()
}

/// A message of DoPut.
#[must_use]
pub fn data(bytes: &[u8]) -> bool {
    FlightData::decode(bytes).is_ok()
}
