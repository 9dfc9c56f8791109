//! A checkpoint of format 1 or 2 without its checksum. One of format 2 that was read is written and reads the same.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = penstock_log::fuzz::checkpoint(bytes);
});
