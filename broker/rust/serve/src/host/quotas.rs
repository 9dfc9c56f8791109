//! What users and virtual hosts may use: rates of publishing, bytes in flight, the size of a message, streams.
//!
//! A quota is shared by all streams of a user, or of a virtual host; a stream has to do with both. Whoever is above a rate or has
//! too many bytes in flight is not refused but paused: nothing more is read from it, or sent to it, until there is room. What is
//! counted is given back when the stream ends. Nobody's quota costs more than a few relaxed atomics while it has no limits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use penstock_engine::{Counters, Metric};
use rustc_hash::FxHashMap;

use crate::host::bucket::Bucket;
use crate::host::refusal::{Kind, Refusal};

/// A pause is looked at again after this, so that a limit which is lifted, or bytes that others gave back, are noticed.
const PAUSE_MAX: Duration = Duration::from_millis(100);
const ROOM_PAUSE: Duration = Duration::from_millis(10);

/// Quotas without limits and streams are forgotten when there are more than these, and twice as many as were needed last.
const IDLE_MAX: usize = 1024;

/// Nothing is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    /// Messages a second.
    pub publish_rate: Option<u64>,
    /// Bytes of publish requests a second.
    pub publish_bytes_rate: Option<u64>,
    /// Bytes received and not confirmed, and as many delivered and not settled.
    pub in_flight_bytes_max: Option<u64>,
    pub message_bytes_max: Option<u64>,
    /// Open streams that publish or consume, and channels.
    pub streams_max: Option<u64>,
}

/// Whose quota it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    User,
    Vhost,
}

/// One user's or virtual host's.
#[derive(Debug)]
pub(crate) struct Quota {
    whose: String,
    is_limited: AtomicBool,
    limits: Mutex<(QuotaLimits, Buckets)>,
    unconfirmed: AtomicU64,
    unsettled: AtomicU64,
    streams: AtomicU64,
}

#[derive(Debug, Default)]
struct Buckets {
    messages: Option<Bucket>,
    bytes: Option<Bucket>,
}

impl Quota {
    fn new(holder: Holder, name: &str) -> Quota {
        let kind = if holder == Holder::User { "user" } else { "vhost" };
        Quota {
            whose: format!("{kind} '{name}'"),
            is_limited: AtomicBool::new(false),
            limits: Mutex::default(),
            unconfirmed: AtomicU64::new(0),
            unsettled: AtomicU64::new(0),
            streams: AtomicU64::new(0),
        }
    }

    fn set(&self, limits: QuotaLimits, now_us: u64) {
        let Ok(mut guard) = self.limits.lock() else { return };
        let buckets = Buckets {
            messages: bucket(guard.1.messages, limits.publish_rate, now_us),
            bytes: bucket(guard.1.bytes, limits.publish_bytes_rate, now_us),
        };
        *guard = (limits, buckets);
        self.is_limited.store(limits != QuotaLimits::default(), Ordering::Release);
    }

    fn is_limited(&self) -> bool {
        self.is_limited.load(Ordering::Acquire)
    }

    fn limits(&self) -> QuotaLimits {
        if !self.is_limited() {
            return QuotaLimits::default();
        }
        self.limits.lock().map(|guard| guard.0).unwrap_or_default()
    }

    /// How long before more may be read from a publisher.
    fn publish_pause(&self, now_us: u64) -> Option<Duration> {
        if !self.is_limited() {
            return None;
        }
        let mut guard = self.limits.lock().ok()?;
        let (limits, buckets) = &mut *guard;
        let is_full = limits.in_flight_bytes_max.is_some_and(|max| self.unconfirmed.load(Ordering::Relaxed) >= max);
        let waits = [
            buckets.messages.as_mut().and_then(|bucket| bucket.wait(now_us)),
            buckets.bytes.as_mut().and_then(|bucket| bucket.wait(now_us)),
            is_full.then_some(ROOM_PAUSE),
        ];
        waits.into_iter().flatten().max()
    }

    fn published(&self, messages: u64, bytes: u64, now_us: u64) {
        if !self.is_limited() {
            return;
        }
        let Ok(mut guard) = self.limits.lock() else { return };
        let buckets = &mut guard.1;
        buckets.messages.iter_mut().for_each(|bucket| bucket.take(messages, now_us));
        buckets.bytes.iter_mut().for_each(|bucket| bucket.take(bytes, now_us));
    }

