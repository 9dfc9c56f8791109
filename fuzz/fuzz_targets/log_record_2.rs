//! Records of format 2 of the log: the first 24 bytes are the log's id and an epoch, the others a record. No bytes panic, and
//! a record is no longer than what it was read from.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_log::{Coding, Record, decode_record};

fuzz_target!(|bytes: &[u8]| {
    let Some((id, bytes)) = bytes.split_first_chunk::<16>() else { return };
    let Some((epoch, bytes)) = bytes.split_first_chunk::<8>() else { return };
    let coding = Coding::of_epoch(id, u64::from_le_bytes(*epoch));
    let Ok(decoded) = decode_record(bytes, coding) else { return };
    assert!(decoded.length as usize <= bytes.len());
    match decoded.record {
        Record::Message(view) => {
            assert!(view.body.len() < bytes.len() && view.targets().len() > 0);
            let _ = (view.verify(), view.attributes());
        }
        Record::Settle(view) => assert!(view.ranges().count() * 14 <= bytes.len()),
        _ => {}
    }
});
