//! What Flight is asked: no bytes panic, as a ticket, as a descriptor or as a message of DoPut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_serve::fuzz::{data, descriptor, ticket};

fuzz_target!(|bytes: &[u8]| {
    let _ = (ticket(bytes), descriptor(bytes), data(bytes));
});
