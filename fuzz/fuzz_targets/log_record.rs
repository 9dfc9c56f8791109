//! Records of format 1 of the log: the first eight bytes are the segment's id, the others a record. No bytes panic, and a record is no
//! longer than what it was read from.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_log::{Coding, Record, decode_record};

fuzz_target!(|bytes: &[u8]| {
    let Some((id, bytes)) = bytes.split_first_chunk::<8>() else { return };
    let Ok(decoded) = decode_record(bytes, Coding::of_segment(u64::from_le_bytes(*id))) else { return };
    assert!(decoded.length as usize <= bytes.len());
    match decoded.record {
        Record::Message(view) => {
            assert!(view.body.len() < bytes.len() && view.targets().len() > 0);
            let _ = view.verify();
        }
        Record::Settle(view) => assert!(view.ranges().count() * 16 <= bytes.len()),
        _ => {}
    }
});
