//! What Flight is asked: no bytes panic, as a ticket, as a descriptor, as an action or as a message of DoPut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_serve::fuzz::{action, data, descriptor, ticket};

fuzz_target!(|bytes: &[u8]| {
    let _ = (ticket(bytes), descriptor(bytes), action(bytes), data(bytes));
});
