//! An index of a segment, of format 1 or 2. Nothing is read beyond its end, whatever it says.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = penstock_log::fuzz::index(bytes);
});
