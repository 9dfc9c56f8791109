//! Frames between brokers: they are read back, any change is noticed, and their bytes are those that the format draws.
#![allow(clippy::unwrap_used)]

use penstock_replica::{Epochs, Message};
use penstock_replication::wire::{
    self, Frame, FrameError, HEADER_BYTES, PROTOCOL, decode, encode_copy, encode_host, encode_message, frame_length,
};
use penstock_replication::{CopiedFile, CopyMessage};
use proptest::prelude::*;

const LOG_ID: [u8; 16] = [7; 16];

fn epochs() -> impl Strategy<Value = (Epochs, u64)> {
    prop::collection::btree_map(any::<u32>(), any::<u32>(), 0..9).prop_map(|found| {
        let firsts: std::collections::BTreeSet<u32> = found.values().copied().collect();
        let end = firsts.last().map_or(0, |&last| u64::from(last) + 1);
        (Epochs::new(found.keys().map(|&epoch| u64::from(epoch)).zip(firsts.into_iter().map(u64::from))), end)
    })
}

fn messages() -> impl Strategy<Value = Message> {
    let [a, b, c, d, e] = [(); 5].map(|()| any::<u64>());
    (a, b, c, d, e, any::<u128>(), any::<bool>(), epochs(), 0..10_u8).prop_map(
        |(epoch, one, two, three, four, replica, agrees, (epochs, end), kind)| match kind {
            0 => Message::Beat { epoch, high_watermark: one, sent: two, session: three },
            1 => Message::BeatAnswer { epoch, sent: one },
            2 => Message::Hello { epoch, replica, session: one, epochs, end },
            3 => Message::Welcome { epoch, session: one, equal_until: two, high_watermark: three },
            4 => Message::Append { epoch, after: one / 2, until: one / 2 + 40, of: three, high_watermark: four },
            5 => Message::Acknowledge { epoch, replica, session: one, position: two },
            6 => Message::Fenced { epoch },
            7 => Message::PreVote { epoch, question: one },
            8 => Message::PreVoteAnswer { epoch, question: one, agrees },
            _ => Message::TakeOver { epoch },
        },
    )
}

/// The bytes of a message with records, if it has some.
fn encoded(message: &Message) -> Vec<u8> {
    let records: &[u8] = if matches!(message, Message::Append { .. }) { &[5; 40] } else { &[] };
    [encode_message(&LOG_ID, message, records.len()), records.to_vec()].concat()
}

proptest! {
    #[test]
    fn messages_are_read_back_and_any_change_is_noticed(message in messages(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let bytes = encoded(&message);
        prop_assert_eq!(frame_length(&bytes), Ok(Some(bytes.len())));
        let records: &[u8] = if matches!(message, Message::Append { .. }) { &[5; 40] } else { &[] };
        let expected = Frame::Message { log_id: LOG_ID, message, records };
        prop_assert_eq!(decode(&bytes), Ok(expected.clone()));
        let cut = at.index(bytes.len());
        prop_assert!(decode(&bytes[..cut]).is_err());

        let mut changed = bytes;
        *at.get_mut(&mut changed) ^= 1 << bit;

        match decode(&changed) {
            // The records have checksums of their own.
            Ok(Frame::Message { message: Message::Append { .. }, records, .. }) => prop_assert_ne!(records, &[5; 40]),
            found => prop_assert!(found.is_err(), "{:?}", found),
        }
    }

    #[test]
    fn any_bytes_are_refused_or_read_without_a_panic(kind in any::<u8>(), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
        let mut bytes = [&[0, 0, 0, 0, kind, PROTOCOL, 0, 0], &LOG_ID[..], &[0; 4], &bytes].concat();
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        for fields in HEADER_BYTES..=bytes.len() {
            let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..24]), &bytes[HEADER_BYTES..fields]);
            bytes[24..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
            let _ = decode(&bytes);
        }
    }
}

fn copy_messages() -> impl Strategy<Value = CopyMessage> {
    let file = ("[a-z.0-9]{1,40}", any::<u64>(), any::<u64>());
    let file = file.prop_map(|(name, bytes, size)| CopiedFile { name, bytes, size });
    let files = prop::collection::vec(file, 0..5);
    prop_oneof![
        (any::<u64>(), any::<u64>(), files).prop_map(|(copy, position, files)| CopyMessage::Offer {
            copy,
            position,
            files
        }),
        (any::<u64>(), any::<u32>(), any::<u64>(), any::<u32>())
            .prop_map(|(copy, file, at, length)| CopyMessage::Fetch { copy, file, at, length }),
        (any::<u64>(), any::<u32>(), any::<u64>(), prop::collection::vec(any::<u8>(), 0..50), any::<u32>())
            .prop_map(|(copy, file, at, bytes, crc)| CopyMessage::Part { copy, file, at, bytes, crc }),
        any::<u64>().prop_map(|copy| CopyMessage::Fetched { copy }),
    ]
}

proptest! {
    #[test]
    fn messages_about_copies_are_read_back(message in copy_messages(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let part: &[u8] = if let CopyMessage::Part { bytes, .. } = &message { bytes } else { &[] };
        let bytes = [&encode_copy(&LOG_ID, &message), part].concat();
        prop_assert_eq!(decode(&bytes), Ok(Frame::Copy { log_id: LOG_ID, message: message.clone() }));

        let mut changed = bytes.clone();
        *at.get_mut(&mut changed) ^= 1 << bit;

        // A part has a checksum of its own.
        let is_in_part = at.index(bytes.len()) >= bytes.len() - part.len();
        prop_assert!(is_in_part || decode(&changed).is_err());
    }
}

proptest! {
    #[test]
    fn messages_of_brokers_are_read_back_and_any_change_is_noticed(
        content in prop::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>(), bit in 0..8_u8
    ) {
        let mut bytes = encode_host(&LOG_ID, &content);
        prop_assert_eq!(decode(&bytes), Ok(Frame::Host { log_id: LOG_ID, content: &content }));

        *at.get_mut(&mut bytes) ^= 1 << bit;

        prop_assert!(decode(&bytes).is_err());
    }
}

#[test]
fn a_frame_is_laid_out_as_the_format_draws_it() {
    let bytes = encode_message(&LOG_ID, &Message::PreVoteAnswer { epoch: 0x0102, question: 0x0304, agrees: true }, 0);

    assert_eq!(bytes[..8], [45, 0, 0, 0, 24, 1, 0, 0]);
    assert_eq!(bytes[8..24], LOG_ID);
    assert_eq!(bytes[24..28], crc32c::crc32c(&[&bytes[..24], &bytes[28..]].concat()).to_le_bytes());
    assert_eq!(bytes[28..], [2, 1, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn a_length_out_of_bounds_is_refused_before_there_is_space_for_it() {
    for length in [0, HEADER_BYTES as u32 - 1, wire::FRAME_BYTES_MAX as u32 + 1, u32::MAX] {
        assert_eq!(frame_length(&length.to_le_bytes()), Err(FrameError::Length(length.into())));
    }
    assert_eq!(frame_length(&[1, 2, 3]), Ok(None));
}

#[test]
fn a_frame_of_another_protocol_is_refused_by_name() {
    let mut bytes = encode_message(&LOG_ID, &Message::Fenced { epoch: 1 }, 0);
    bytes[5] = PROTOCOL + 1;

    assert_eq!(decode(&bytes), Err(FrameError::Protocol(PROTOCOL + 1)));
}
