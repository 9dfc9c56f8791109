//! How effects of the state machine change the log and the disk.
//!
//! Invariants: effects are carried out in order, and the events that they cause come after them. A sync is reported once the log says so,
//! never for records that were written in place of cut ones. The high watermark of the log is the machine's.

use penstock_log::{Begun, Log, LogError, Position};
use penstock_replica::{Effect, Epoch, Event, Role};

use crate::publishes::Published;
use crate::replicator::{Output, Replicator};
use crate::work::{Work, WorkDone};

impl Replicator {
    /// Passes all events to the machine, those included that its effects cause.
    pub(crate) fn run(&mut self, log: &mut Log) {
        loop {
            while let Some(event) = self.events.pop_front() {
                for effect in self.replica.step(self.now.millis, event) {
                    self.carry_out(log, effect);
                }
            }
            // The machine does not take records of a message that it has taken.
            self.incoming = None;
            let synced = log.synced();
            if synced <= self.known_synced {
                break;
            }
            // Beginning an epoch may sync the log, so that no work does.
            self.known_synced = synced;
            self.events.push_back(Event::Synced(synced.0));
        }
        self.sync_soon(log);
    }

    fn carry_out(&mut self, log: &mut Log, effect: Effect) {
        match effect {
            Effect::Send { to, message } => self.outputs.push(Output::Send { to, message }),
            Effect::Replicate { to, broker, epoch, after, until, of } => {
                self.want(to, broker, epoch, (after, until, of));
            }
            Effect::Promise(epoch) => self.promise(epoch),
            Effect::Begin(epoch) => self.begin(log, epoch),
            Effect::Write { after, until, begins } => self.write_incoming(log, (after, until), begins),
            Effect::Truncate(position) => self.truncate(log, Position(position)),
            Effect::Read(read) => self.outputs.push(Output::Read(read)),
            Effect::Change { change, base, record } => self.outputs.push(Output::Change { change, base, record }),
            Effect::Commit(position) => self.commit(log, Position(position)),
            Effect::Role(role) => self.take_role(role),
        }
    }

    fn begin(&mut self, log: &mut Log, epoch: Epoch) {
        let begun = Begun { at_ms: self.now.unix_ms, leader: self.me.replica.to_le_bytes() };
        match log.follow_epoch(epoch, 0, begun).and_then(|_| log.write()) {
            Ok(end) => {
                self.known_end = end;
                self.events.push_back(Event::Appended(end.0));
            }
            Err(error) => self.fail(error),
        }
    }

    fn write_incoming(&mut self, log: &mut Log, (after, until): (u64, u64), begins: Option<Epoch>) {
        let Some(records) = self.incoming.take() else {
            unreachable!("the machine writes what came with a message");
        };
        assert_eq!((records.after().0, records.until().0), (after, until), "other records came with the message");
        assert!(begins.is_none_or(|epoch| epoch == records.epoch()), "another epoch begins");
        match log.append_records(&records).and_then(|_| log.write()) {
            Ok(end) => self.known_end = end,
            Err(error) => self.fail(error),
        }
    }

    fn truncate(&mut self, log: &mut Log, position: Position) {
        match log.truncate_to(position) {
            Ok(()) => {
                self.known_end = position;
                self.known_synced = self.known_synced.min(position);
                self.events.push_back(Event::Truncated(position.0));
            }
            Err(error) => self.fail(error),
        }
    }

    fn commit(&mut self, log: &mut Log, position: Position) {
        if let Err(error) = log.set_bound(position) {
            return self.fail(error);
        }
        self.outputs.push(Output::Committed(position));
        let ended = self.publishes.committed(position.0);
        self.outputs.extend(ended.map(|publish| Output::Ended { publish, how: Published::Committed }));
    }

    /// Publishes of a leader that stops leading have an unknown outcome.
    fn take_role(&mut self, role: Role) {
        let epoch = |role: Role| if let Role::Leader { epoch, .. } = role { Some(epoch) } else { None };
        if epoch(role) != epoch(self.role) {
            let ended = self.publishes.unknown();
            self.outputs.extend(ended.map(|publish| Output::Ended { publish, how: Published::Unknown }));
            self.wanted.clear();
            self.lacking.clear();
        }
        self.role = role;
        self.outputs.push(Output::Role(role));
    }

    fn promise(&mut self, epoch: Epoch) {
        if self.is_promising {
            self.next_promise = self.next_promise.max(Some(epoch));
            return;
        }
        self.is_promising = true;
        self.outputs.push(Output::Work(Work::Promise(self.promise_file.begin(epoch))));
    }

    /// Has everything synced that was written, once the last sync has ended.
    pub(crate) fn sync_soon(&mut self, log: &mut Log) {
        if self.is_syncing || matches!(self.role, Role::Halted(_)) {
            return;
        }
        if let Some(ticket) = log.begin_sync() {
            self.is_syncing = true;
            self.outputs.push(Output::Work(Work::Sync(ticket)));
        }
    }

    pub(crate) fn take_done(&mut self, log: &mut Log, done: WorkDone) {
        match done {
            WorkDone::Synced(synced) => {
                self.is_syncing = false;
                match synced {
                    Ok(synced) => log.finish_sync(synced),
                    Err(error) => self.fail(error),
                }
            }
            WorkDone::Promised(promised) => {
                self.is_promising = false;
                match promised {
                    Ok(epoch) => self.events.push_back(Event::Promised(epoch)),
                    Err(source) => {
                        let path = self.promise_file.path().to_owned();
                        return self.fail(LogError::Io { action: "sync", path, source });
                    }
                }
                if let Some(epoch) = self.next_promise.take() {
                    self.promise(epoch);
                }
            }
        }
    }

    /// The disk failed: the machine halts.
    pub(crate) fn fail(&mut self, error: LogError) {
        self.outputs.push(Output::Failed(error));
        self.events.push_front(Event::DiskFailed);
    }
}