    fn has_room_to_deliver(&self) -> bool {
        self.limits().in_flight_bytes_max.is_none_or(|max| self.unsettled.load(Ordering::Relaxed) < max)
    }
}

/// A rate that stays keeps what its bucket holds.
fn bucket(held: Option<Bucket>, rate: Option<u64>, now_us: u64) -> Option<Bucket> {
    let rate = rate?;
    held.filter(|bucket| bucket.rate() == rate).or_else(|| Some(Bucket::new(rate, now_us)))
}

/// All quotas, by holder and name.
#[derive(Debug)]
pub struct Quotas {
    known: Mutex<Known>,
    started: Instant,
}

#[derive(Debug)]
struct Known {
    by_name: FxHashMap<(Holder, String), Arc<Quota>>,
    count_max: usize,
}

impl Default for Quotas {
    fn default() -> Quotas {
        let known = Known { by_name: FxHashMap::default(), count_max: IDLE_MAX };
        Quotas { known: Mutex::new(known), started: Instant::now() }
    }
}

impl Quotas {
    /// In effect at once, also for streams that are open.
    pub fn set(&self, holder: Holder, name: &str, limits: QuotaLimits) {
        self.of(holder, name).set(limits, self.now_us());
    }

    fn of(&self, holder: Holder, name: &str) -> Arc<Quota> {
        let Ok(mut known) = self.known.lock() else { return Arc::new(Quota::new(holder, name)) };
        if known.by_name.len() >= known.count_max {
            known.by_name.retain(|_, quota| quota.is_limited() || Arc::strong_count(quota) > 1);
            known.count_max = IDLE_MAX.max(2 * known.by_name.len());
        }
        let quota = known.by_name.entry((holder, name.to_owned()));
        Arc::clone(quota.or_insert_with(|| Arc::new(Quota::new(holder, name))))
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// What one stream may do, and what it has in flight.
#[derive(Debug)]
pub(crate) struct Allowance {
    quotas: Arc<Quotas>,
    held_by: [Arc<Quota>; 2],
    counters: Arc<Counters>,
    /// Positions that have to be on the disk, and the bytes that are confirmed then.
    unconfirmed: VecDeque<(u64, u64)>,
    unsettled: u64,
    is_paused: bool,
    is_stream: bool,
}

impl Allowance {
    /// Counts one more stream.
    ///
    /// # Errors
    /// [`Kind::PreconditionFailed`] when the user or the virtual host has as many as it may: clients do not try that again by themselves,
    /// as they would when something is exhausted.
    pub fn open(quotas: &Arc<Quotas>, counters: &Arc<Counters>, user: &str, vhost: &str) -> Result<Allowance, Refusal> {
        Allowance::counted(quotas, counters, user, vhost).map_err(|(whose, max)| {
            let text = format!("{whose} has {max} streams open, as many as it may; close one");
            Refusal::new(Kind::PreconditionFailed, text)
        })
    }

    /// Counts one more channel, which is a stream.
    ///
    /// # Errors
    /// The limit, when that many are open.
    pub fn of_channel(
        quotas: &Arc<Quotas>,
        counters: &Arc<Counters>,
        user: &str,
        vhost: &str,
    ) -> Result<Allowance, u64> {
        Allowance::counted(quotas, counters, user, vhost).map_err(|(_, max)| max)
    }

    /// The error says whose limit is reached.
    fn counted(
        quotas: &Arc<Quotas>,
        counters: &Arc<Counters>,
        user: &str,
        vhost: &str,
    ) -> Result<Allowance, (String, u64)> {
        let mut allowance = Allowance::of_call(quotas, counters, user, vhost);
        allowance.is_stream = true;
        allowance.held_by.iter().for_each(|quota| add(&quota.streams, 1));
        for quota in &allowance.held_by {
            let limit = quota.limits().streams_max;
            if let Some(max) = limit.filter(|max| quota.streams.load(Ordering::Relaxed) > *max) {
                counters.add(Metric::StreamsRefused, 1);
                return Err((quota.whose.clone(), max));
            }
        }
        Ok(allowance)
    }

    /// What a single call may do, which is no stream.
    pub fn of_call(quotas: &Arc<Quotas>, counters: &Arc<Counters>, user: &str, vhost: &str) -> Allowance {
        Allowance {
            quotas: Arc::clone(quotas),
            held_by: [quotas.of(Holder::User, user), quotas.of(Holder::Vhost, vhost)],
            counters: Arc::clone(counters),
            unconfirmed: VecDeque::new(),
            unsettled: 0,
            is_paused: false,
            is_stream: false,
        }
    }

    /// How long nothing may be read from this publisher; nothing when it may be now.
    pub fn publish_pause(&mut self) -> Option<Duration> {
        if !self.is_limited() {
            self.is_paused = false;
            return None;
        }
        let now_us = self.quotas.now_us();
        let pause = self.held_by.iter().filter_map(|quota| quota.publish_pause(now_us)).max();
        self.note_pause(pause.is_some(), Metric::PublishPauses);
        pause.map(|pause| pause.min(PAUSE_MAX))
    }

    /// Messages that came in requests of so many bytes, and the position that has to be on the disk before they are confirmed.
    pub fn published(&mut self, messages: u64, bytes: u64, waits_for: Option<u64>) {
        if self.is_limited() {
            let now_us = self.quotas.now_us();
            self.held_by.iter().for_each(|quota| quota.published(messages, bytes, now_us));
        }
        if let Some(position) = waits_for {
            self.held_by.iter().for_each(|quota| add(&quota.unconfirmed, bytes));
            self.unconfirmed.push_back((position, bytes));
        }
    }

    /// What waited for a position up to this one is confirmed.
    pub fn synced(&mut self, synced: u64) {
        while let Some(&(position, bytes)) = self.unconfirmed.front() {
            if position > synced {
                break;
            }
            self.unconfirmed.pop_front();
            self.held_by.iter().for_each(|quota| subtract(&quota.unconfirmed, bytes));
        }
    }

    /// How long nothing may be sent to this consumer.
    pub fn delivery_pause(&mut self) -> Option<Duration> {
        let has_room = self.held_by.iter().all(|quota| quota.has_room_to_deliver());
        self.note_pause(!has_room, Metric::DeliveryPauses);
        (!has_room).then_some(ROOM_PAUSE)
    }

    pub fn delivered(&mut self, bytes: u64) {
        self.unsettled += bytes;
        self.held_by.iter().for_each(|quota| add(&quota.unsettled, bytes));
    }

    pub fn settled(&mut self, bytes: u64) {
        let bytes = bytes.min(self.unsettled);
        self.unsettled -= bytes;
        self.held_by.iter().for_each(|quota| subtract(&quota.unsettled, bytes));
    }

    /// The largest message, and whose limit that is: the broker's when it names nobody.
    pub fn message_bytes_max(&self, of_broker: usize) -> (usize, Option<&str>) {
        let limits = self.held_by.iter().filter_map(|quota| {
            let max = quota.limits().message_bytes_max?;
            Some((usize::try_from(max).unwrap_or(usize::MAX), Some(quota.whose.as_str())))
        });
        limits.fold((of_broker, None), |least, limit| if limit.0 < least.0 { limit } else { least })
    }

    fn is_limited(&self) -> bool {
        self.held_by.iter().any(|quota| quota.is_limited())
    }

    fn note_pause(&mut self, pauses: bool, metric: Metric) {
        if pauses && !self.is_paused {
            self.counters.add(metric, 1);
        }
        self.is_paused = pauses;
    }
}

impl Drop for Allowance {
    fn drop(&mut self) {
        self.synced(u64::MAX);
        self.settled(u64::MAX);
        let streams = u64::from(self.is_stream);
        self.held_by.iter().for_each(|quota| subtract(&quota.streams, streams));
    }
}

fn add(count: &AtomicU64, amount: u64) {
    count.fetch_add(amount, Ordering::Relaxed);
}

fn subtract(count: &AtomicU64, amount: u64) {
    count.fetch_sub(amount, Ordering::Relaxed);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::{Allowance, Holder, IDLE_MAX, QuotaLimits, Quotas};

    fn open(quotas: &Arc<Quotas>, user: &str) -> Allowance {
        Allowance::open(quotas, &Arc::default(), user, "/").unwrap()
    }

    #[test]
    fn a_publisher_above_its_rate_is_paused_and_others_are_not() {
        let quotas = Arc::<Quotas>::default();
        let (mut fast, mut other) = (open(&quotas, "fast"), open(&quotas, "other"));
        quotas.set(Holder::User, "fast", QuotaLimits { publish_rate: Some(10), ..QuotaLimits::default() });
        assert_eq!(fast.publish_pause(), None);

        fast.published(1000, 1, None);
        other.published(1000, 1, None);

        assert!(fast.publish_pause().is_some());
        assert_eq!(other.publish_pause(), None);
        quotas.set(Holder::User, "fast", QuotaLimits::default());
        assert_eq!(fast.publish_pause(), None);
    }

    #[test]
    fn the_streams_of_a_vhost_share_its_rate() {
        let quotas = Arc::<Quotas>::default();
        quotas.set(Holder::Vhost, "/", QuotaLimits { publish_bytes_rate: Some(10), ..QuotaLimits::default() });
        let (mut one, mut other) = (open(&quotas, "a"), open(&quotas, "b"));

        one.published(1, 1000, None);

        assert!(other.publish_pause().is_some());
    }

    #[test]
    fn bytes_in_flight_are_given_back_by_confirms_settlements_and_the_end() {
        let quotas = Arc::<Quotas>::default();
        quotas.set(Holder::User, "a", QuotaLimits { in_flight_bytes_max: Some(100), ..QuotaLimits::default() });
        let (mut stream, mut other) = (open(&quotas, "a"), open(&quotas, "a"));

        stream.published(1, 100, Some(7));
        assert!(other.publish_pause().is_some());
        assert_eq!(other.delivery_pause(), None);
        stream.synced(7);
        assert_eq!(other.publish_pause(), None);

        stream.delivered(100);
        assert!(other.delivery_pause().is_some());
        stream.settled(100);
        assert_eq!(other.delivery_pause(), None);

        stream.delivered(100);
        stream.published(1, 100, Some(8));
        drop(stream);
        assert_eq!((other.publish_pause(), other.delivery_pause()), (None, None));
    }

    #[test]
    fn a_stream_above_the_number_is_refused_until_another_ends() {
        let quotas = Arc::<Quotas>::default();
        quotas.set(Holder::User, "a", QuotaLimits { streams_max: Some(1), ..QuotaLimits::default() });
        let first = open(&quotas, "a");

        let refused = Allowance::open(&quotas, &Arc::default(), "a", "/").unwrap_err();
        assert_eq!(refused.text, "user 'a' has 1 streams open, as many as it may; close one");

        drop(first);
        open(&quotas, "a");
    }

    #[test]
    fn a_single_call_is_no_stream_and_has_bytes_in_flight() {
        let quotas = Arc::<Quotas>::default();
        let limits = QuotaLimits { streams_max: Some(1), in_flight_bytes_max: Some(100), ..QuotaLimits::default() };
        quotas.set(Holder::User, "a", limits);

        let mut call = Allowance::of_call(&quotas, &Arc::default(), "a", "/");
        call.delivered(100);
        let mut stream = open(&quotas, "a");
        assert!(stream.delivery_pause().is_some());
        drop(call);

        assert_eq!(stream.delivery_pause(), None);
        assert!(
            Allowance::open(&quotas, &Arc::default(), "a", "/").is_err(),
            "the call took no stream's place with it"
        );
    }

    #[test]
    fn the_smallest_limit_of_a_message_s_size_counts_and_is_named() {
        let quotas = Arc::<Quotas>::default();
        let stream = open(&quotas, "a");
        assert_eq!(stream.message_bytes_max(50), (50, None));

        quotas.set(Holder::User, "a", QuotaLimits { message_bytes_max: Some(20), ..QuotaLimits::default() });
        quotas.set(Holder::Vhost, "/", QuotaLimits { message_bytes_max: Some(30), ..QuotaLimits::default() });

        assert_eq!(stream.message_bytes_max(50), (20, Some("user 'a'")));
    }

    #[test]
    fn users_who_were_there_once_are_forgotten() {
        let quotas = Arc::<Quotas>::default();
        quotas.set(Holder::User, "kept", QuotaLimits { streams_max: Some(1), ..QuotaLimits::default() });
        for number in 0..3 * IDLE_MAX {
            open(&quotas, &number.to_string());
        }

        assert!(quotas.known.lock().unwrap().by_name.len() <= IDLE_MAX);
        assert!(quotas.of(Holder::User, "kept").is_limited());
    }
}
