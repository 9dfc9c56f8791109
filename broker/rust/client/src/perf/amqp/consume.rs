//! A consumer: takes deliveries, acks them in batches, and measures latencies by the times in their bodies.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use penstock_wire::amqp::content::ContentHeader;
use penstock_wire::amqp::frame::{Frame, FrameKind};
use penstock_wire::amqp::method::Method;

use super::figures::Figures;
use super::link::Link;
use super::login::{CHANNEL, close, refuse_end};
use super::options::Options;
use super::template::STAMP_BYTES;
use crate::perf::report::Counters;

/// How long a consumer waits before it looks whether the run is over.
const TICK: Duration = Duration::from_millis(20);
/// The numbers of `basic.deliver`.
const DELIVER: [u8; 4] = [0, 60, 0, 60];

/// See the module.
pub(super) struct Consumer {
    figures: Arc<Figures>,
    link: Link,
    /// How many messages an ack stands for; 0: there are no acks.
    ack_batch: u64,
    arriving: Arriving,
}

impl Consumer {
    pub fn new(link: Link, figures: Arc<Figures>, options: &Options) -> Consumer {
        let ack_batch = if options.auto_ack { 0 } else { options.ack_batch };
        Consumer { figures, link, ack_batch, arriving: Arriving::default() }
    }

    /// Runs until consumers have to end, and acks the rest.
    pub fn run(mut self) {
        if let Err(error) = self.converse() {
            self.figures.counters.error(error);
        }
    }

    fn converse(&mut self) -> Result<(), String> {
        while !self.figures.is_consumed.load(Ordering::Acquire) {
            if !self.link.read()? || self.link.unwritten() > 0 {
                self.link.wait(TICK);
            }
            self.take_deliveries()?;
            self.link.write()?;
        }
        self.arriving.ack(u64::from(self.ack_batch > 0), &mut self.link.out);
        close(&mut self.link)
    }

    fn take_deliveries(&mut self) -> Result<(), String> {
        let Consumer { figures, link, ack_batch, arriving } = self;
        let now = figures.counters.stamp();
        arriving.count = 0;
        let (mut times, ack_batch) = (figures.deliveries(), *ack_batch);
        let taken = link.frames(|frame, out| {
            if arriving.take(&frame)? {
                if let Some(stamp) = arriving.stamp.take() {
                    times.record(stamp, now, 1);
                }
                if ack_batch > 0 {
                    arriving.ack(ack_batch, out);
                }
            }
            Ok(true)
        });
        drop(times);
        if arriving.count > 0 {
            let counters = &figures.counters;
            Counters::add(&counters.consumed, &counters.last_consumed_ns, arriving.count, counters.now_ns());
        }
        taken
    }
}

/// The message that is arriving, frame by frame, and what is not acked.
#[derive(Debug, Default)]
struct Arriving {
    tag: u64,
    /// Bytes of the body that have to come.
    missing: u64,
    stamp: Option<u64>,
    unacked: u64,
    /// How many messages have come.
    count: u64,
}

impl Arriving {
    /// Takes a frame, and returns whether a message is complete.
    fn take(&mut self, frame: &Frame<'_>) -> Result<bool, String> {
        match frame.kind {
            FrameKind::Method => {
                match delivery_tag(frame.payload) {
                    Some(tag) => (self.tag, self.stamp) = (tag, None),
                    None => refuse_end(&Method::read(frame.payload).map_err(|error| error.to_string())?)?,
                }
                return Ok(false);
            }
            FrameKind::Header => {
                let header = ContentHeader::read(frame.payload).ok_or("a header frame is too short")?;
                self.missing = header.body_bytes;
            }
            FrameKind::Body => {
                if self.stamp.is_none() {
                    self.stamp = frame.payload.first_chunk::<STAMP_BYTES>().map(|bytes| u64::from_le_bytes(*bytes));
                }
                self.missing = self.missing.saturating_sub(frame.payload.len() as u64);
            }
            FrameKind::Heartbeat => return Ok(false),
        }
        let is_complete = self.missing == 0;
        self.count += u64::from(is_complete);
        self.unacked += u64::from(is_complete);
        Ok(is_complete)
    }

    /// Acks all that is not, if it is as much as that.
    fn ack(&mut self, at_least: u64, out: &mut Vec<u8>) {
        if at_least > 0 && self.unacked >= at_least {
            Method::BasicAck { delivery_tag: self.tag, multiple: self.unacked > 1 }.put(CHANNEL, out);
            self.unacked = 0;
        }
    }
}

/// Returns the delivery tag of `basic.deliver`, without a look at its other arguments.
fn delivery_tag(payload: &[u8]) -> Option<u64> {
    let (consumer_tag_bytes, rest) = payload.strip_prefix(&DELIVER)?.split_first()?;
    let tag = rest.get(usize::from(*consumer_tag_bytes)..)?.first_chunk::<8>()?;
    Some(u64::from_be_bytes(*tag))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use penstock_wire::Name;
    use penstock_wire::amqp::content::put_content;
    use penstock_wire::amqp::frame::next_frame;
    use penstock_wire::amqp::method::Method;

    use super::Arriving;

    #[test]
    fn messages_of_several_frames_and_of_none_are_counted_and_acked() {
        let (consumer_tag, exchange, routing_key) = (Name::cut("perf"), Name::EMPTY, Name::cut("q"));
        let (mut bytes, mut arriving, mut out) = (Vec::new(), Arriving::default(), Vec::new());
        for (delivery_tag, size) in [(1, 9_000), (2, 0), (3, 4)] {
            let redelivered = false;
            Method::BasicDeliver { consumer_tag, delivery_tag, redelivered, exchange, routing_key }.put(1, &mut bytes);
            put_content(1, &[0x10, 0, 1], &vec![1; size], 4096, &mut bytes);
        }

        let (mut rest, mut stamps) = (&bytes[..], Vec::new());
        while let Some((frame, length)) = next_frame(rest, 4096).unwrap() {
            if arriving.take(&frame).unwrap() {
                stamps.push(arriving.stamp);
                arriving.ack(2, &mut out);
            }
            rest = &rest[length..];
        }

        assert_eq!((arriving.count, arriving.unacked), (3, 1));
        assert_eq!(stamps, [Some(0x0101_0101_0101_0101), None, None]);
        let (frame, _) = next_frame(&out, 4096).unwrap().unwrap();
        assert_eq!(Method::read(frame.payload), Ok(Method::BasicAck { delivery_tag: 2, multiple: true }));
    }
}
