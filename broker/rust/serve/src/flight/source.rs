//! Where a range's batches come from: the log, and the archive for what the log has given up.
//!
//! What must stay true: every offset of the range is answered once, by whichever of the two has it, and by neither only when
//! neither has. Retention may take messages at any time, so that the log is asked first, and the archive for what is not there.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use penstock_arrow::{Filter, IpcMessage};
use penstock_engine::{QueueId, ReadFrom, ReadSettings, Shard, StreamReader};
use tonic::Status;

use super::asks::Ticket;
use super::batches::{Batches, Report, Shape};
use super::live::Live;
use crate::grpc::status;
use crate::host::caller::Caller;
use crate::host::calls::{Answer, ArchiveRows, Call, CallRequest, Calls};
use crate::host::stalls::{Later, when_free};

/// What stands before a message of Arrow's encapsulated format, and before its header's length.
const CONTINUATION: u32 = u32::MAX;

/// See the module.
pub(super) struct Source {
    calls: Arc<Calls>,
    caller: Caller,
    shard: Arc<Shard>,
    queue: QueueId,
    /// Its `from` moves on with every piece of the archive.
    ticket: Ticket,
    end: u64,
    live: Option<Box<Batches<Live>>>,
    /// While nothing is read from the log.
    shape: Option<Shape>,
    piece: VecDeque<(IpcMessage, Report)>,
}

impl Source {
    /// The range ends at once where the partition ends.
    pub async fn open(
        calls: Arc<Calls>,
        caller: Caller,
        shard: Arc<Shard>,
        queue_id: u64,
        mut ticket: Ticket,
        shape: Shape,
    ) -> Result<Source, Status> {
        let queue = QueueId(queue_id);
        // Numbers begin with 1.
        ticket.from = ticket.from.max(1);
        let reader = read(&shard, queue, ticket.from, u64::MAX).await?;
        let end = ticket.to.unwrap_or(u64::MAX).min(reader.range().next);
        ticket.to = Some(end);
        drop(reader);
        let piece = VecDeque::new();
        Ok(Source { calls, caller, shard, queue, ticket, end, live: None, shape: Some(shape), piece })
    }

    /// The next batch, unless the range has ended, and how far that is.
    pub async fn next(&mut self) -> Result<Option<(IpcMessage, Report)>, Status> {
        loop {
            if let Some(message) = self.piece.pop_front() {
                return Ok(Some(message));
            }
            if let Some(batches) = self.live.take() {
                let (batches, message) = batches.next().await?;
                if message.is_some() {
                    self.live = Some(batches);
                    return Ok(message);
                }
                if !batches.rows.is_gone() {
                    return Ok(None);
                }
                self.ticket.from = batches.at;
                self.shape = Some(batches.shape);
            }
            if self.ticket.from >= self.end {
                return Ok(None);
            }
            self.go_on().await?;
        }
    }

    /// Goes on in the log when it has what comes next, else in the archive, else with what the log has behind it.
    async fn go_on(&mut self) -> Result<(), Status> {
        let reader = read(&self.shard, self.queue, self.ticket.from, self.end).await?;
        let first = reader.range().first;
        if first > self.ticket.from
            && let Some((next, piece)) = self.read_archive(first.min(self.end)).await?
        {
            self.ticket.from = next;
            self.piece = piece;
            return Ok(());
        }
        let shape = self.shape.take().ok_or_else(|| Status::internal("a range is read twice at a time"))?;
        // What lies below the reader's beginning is not missed.
        let at = reader.range().begin;
        self.live = Some(Box::new(Batches::new(Live::new(reader), at, shape)));
        Ok(())
    }

