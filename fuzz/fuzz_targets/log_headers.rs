//! The header of a segment, the manifest, a slot of `synced`, and `truncating`. What was read is written and reads the same.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = penstock_log::fuzz::headers(bytes);
});
