//! What a publisher has sent and the broker did not store yet: read message by message, however many a request holds.
//!
//! What must stay true: a request costs its bytes and a fixed part, never something for each of its messages; messages come in
//! the order sent, and none twice.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use bytes::Bytes;
use penstock_wire::grpc::publish::{HeldBatch, MessageRef};
use tonic::Status;

use crate::grpc::status;
use crate::host::refusal::Refusal;

/// One round takes at most so many bytes of messages, and the message that goes beyond.
const ROUND_BYTES_MAX: usize = 1 << 20;

/// A request with messages that are left.
#[derive(Debug)]
struct Request {
    batch: HeldBatch<Bytes>,
    /// Messages of it that were taken.
    taken: u64,
}

/// A message that came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming<'a> {
    pub message: MessageRef<'a>,
    pub mandatory: bool,
    pub sequence: Option<u64>,
    /// What has been taken when this message has.
    pub end: End,
}

/// A place behind a message of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct End {
    request: usize,
    rest_bytes: usize,
    /// Messages of that request up to the place.
    taken: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    waiting: VecDeque<Request>,
}

impl Requests {
    /// Adds a request. Its messages are not looked at yet.
    ///
    /// # Errors
    /// When it is no batch.
    pub fn push(&mut self, frame: Bytes) -> Result<(), Status> {
        let parsed = HeldBatch::parse(frame).map_err(|error| status::of_wire(&error))?;
        let Some(batch) = parsed else { return Err(status::opened_twice()) };
        if batch.message_count > 0 {
            self.waiting.push_back(Request { batch, taken: 0 });
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    /// How many messages are left.
    pub fn message_count(&self) -> usize {
        self.waiting.iter().map(Request::left).sum()
    }

    /// Hands over the next messages until `take` breaks off; a round takes at most `messages_max`. They are the same until `advance`.
    ///
    /// # Errors
    /// The errors of `take`, and a refusal of bytes that are no request.
    #[inline]
    pub fn each<'a, E: From<Refusal>>(
        &'a self,
        messages_max: usize,
        mut take: impl FnMut(Incoming<'a>) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        let (mut left, mut bytes) = (messages_max, 0);
        for (at, request) in self.waiting.iter().enumerate() {
            let (mut messages, mut taken) = (request.batch.messages(), request.taken);
            while left > 0 && bytes < ROUND_BYTES_MAX {
                let Some(message) = messages.next() else { break };
                let message = message.map_err(Refusal::from)?;
                let beside = message.properties.map_or(0, <[u8]>::len) + message.key.map_or(0, <[u8]>::len);
                bytes += message.body.len() + beside;
                left -= 1;
                let sequence = request.sequence(taken)?;
                taken += 1;
                let end = End { request: at, rest_bytes: messages.rest_bytes(), taken };
                if take(Incoming { message, mandatory: request.batch.mandatory, sequence, end })?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Goes on behind a message of the round; gives the bytes that this takes.
    pub fn advance(&mut self, end: End) -> usize {
        let mut bytes = 0;
        for done in self.waiting.drain(..end.request.min(self.waiting.len())) {
            bytes += done.batch.rest_bytes();
        }
        let Some(request) = self.waiting.front_mut() else { return bytes };
        let step = request.batch.advance_to(end.rest_bytes);
        request.taken = end.taken;
        if request.left() == 0 {
            self.waiting.pop_front();
        }
        bytes + step
    }
}

impl Request {
    fn left(&self) -> usize {
        self.batch.message_count.saturating_sub(usize::try_from(self.taken).unwrap_or(usize::MAX))
    }

    /// The producer's sequence of the message at that place of the request.
    #[inline]
    fn sequence(&self, at: u64) -> Result<Option<u64>, Refusal> {
        match self.batch.producer_sequence {
            0 => Ok(None),
            first => match first.checked_add(at) {
                None => Err(Refusal::invalid("no sequence is above 2^64 - 1")),
                sequence => Ok(sequence),
            },
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::ops::ControlFlow;

    use bytes::Bytes;
    use penstock_wire::grpc::{BatchEncoder, encode_publish_open};

    use super::{End, Requests};
    use crate::host::refusal::Refusal;

    fn request(first_sequence: u64, bodies: &[&[u8]]) -> Bytes {
        let mut encoder = BatchEncoder::begin(Vec::new(), "e", "k", true);
        encoder.put_producer_sequence(first_sequence);
        bodies.iter().for_each(|body| encoder.push(body, None));
        encoder.finish().into()
    }

    fn taken(requests: &Requests, max: usize) -> (Vec<(String, Option<u64>)>, End) {
        let (mut end, mut found) = (End::default(), Vec::new());
        let read = requests.each(max, |incoming| {
            let names = (incoming.message.exchange.as_bytes(), incoming.message.routing_key.as_bytes());
            assert_eq!(names, (&b"e"[..], &b"k"[..]));
            assert!(incoming.mandatory);
            end = incoming.end;
            found.push((String::from_utf8(incoming.message.body.to_vec()).unwrap(), incoming.sequence));
            Ok::<_, Refusal>(ControlFlow::Continue(()))
        });
        read.unwrap();
        (found, end)
    }

    fn counted(requests: &Requests, max: usize) -> (usize, bool) {
        let mut count = 0;
        let read = requests.each(max, |_| {
            count += 1;
            Ok::<_, Refusal>(ControlFlow::Continue(()))
        });
        (count, read.is_ok())
    }

    #[test]
    fn rounds_go_through_requests_in_order_and_count_their_sequences() {
        let mut requests = Requests::default();
        requests.push(request(7, &[b"a", b"b", b"c"])).unwrap();
        requests.push(request(0, &[])).unwrap();
        requests.push(request(0, &[b"d"])).unwrap();
        requests.push(request(4, &[b"e", b"f"])).unwrap();
        let said = |body: &str, sequence| (body.to_owned(), sequence);

        assert_eq!(requests.message_count(), 6);
        let (found, end) = taken(&requests, 2);
        assert_eq!(found, [said("a", Some(7)), said("b", Some(8))]);
        assert_eq!(taken(&requests, 2).0, found, "nothing was taken yet");
        requests.advance(end);
        assert_eq!(requests.message_count(), 4);

        let (found, end) = taken(&requests, 3);
        assert_eq!(found, [said("c", Some(9)), said("d", None), said("e", Some(4))]);
        requests.advance(end);

        let (found, end) = taken(&requests, 3);
        assert_eq!(found, [said("f", Some(5))]);
        requests.advance(end);
        assert!(requests.is_empty());
    }

    #[test]
    fn a_round_ends_with_the_message_that_makes_it_large() {
        let large = vec![b'x'; super::ROUND_BYTES_MAX];
        let mut requests = Requests::default();
        requests.push(request(0, &[b"small", &large, b"behind"])).unwrap();

        assert_eq!(counted(&requests, 100), (2, true));
    }

    #[test]
    fn what_is_no_batch_is_refused() {
        let mut open = Vec::new();
        encode_publish_open(&mut open, "/", 0, "");

        assert!(Requests::default().push(open.into()).is_err());
        assert!(Requests::default().push(Bytes::from_static(b"\xff")).is_err());
    }

    #[test]
    fn a_sequence_beyond_the_last_number_ends_the_round() {
        let mut requests = Requests::default();
        requests.push(request(u64::MAX, &[b"a", b"b", b"c"])).unwrap();

        assert_eq!(counted(&requests, 10), (1, false));
    }
}
