//! A publisher: sends messages while its window, its rate and its quota allow it, and takes their confirms.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use penstock_wire::amqp::frame::{Frame, FrameKind};
use penstock_wire::amqp::method::Method;

use super::figures::Figures;
use super::link::Link;
use super::login::{close, refuse_end};
use super::options::Options;
use super::template::Template;
use super::unconfirmed::Unconfirmed;
use crate::perf::report::Counters;

/// So much is put together before it is sent.
const OUT_BYTES: usize = 64 << 10;
/// How long a publisher waits before it looks whether the run is over.
const TICK: Duration = Duration::from_millis(20);
/// How long the broker may take to confirm what was sent.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// See the module.
pub(super) struct Publisher {
    figures: Arc<Figures>,
    link: Link,
    templates: Vec<Template>,
    next_template: usize,
    /// Most unconfirmed messages; 0: there are no confirms.
    in_flight: u64,
    /// Messages a second.
    rate: Option<f64>,
    quota: u64,
    sent: u64,
    unconfirmed: Unconfirmed,
}

impl Publisher {
    pub fn new(link: Link, figures: Arc<Figures>, options: &Options, queues: &[String], index: usize) -> Publisher {
        // Each publisher starts with another queue.
        let own = queues.iter().cycle().skip(index % queues.len().max(1)).take(queues.len());
        let template = |queue: &String| Template::new(queue, options.size, options.persistent, link.frame_bytes_max);
        let templates = own.map(template).collect();
        let rate = options.rate.map(|rate| rate / options.publishers as f64);
        let (in_flight, quota, unconfirmed) = (options.in_flight, options.quota(index), Unconfirmed::default());
        Publisher { figures, link, templates, next_template: 0, in_flight, rate, quota, sent: 0, unconfirmed }
    }

    /// Runs to the end of the quota or of the time, and until all messages are confirmed.
    pub fn run(mut self) {
        if let Err(error) = self.converse() {
            self.figures.counters.error(error);
        }
    }

    fn converse(&mut self) -> Result<(), String> {
        while !self.is_over() {
            self.fill();
            self.link.write()?;
            let reads_now = self.link.read()?;
            if reads_now {
                self.take_confirms()?;
            }
            if !reads_now && (self.link.unwritten() > 0 || self.may_send() == 0) {
                self.link.wait(self.pause());
            }
        }
        let begun = Instant::now();
        while self.unconfirmed.count() > 0 {
            if begun.elapsed() >= END_TIMEOUT {
                return Err(format!("{} messages were not confirmed", self.unconfirmed.count()));
            }
            self.link.write()?;
            self.link.wait(TICK);
            self.link.read()?;
            self.take_confirms()?;
        }
        close(&mut self.link)
    }

    fn is_over(&self) -> bool {
        self.sent >= self.quota || self.figures.counters.is_stopped.load(Ordering::Acquire)
    }

    /// How many messages may be sent now.
    fn may_send(&self) -> u64 {
        let window = match self.in_flight {
            0 => u64::MAX,
            in_flight => in_flight.saturating_sub(self.unconfirmed.count()),
        };
        let due = self.rate.map_or(u64::MAX, |rate| {
            let seconds = self.figures.counters.started.elapsed().as_secs_f64();
            ((seconds * rate) as u64 + 1).saturating_sub(self.sent)
        });
        window.min(due).min(self.quota - self.sent)
    }

    /// How long nothing has to be done, unless something comes.
    fn pause(&self) -> Duration {
        let Some(rate) = self.rate else { return TICK };
        let next = Duration::from_secs_f64(self.sent as f64 / rate);
        next.saturating_sub(self.figures.counters.started.elapsed()).clamp(Duration::from_micros(1), TICK)
    }

    fn fill(&mut self) {
        let (mut count, counters) = (self.may_send(), &self.figures.counters);
        if count == 0 || self.link.unwritten() >= OUT_BYTES {
            return;
        }
        let (stamp, now_ns, sent) = (counters.stamp(), counters.now_ns(), self.sent);
        while count > 0 && self.link.unwritten() < OUT_BYTES {
            let Some(template) = self.templates.get(self.next_template) else { return };
            template.put(stamp, &mut self.link.out);
            self.next_template = (self.next_template + 1) % self.templates.len();
            self.sent += 1;
            count -= 1;
        }
        let count = self.sent - sent;
        if self.in_flight > 0 {
            self.unconfirmed.send(count, now_ns);
        }
        Counters::add(&counters.published, &counters.last_published_ns, count, now_ns);
    }

    fn take_confirms(&mut self) -> Result<(), String> {
        let Publisher { figures, link, unconfirmed, .. } = self;
        let (counters, mut times) = (&figures.counters, figures.confirms());
        let now_ns = counters.now_ns();
        let mut confirmed = 0;
        let taken = link.frames(|frame, _| {
            if let Some((tag, multiple)) = confirm_in(&frame)? {
                confirmed += unconfirmed.confirm(tag, multiple, |sent_ns, count| times.record(sent_ns, now_ns, count));
            }
            Ok(true)
        });
        drop(times);
        if confirmed > 0 {
            Counters::add(&counters.confirmed, &counters.last_confirmed_ns, confirmed, now_ns);
        }
        taken
    }
}

/// Returns the tag of a confirm, and whether it stands for all up to it.
fn confirm_in(frame: &Frame<'_>) -> Result<Option<(u64, bool)>, String> {
    if frame.kind != FrameKind::Method {
        return Ok(None);
    }
    match Method::read(frame.payload).map_err(|error| error.to_string())? {
        Method::BasicAck { delivery_tag, multiple } => Ok(Some((delivery_tag, multiple))),
        Method::BasicNack { .. } => Err("the broker has not stored a message (basic.nack)".to_owned()),
        method => refuse_end(&method).map(|()| None),
    }
}