    /// A piece from where the reading stands, of what the log has no more, and where it goes on behind it.
    async fn read_archive(&self, end: u64) -> Result<Option<(u64, VecDeque<(IpcMessage, Report)>)>, Status> {
        let Ticket { vhost, partition, from: first, columns, skip_unreadable, .. } = self.ticket.clone();
        let Filter { key: key_is, routing_key: routing_key_is, header: header_is } = self.ticket.filter();
        let wanted = ArchiveRows { first, end, columns, key_is, routing_key_is, header_is, skip_unreadable };
        let request = CallRequest::ReadArchive { vhost, partition, wanted };
        let Answer::Payload(payload) = self.calls.ask(Call::new(request, &self.caller)).await? else {
            return Err(Status::internal("the broker answered for an archive with an admission"));
        };
        if payload.is_empty() {
            return Ok(None);
        }
        let piece = parse_piece(payload.into());
        let next = piece.as_ref().and_then(VecDeque::back).map(|(_, last)| last.next);
        next.filter(|next| *next > self.ticket.from)
            .zip(piece)
            .map(Some)
            .ok_or_else(|| Status::internal("a piece of the archive is malformed"))
    }
}

async fn read(shard: &Arc<Shard>, queue: QueueId, from: u64, end: u64) -> Result<Later<StreamReader>, Status> {
    let settings = ReadSettings { from: ReadFrom::Offset(from), end: Some(end), group: None, single_active: false };
    let home = shard.home_of(queue);
    let opened = when_free(&home, || home.read(queue, settings).map(|reader| Later::new(&home, reader))).await;
    opened.map_err(|error| status::of_engine(&error))
}

/// Record batches in Arrow's encapsulated format, each behind its report, in eight bytes a number, and its length in four. All
/// little-endian. `None` when it is anything else.
fn parse_piece(mut payload: Bytes) -> Option<VecDeque<(IpcMessage, Report)>> {
    let mut piece = VecDeque::new();
    while payload.has_remaining() {
        let next = payload.try_get_u64_le().ok()?;
        let seen = payload.try_get_u64_le().ok()?;
        let length = payload.try_get_u32_le().ok()?;
        piece.push_back((parse_message(take(&mut payload, length)?)?, Report { next, seen }));
    }
    Some(piece)
}

fn parse_message(mut message: Bytes) -> Option<IpcMessage> {
    let mark = message.try_get_u32_le().ok()?;
    let length = message.try_get_u32_le().ok()?;
    let header = take(&mut message, length).filter(|_| mark == CONTINUATION)?;
    let body_bytes = message.len();
    Some(IpcMessage { header, body: vec![message], body_bytes })
}

fn take(bytes: &mut Bytes, length: u32) -> Option<Bytes> {
    let length = usize::try_from(length).ok()?;
    (bytes.len() >= length).then(|| bytes.split_to(length))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Bytes, Report, parse_piece};

    fn piece(messages: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for message in messages {
            bytes.extend(7_u64.to_le_bytes());
            bytes.extend(5_u64.to_le_bytes());
            bytes.extend(u32::try_from(message.len()).unwrap().to_le_bytes());
            bytes.extend(*message);
        }
        bytes
    }

    #[test]
    fn a_piece_is_a_place_and_messages() {
        let one = [&[0xff; 4][..], &3_u32.to_le_bytes(), b"head", b"body"].concat();

        let found = parse_piece(piece(&[&one, &one]).into()).unwrap();

        assert_eq!(found.len(), 2);
        let ((first, report), (second, _)) = (&found[0], &found[1]);
        assert_eq!(*report, Report { next: 7, seen: 5 });
        assert_eq!((first.header.as_ref(), second.body[0].as_ref()), (&b"hea"[..], &b"dbody"[..]));
        assert_eq!(second.body_bytes, 5);
        assert_eq!(parse_piece(piece(&[]).into()).unwrap().len(), 0);
    }

    #[test]
    fn what_is_cut_or_marked_otherwise_is_no_piece() {
        let one = [&[0xff; 4][..], &3_u32.to_le_bytes(), b"hea"].concat();
        let whole = piece(&[&one]);

        assert!(
            (1..whole.len())
                .all(|length| { parse_piece(Bytes::copy_from_slice(whole.get(..length).unwrap())).is_none() })
        );
        assert!(parse_piece(piece(&[&[0; 12]]).into()).is_none());
        assert!(parse_piece(piece(&[&[0xff; 12]]).into()).is_none());
    }
}
