//! The open readers of a replica's streams: they are woken when more is committed, and ended when the replica cannot be read any more.
//!
//! Invariants: a reader that found nothing is noted under the replica's lock, under which the high watermark rises, so it misses no rise.
//! Where no reader waits, a rise costs one look at a number.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use penstock_engine::Signal;
use penstock_queue::QueueId;
use penstock_replica::Millis;

use crate::lock::lock;

/// A replica that has not heard its leader for this time is not read: it would show an old state as if it were the newest.
pub(crate) const SILENT_MAX: Millis = 5_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    waiting_count: AtomicUsize,
    open_count: AtomicUsize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    last: u64,
    readers: HashMap<u64, Entry>,
    /// Set for good, once the replica is closed.
    over: Option<String>,
    /// The log, by its number, that lacks a message which it should have.
    unreadable: Option<u64>,
    /// When the replica last followed a leader, or led.
    in_touch: Millis,
}

#[derive(Debug)]
struct Entry {
    queue: QueueId,
    seat: Arc<Seat>,
    is_waiting: bool,
}

/// A reader's place among them.
#[derive(Debug)]
pub(crate) struct Seat {
    pub number: u64,
    pub signal: Arc<Signal>,
    /// Set before the signal is cancelled: the stream is there, and this replica is not.
    pub goes_on_elsewhere: AtomicBool,
}

impl Seat {
    /// Ends the reader; the first reason stays.
    pub fn end(&self, reason: &str, goes_on_elsewhere: bool) {
        self.goes_on_elsewhere.store(goes_on_elsewhere, Ordering::Release);
        self.signal.cancel(reason);
    }
}

impl Readers {
    /// Adds a reader; or returns why there cannot be one.
    pub fn enter(&self, queue: QueueId) -> Result<Arc<Seat>, String> {
        let mut open = lock(&self.open);
        if let Some(over) = &open.over {
            return Err(over.clone());
        }
        open.last += 1;
        let seat =
            Arc::new(Seat { number: open.last, signal: Arc::default(), goes_on_elsewhere: AtomicBool::new(false) });
        open.readers.insert(seat.number, Entry { queue, seat: Arc::clone(&seat), is_waiting: false });
        self.open_count.store(open.readers.len(), Ordering::Release);
        Ok(seat)
    }

    pub fn leave(&self, seat: &Seat) {
        let mut open = lock(&self.open);
        let left = open.readers.remove(&seat.number);
        self.open_count.store(open.readers.len(), Ordering::Release);
        if left.is_some_and(|entry| entry.is_waiting) {
            self.waiting_count.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Has the next rise wake a reader. Called under the replica's lock.
    pub fn wait(&self, seat: &Seat) {
        if let Some(entry) = lock(&self.open).readers.get_mut(&seat.number)
            && !std::mem::replace(&mut entry.is_waiting, true)
        {
            self.waiting_count.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Wakes the readers that wait.
    pub fn wake(&self) {
        if self.waiting_count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut open = lock(&self.open);
        let waiting = open.readers.values_mut().filter(|entry| entry.is_waiting);
        let woken = waiting.map(|entry| {
            entry.is_waiting = false;
            Arc::clone(&entry.seat)
        });
        let rung: Vec<Arc<Seat>> = woken.collect();
        self.waiting_count.fetch_sub(rung.len(), Ordering::AcqRel);
        drop(open);
        rung.iter().for_each(|seat| seat.signal.ring());
    }

    pub fn are_there(&self) -> bool {
        self.open_count.load(Ordering::Acquire) > 0
    }

    /// Ends the readers of a stream that was deleted.
    pub fn end_of(&self, queue: QueueId, reason: &str) {
        self.end_some(reason, false, |entry| entry.queue == queue);
    }

    /// Ends all readers: they go on at other brokers.
    pub fn end_all(&self, reason: &str) {
        self.end_some(reason, true, |_| true);
    }

    /// The same, and takes no others any more.
    pub fn close(&self, reason: &str) {
        lock(&self.open).over = Some(reason.to_owned());
        self.end_all(reason);
    }

    /// Ends all readers, and has [`Readers::may_read`] refuse others until another log takes the place of this one.
    pub fn refuse(&self, log: u64, reason: &str) {
        lock(&self.open).unreadable = Some(log);
        self.end_all(reason);
    }

    /// Whether a log, by its number, may be read at a time.
    pub fn may_read(&self, log: u64, now: Millis) -> bool {
        let open = lock(&self.open);
        open.over.is_none() && open.unreadable != Some(log) && now < open.in_touch.saturating_add(SILENT_MAX)
    }

    /// Notes whether the replica follows a leader, or leads; ends the readers of one that has not for long.
    pub fn look(&self, is_in_touch: bool, now: Millis) {
        let mut open = lock(&self.open);
        if is_in_touch {
            open.in_touch = now;
            return;
        }
        let is_silent = now >= open.in_touch.saturating_add(SILENT_MAX);
        drop(open);
        if is_silent && self.are_there() {
            self.end_all("the replica of this broker has not heard its leader for a while");
        }
    }

    fn end_some(&self, reason: &str, goes_on_elsewhere: bool, ends: impl Fn(&Entry) -> bool) {
        let ended: Vec<Arc<Seat>> = lock(&self.open)
            .readers
            .values()
            .filter(|entry| ends(entry))
            .map(|entry| Arc::clone(&entry.seat))
            .collect();
        ended.iter().for_each(|seat| seat.end(reason, goes_on_elsewhere));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    const ONE: QueueId = QueueId(1);
    const OTHER: QueueId = QueueId(2);

    fn has_rung(seat: &Seat) -> bool {
        pin!(seat.signal.heard()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_reader_that_waits_is_woken_once() {
        let readers = Readers::default();
        let [one, other] = [ONE, OTHER].map(|queue| readers.enter(queue).unwrap());
        readers.wait(&one);
        readers.wait(&one);

        readers.wake();

        assert_eq!((has_rung(&one), has_rung(&other)), (true, false));
        readers.wake();
        assert!(!has_rung(&one));
        readers.wait(&other);
        readers.leave(&other);
        assert_eq!(readers.waiting_count.load(Ordering::Acquire), 0);
    }

    #[test]
    fn readers_of_a_deleted_stream_end_and_those_of_a_closed_replica_go_on_elsewhere() {
        let readers = Readers::default();
        let [one, other] = [ONE, OTHER].map(|queue| readers.enter(queue).unwrap());
        let goes_on = |seat: &Seat| seat.signal.cancelled().map(|_| seat.goes_on_elsewhere.load(Ordering::Acquire));

        readers.end_of(ONE, "it was deleted");
        assert_eq!((goes_on(&one), goes_on(&other)), (Some(false), None));
        readers.close("the broker stops");

        assert_eq!(goes_on(&other), Some(true));
        assert_eq!(readers.enter(ONE).unwrap_err(), "the broker stops");
    }

    #[test]
    fn a_replica_is_read_while_it_hears_its_leader_and_its_log_has_all_messages() {
        let readers = Readers::default();
        readers.look(true, 100);
        let seat = readers.enter(ONE).unwrap();
        assert!(readers.may_read(3, 100 + SILENT_MAX - 1));

        readers.look(false, 100 + SILENT_MAX - 1);
        assert!(seat.signal.cancelled().is_none());
        readers.look(false, 100 + SILENT_MAX);

        assert!(seat.signal.cancelled().is_some() && !readers.may_read(3, 100 + SILENT_MAX));
        readers.look(true, 9000);
        readers.refuse(3, "a message is missing");
        assert!(!readers.may_read(3, 9000) && readers.may_read(4, 9000));
    }
}
