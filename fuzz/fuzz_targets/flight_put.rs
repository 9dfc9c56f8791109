//! Record batches that are published: two lengths of two bytes, little-endian, then the header of a schema's message, that of a
//! batch's, and its body. No bytes panic, and every row that is taken lies in the body.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use penstock_arrow::{PutDecoder, PutRows};

fuzz_target!(|bytes: &[u8]| {
    let Some((lengths, rest)) = bytes.split_first_chunk::<4>() else { return };
    let [schema, batch] =
        [[lengths[0], lengths[1]], [lengths[2], lengths[3]]].map(|of| usize::from(u16::from_le_bytes(of)));
    let Some((schema, rest)) = rest.split_at_checked(schema) else { return };
    let Some((batch, body)) = rest.split_at_checked(batch) else { return };
    let mut decoder = PutDecoder::default();
    if decoder.read(&Bytes::copy_from_slice(schema), Bytes::new()).is_err() {
        return;
    }
    let Ok(Some(batch)) = decoder.read(&Bytes::copy_from_slice(batch), Bytes::copy_from_slice(body)) else { return };
    let Ok(rows) = PutRows::of(&batch) else { return };
    let mut properties = Vec::new();
    for at in 0..rows.row_count().min(1_000) {
        if let Ok(row) = rows.row(at) {
            assert!(row.body.len() <= body.len());
        }
        let _ = rows.put_properties(at, &mut properties);
    }
});
