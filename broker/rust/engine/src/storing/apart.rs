//! Messages whose queues are in other logs: those are noted, and the caller passes the message on.

use penstock_queue::QueueId;

use crate::error::EngineError;
use crate::log_number::LogNumber;
use crate::publication::{PassedOn, Publication};
use crate::state::State;

impl State {
    /// Notes which of a message's queues are elsewhere; returns whether all are. This log knows of all logs of a producer
    /// before it has a later message of it.
    pub(super) fn set_apart(
        &mut self,
        queues: &[QueueId],
        publication: &Publication<'_>,
        place: usize,
    ) -> Result<bool, EngineError> {
        let before = self.passed_on.len();
        let elsewhere = queues.iter().filter_map(|&queue| Some((queue, self.elsewhere.get(&queue)?.log)));
        self.passed_on.extend(elsewhere.map(|(queue, log)| PassedOn { log, queue, place, is_all: false }));
        let is_all = self.passed_on.len() - before == queues.len();
        self.passed_on.iter_mut().skip(before).for_each(|one| one.is_all = is_all);
        if let Some(producer) = publication.payload.producer() {
            let apart = self.passed_on.iter().skip(before).map(|one| one.log);
            let here = (!is_all).then_some(LogNumber::VHOST);
            if let Some(logs) = self.producers.reaching(producer.id, apart.chain(here)) {
                self.note_logs(producer.id, &logs).inspect_err(|_| self.passed_on.truncate(before))?;
                self.producers.reached(producer.id, logs);
            }
        }
        Ok(is_all)
    }
}
