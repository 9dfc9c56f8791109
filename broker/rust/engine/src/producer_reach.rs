//! The logs of producers in the table of a shard, for the vhost's shard: `producer_logs` says what they mean.

use std::num::NonZeroU64;

use crate::log_number::LogNumber;
use crate::producer_logs::{Found, Logs, Sequences, joined, united};
use crate::producers::{Producers, Standing};

impl Standing {
    fn found(&self) -> Found {
        let logs = self.logs.clone().or_else(|| self.noted.clone());
        let complete = if logs.is_some() { self.complete_noted() } else { 0 };
        Found { highest: self.highest, logs, complete }
    }

    /// The logs with these too; `None` when all of them are known, or when this log is the only one.
    fn reaching(&self, others: impl Iterator<Item = LogNumber> + Clone) -> Option<Logs> {
        match &self.logs {
            Some(known) => {
                let is_new = others.clone().any(|log| !known.contains(&log));
                is_new.then(|| united(known, others))
            }
            None => {
                let is_elsewhere = others.clone().any(|log| log != LogNumber::VHOST);
                let here = (self.highest > 0).then_some(LogNumber::VHOST);
                is_elsewhere.then(|| united(here.as_slice(), others))
            }
        }
    }
}

impl Producers {
    /// See [`Standing::reaching`].
    pub fn reaching(&self, id: NonZeroU64, others: impl Iterator<Item = LogNumber> + Clone) -> Option<Logs> {
        self.standing(id).and_then(|standing| standing.reaching(others))
    }

    /// Note that the logs of a producer's messages are written in this log, and up to where all of them have all.
    pub fn noted_logs(&mut self, id: NonZeroU64, complete: u64, logs: &Logs) {
        let Some(standing) = self.standing_mut(id) else { return };
        (standing.noted, standing.complete_written) = (Some(Logs::clone(logs)), complete);
    }

    /// Note the logs that a producer's messages go to, in the vhost's shard.
    pub fn reached(&mut self, id: NonZeroU64, logs: Logs) {
        let Some(standing) = self.standing_mut(id) else { return };
        if standing.logs.replace(logs).is_none() {
            // So far this log was the only one.
            standing.set_complete(standing.highest);
        }
    }

    /// The logs of a producer that has messages in others than this one.
    pub fn logs(&self, id: NonZeroU64) -> Option<&Logs> {
        self.standing(id)?.logs.as_ref()
    }

    /// What this log knows of a name.
    pub fn found(&self, name: &str) -> Option<Found> {
        let standing = self.standing(self.id_of(name)?)?;
        Some(standing.found())
    }

    /// Take over what all logs know of a producer.
    pub fn learn(&mut self, id: NonZeroU64, elsewhere: &[(LogNumber, Found)]) {
        let Some(standing) = self.standing_mut(id) else { return };
        let (logs, Sequences { complete, .. }) = joined(&standing.found(), elsewhere);
        standing.set_complete(complete);
        standing.logs = logs;
        standing.set_learned(true);
    }

    /// Note that messages of a producer came that goes to several logs.
    pub fn changed(&mut self, id: NonZeroU64) {
        self.changed.insert(id);
    }

    /// Take some producers whose messages came since, with what is complete of them, and all of their logs.
    pub fn take_changed(&mut self, count_max: usize) -> (Vec<(NonZeroU64, u64)>, Logs) {
        let ids: Vec<_> = self.changed.iter().take(count_max).copied().collect();
        for id in &ids {
            self.changed.remove(id);
        }
        let standing = ids.into_iter().filter_map(|id| Some((id, self.standing(id)?)));
        let found: Vec<_> = standing.map(|(id, found)| (id, found.complete_noted(), found.logs.clone())).collect();
        let logs = found.iter().filter_map(|(_, _, logs)| logs.as_deref()).flatten().copied();
        (found.iter().map(|(id, complete, _)| (*id, *complete)).collect(), united(&[], logs))
    }

    /// The logs of a producer of whose messages all up to here are complete, unless that is written.
    pub fn noting(&self, id: NonZeroU64, complete: u64) -> Option<Logs> {
        let standing = self.standing(id)?;
        let logs = standing.logs.as_ref().filter(|logs| logs.len() > 1);
        let is_new = complete > standing.complete_written && complete <= standing.complete_noted();
        logs.filter(|_| is_new).cloned()
    }

    /// A log was opened that may know producers.
    pub fn unlearn_all(&mut self) {
        self.all_standing().for_each(|(_, standing)| standing.set_learned(false));
    }

    /// A log was deleted. Return the producers that it left without any of their messages.
    pub fn drop_log(&mut self, log: LogNumber, is_open: impl Fn(LogNumber) -> bool) -> Vec<NonZeroU64> {
        let mut left = Vec::new();
        for (id, standing) in self.all_standing() {
            let known = standing.logs.as_ref().or(standing.noted.as_ref());
            let Some(known) = known.filter(|known| known.contains(&log)) else { continue };
            let rest: Logs = known.iter().copied().filter(|one| *one == LogNumber::VHOST || is_open(*one)).collect();
            left.extend((rest.is_empty() && standing.highest == 0).then_some(id));
            standing.logs = standing.logs.as_ref().map(|_| rest);
        }
        left
    }

    /// A producer without any of its messages begins anew.
    pub fn begin_anew(&mut self, id: NonZeroU64) {
        let Some(standing) = self.standing_mut(id) else { return };
        (standing.logs, standing.noted, standing.complete_written) = (None, None, 0);
        standing.set_complete(0);
    }
}
