//! What a replica does about copies of its log: it offers one as the leader, and fetches one where it lacks records.
//!
//! Invariants: a replica takes a copy only from a broker that it is connected to. A copy takes the place of the log only once it is whole,
//! and only if it has everything that the replica acknowledged: another leader may have sent what was lacking meanwhile, and the replica may
//! be in sync since. The replica's identity and its promise stay.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use penstock_log::LogError;
use penstock_replica::{BrokerId, Millis};
use penstock_replication::wire::encode_copy;
use penstock_replication::{CopyError, CopyMessage, CopyTarget, OpenError, PART_BYTES_MAX, ReplicatedLog};

use crate::copies::{NotGiven, Progress};
use crate::place::Place;
use crate::shard::Shard;

/// A part with what is before it in its frame.
const PART_FRAME_BYTES_MAX: usize = PART_BYTES_MAX + 1024;

/// Why a copy of a log does not go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CopyFailed {
    #[error(transparent)]
    Copy(#[from] CopyError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("the replica could not be opened, and is closed until the broker is restarted: {0}")]
    Open(#[from] OpenError),
}

impl Shard {
    /// A message about a copy of the log. A thread for disks takes it.
    pub(crate) fn take_copy(&self, from: BrokerId, message: CopyMessage) {
        if matches!(message, CopyMessage::Part { .. }) && !self.copies.fetches(from) {
            return;
        }
        if self.copies.put(from, message) {
            self.take_copies_soon();
        }
    }

    /// Has a thread for disks take a message that waits. It takes one, so that others get their turn.
    fn take_copies_soon(&self) {
        self.soon(|shard| {
            if let Some((from, message)) = shard.copies.next() {
                let copied = shard.copy(from, &message);
                shard.notice_failed_copy(from, copied);
            }
            if shard.copies.goes_on() {
                shard.take_copies_soon();
            }
        });
    }

    fn notice_failed_copy(&self, broker: BrokerId, copied: Result<(), CopyFailed>) {
        if let Err(error) = copied {
            self.shared.events.noticed(&format!("copying a log with broker {broker}: {error}"));
        }
    }

    pub(crate) fn copy(&self, from: BrokerId, message: &CopyMessage) -> Result<(), CopyFailed> {
        let now = self.shared.now().millis;
        let progress = match message {
            CopyMessage::Offer { .. } => {
                let disk = Arc::clone(&self.options.log.disk);
                self.copies.begin(from, now, || CopyTarget::begin(&self.directory, disk, self.id, message.clone()))?
            }
            CopyMessage::Fetch { .. } => {
                self.give_part(from, message, now)?;
                Progress::Nothing
            }
            CopyMessage::Part { .. } => self.copies.take(from, message, now)?,
            CopyMessage::Fetched { .. } => {
                self.copies.end(from);
                Progress::Nothing
            }
        };
        self.go_on_copying(progress)
    }

    /// Answers with a part, or later when too much waits for the connection: a part that is dropped would be missed for seconds.
    fn give_part(&self, to: BrokerId, fetch: &CopyMessage, now: Millis) -> Result<(), LogError> {
        if self.shared.outboxes.has_room(to, PART_FRAME_BYTES_MAX) {
            // Not while another log takes its place, whose files have the same names.
            let read = || self.copies.read(to, fetch, now).or_else(|refused| self.refuse(to, refused, now));
            match self.working.on(self.working.log(), read).transpose()?.flatten() {
                Some(part) if !self.send_copy(to, &part) => {}
                _ => return Ok(()),
            }
        }
        self.copies.postpone(to, fetch.clone());
        Ok(())
    }

    /// A log that is not as it was written is not copied. It is marked, and the replica halts, as after a check.
    fn refuse(&self, to: BrokerId, refused: NotGiven, now: Millis) -> Result<Option<CopyMessage>, LogError> {
        self.copies.fail(to, now);
        match refused {
            NotGiven::Corrupt(found) => {
                self.take_unreadable(&found);
                Ok(None)
            }
            NotGiven::Log(error) => Err(error),
        }
    }

    fn ask_for(&self, from: BrokerId, asks: &[CopyMessage]) {
        // One that is dropped is asked for again.
        for ask in asks {
            let _ = self.send_copy(from, ask);
        }
    }

    fn go_on_copying(&self, progress: Progress) -> Result<(), CopyFailed> {
        match progress {
            Progress::Ask(from, asks) => self.ask_for(from, &asks),
            Progress::Whole => self.install()?,
            Progress::Nothing => {}
        }
        Ok(())
    }

    /// Asks again for a part that did not come, and offers again what was not fetched. It does not wait for disks.
    pub(crate) fn tick_copies(&self) {
        let now = self.shared.now().millis;
        for (broker, fetch) in self.copies.postponed() {
            self.take_copy(broker, fetch);
        }
        for broker in self.copies.lapsed(now) {
            self.soon(move |shard| shard.offer_copy(broker));
        }
        match self.copies.overdue(now) {
            Progress::Ask(from, asks) => self.ask_for(from, &asks),
            Progress::Whole => self.soon(|shard| {
                let installed = shard.install();
                shard.notice_failed_copy(shard.options.broker, installed);
            }),
            Progress::Nothing => {}
        }
    }

    /// Offers a copy of the log at the high watermark to a broker, if its replica lacks records.
    pub(crate) fn offer_copy(&self, to: BrokerId) {
        if self.copies.gives(to) {
            return;
        }
        let (copy, now) = (self.copied.fetch_add(1, Ordering::Relaxed), self.shared.now().millis);
        let give = || {
            let ticket = self
                .lock()
                .as_mut()
                .and_then(|place| place.act(|replicator, log| replicator.lacks(to).then(|| log.begin_backup())));
            Some(ticket?.and_then(|ticket| self.copies.give(to, copy, ticket, now)))
        };
        let Some(given) = self.working.on(self.working.log(), give).flatten() else { return };
        match given {
            // One that is dropped is made again once nothing was fetched of it for long.
            Ok(offer) => {
                let _ = self.send_copy(to, &offer);
            }
            Err(error) => {
                self.copies.fail(to, now);
                self.shared.events.noticed(&format!("cannot copy a log for broker {to}: {error}"));
            }
        }
    }

    /// Puts the files of a whole copy in the place of the log, if it has all that this replica acknowledged. Nothing happens while that is not
    /// known: the next tick asks again.
    fn install(&self) -> Result<(), CopyFailed> {
        let _writing = self.copies.write();
        let (from, target, before) = {
            let mut guard = self.lock();
            let Some(position) = self.copies.whole() else { return Ok(()) };
            let Some(Place::Here(replicated)) = guard.as_ref() else { return Ok(()) };
            let Some(verified) = replicated.replicator().verified() else { return Ok(()) };
            if verified.0 > position {
                self.copies.give_up(None);
                return Ok(());
            }
            let Some((from, target)) = self.copies.take_whole() else { return Ok(()) };
            // From here on the replica acknowledges nothing.
            (from, target, guard.take())
        };
        let opened = self.working.replace(|| {
            // Closed first: two must not write into one folder, nor may a copy of this log find or remove files of the next one.
            self.copies.end_all();
            drop(before);
            let finished = target.finish();
            let opened = ReplicatedLog::open(&self.directory, self.options.clone(), self.shared.now())?;
            Ok::<_, OpenError>((finished, opened))
        });
        let (finished, (replicated, state)) =
            opened.inspect_err(|_| self.readers.close("the log of this broker's replica could not be opened again"))?;
        let mut guard = self.lock();
        *guard = Some(Place::Here(Box::new(replicated)));
        if finished.is_ok() {
            self.shared.events.replaced(&self.id, state);
        }
        drop(guard);
        self.readers.wake();
        self.tell_all();
        // Without it the leader keeps the copy until nothing was fetched of it for long.
        let _ = self.send_copy(from, &finished?);
        Ok(())
    }

    /// Says whether it waits for the connection.
    pub(crate) fn send_copy(&self, to: BrokerId, message: &CopyMessage) -> bool {
        let mut frame = encode_copy(&self.id, message);
        if let CopyMessage::Part { bytes, .. } = message {
            frame.extend_from_slice(bytes);
        }
        let waits = self.shared.outboxes.put_large(to, frame);
        self.shared.wake(to);
        waits
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::mpsc::channel;

    use penstock_log::Position;
    use penstock_replication::wire::Frame;

    use super::*;
    use crate::outbox::Next;
    use crate::told_follower::{Follower, LEADER, LIMIT, leader};

    #[test]
    fn a_copy_takes_the_place_of_a_log_that_lacks_its_records() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (_log, mut source) = leader(from.path());
        let CopyMessage::Offer { position, .. } = source.offer() else { panic!("no offer") };
        let follower = Follower::open(to.path());
        follower.follow();

        follower.fetch(&mut source);

        assert_eq!(follower.end(), Position(position));
    }

    #[test]
    fn a_copy_that_ends_late_does_not_take_back_what_was_acknowledged() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (mut log, mut source) = leader(from.path());
        let follower = Follower::open(to.path());
        follower.follow();
        follower.take(&mut log);

        follower.fetch(&mut source);

        assert_eq!(follower.end(), log.end());
    }

    #[test]
    fn parts_that_find_no_room_in_the_connection_are_sent_once_there_is_room() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (mut log, source) = leader(to.path());
        let leader = Follower::open(from.path());
        let ticket = log.begin_backup().unwrap();
        drop(source);
        leader.shard.copies.give(LEADER, 7, ticket, 0).unwrap();
        while leader.shared.outboxes.put_large(LEADER, vec![0; 1 << 20]) {}

        leader.shard.copy(LEADER, &CopyMessage::Fetch { copy: 7, file: 0, at: 0, length: 9 }).unwrap();
        let sent =
            |frame: Frame<'_>| matches!(frame, Frame::Copy { message: CopyMessage::Part { .. }, .. }).then_some(());
        while let Some(Next::Message(frame)) = leader.shared.outboxes.next(LEADER) {
            assert_eq!(frame.len(), 1 << 20, "there was no room for a part");
        }
        leader.shard.tick();

        leader.said(sent);
    }

    /// It would find files of the other log at their places, take them for corrupt, and remove them as those that its own log does not need.
    #[test]
    fn a_copy_of_a_log_ends_when_another_log_takes_its_place() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (_log, mut source) = leader(from.path());
        let follower = Follower::open(to.path());
        let ticket = follower.shard.with_log(|log| log.begin_backup()).unwrap().unwrap();
        let given = follower.shard.copies.give(LEADER + 1, 8, ticket, 0).unwrap();
        assert!(matches!(given, CopyMessage::Offer { .. }) && follower.shard.copies.gives(LEADER + 1));
        follower.follow();

        follower.fetch(&mut source);

        assert!(!follower.shard.copies.gives(LEADER + 1));
    }

    #[test]
    fn a_whole_copy_waits_until_it_is_known_how_far_the_log_equals_the_leaders() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (_log, mut source) = leader(from.path());
        let CopyMessage::Offer { position, .. } = source.offer() else { panic!("no offer") };
        let follower = Follower::open(to.path());

        follower.fetch(&mut source);
        assert_eq!(follower.end(), Position(0));
        follower.follow();
        follower.shard.go_on_copying(Progress::Whole).unwrap();

        assert_eq!(follower.end(), Position(position));
    }

    #[test]
    fn a_bug_in_the_work_of_a_replica_closes_it_and_ends_no_thread() {
        let directory = tempfile::tempdir().unwrap();
        let follower = Follower::open(directory.path());
        let (done, works) = channel();

        follower.shard.soon(|_| panic!("a bug"));
        follower.shard.soon(move |_| done.send(()).unwrap());

        works.recv_timeout(LIMIT).unwrap();
        assert!(follower.shard.standing().is_none());
        let heard = follower.heard.0.lock().unwrap();
        assert!(heard.len() == 1 && heard[0].contains("a bug ended an operation"), "{heard:?}");
    }
}
