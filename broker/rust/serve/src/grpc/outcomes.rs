//! What became of a stream's messages: confirmed ranges, returned and rejected numbers, and what waits for the disk.

use std::collections::VecDeque;

use penstock_wire::grpc::publish::encode_publish_response;

use crate::grpc::responses::FramedMessage;
use crate::grpc::status;
use crate::host::refusal::Refusal;

/// Ranges that may wait for a sync before the stream stops reading.
const WAITING_MAX: usize = 65_536;

/// Invariant: rounds in `waiting` only grow, and no number is in two places.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    confirmed: Vec<(u64, u64)>,
    confirmed_count: u64,
    returned: Vec<(u64, &'static str)>,
    rejected: Vec<(u64, u64, Refusal)>,
    waiting: VecDeque<(u64, u64, u64)>,
}

impl Outcomes {
    pub fn confirm(&mut self, number: u64) {
        self.confirm_range(number, number);
    }

    fn confirm_range(&mut self, first: u64, last: u64) {
        self.confirmed_count += last - first + 1;
        match self.confirmed.last_mut() {
            Some((_, end)) if *end + 1 == first => *end = last,
            _ => self.confirmed.push((first, last)),
        }
    }

    /// Confirms the number once its round is on the disk.
    pub fn wait(&mut self, number: u64, round: u64) {
        match self.waiting.back_mut() {
            Some((_, last, at)) if *last + 1 == number && *at == round => *last = number,
            _ => self.waiting.push_back((number, number, round)),
        }
    }

    pub fn give_back(&mut self, number: u64) {
        self.returned.push((number, "NO_ROUTE"));
    }

    pub fn reject(&mut self, number: u64, refused: &Refusal) {
        match self.rejected.last_mut() {
            Some((_, last, before)) if *last + 1 == number && before == refused => *last = number,
            _ => self.rejected.push((number, number, refused.clone())),
        }
    }

    /// Confirms what waited for a round up to `synced`.
    pub fn synced(&mut self, synced: u64) {
        while let Some(&(first, last, round)) = self.waiting.front() {
            if round > synced {
                break;
            }
            self.waiting.pop_front();
            self.confirm_range(first, last);
        }
    }

    /// The round of the oldest message that waits.
    pub fn next_round(&self) -> Option<u64> {
        self.waiting.front().map(|&(_, _, round)| round)
    }

    /// The round of the newest message that waits.
    pub fn last_round(&self) -> Option<u64> {
        self.waiting.back().map(|&(_, _, round)| round)
    }

    pub fn is_crowded(&self) -> bool {
        self.waiting.len() >= WAITING_MAX
    }

    pub fn returned_count(&self) -> u64 {
        self.returned.len() as u64
    }

    /// The next response and how many messages it confirms, when there is anything to say.
    pub fn take(&mut self) -> Option<(FramedMessage, u64)> {
        if self.confirmed.is_empty() && self.returned.is_empty() && self.rejected.is_empty() {
            return None;
        }
        let rejected: Vec<(u64, u64, i32, &str)> = self
            .rejected
            .iter()
            .map(|(first, last, refused)| (*first, *last, status::code_of(refused.kind) as i32, refused.text.as_str()))
            .collect();
        let out = FramedMessage::of(16 + 16 * self.confirmed.len(), |out| {
            encode_publish_response(out, &self.confirmed, &self.returned, &rejected);
        });
        self.confirmed.clear();
        self.returned.clear();
        self.rejected.clear();
        Some((out, std::mem::take(&mut self.confirmed_count)))
    }
}

#[cfg(test)]
mod tests {
    use super::Outcomes;

    #[test]
    fn a_confirm_waits_for_its_round_and_goes_out_as_a_range() {
        let mut outcomes = Outcomes::default();
        outcomes.wait(1, 100);
        outcomes.wait(2, 100);
        outcomes.wait(3, 200);
        assert!(outcomes.take().is_none());

        outcomes.synced(150);

        assert_eq!(outcomes.take().map(|(_, count)| count), Some(2));
        assert_eq!(outcomes.next_round(), Some(200));
    }

    #[test]
    fn an_os_confirm_does_not_wait_behind_a_disk_confirm() {
        let mut outcomes = Outcomes::default();
        outcomes.wait(1, 100);
        outcomes.confirm(2);

        assert_eq!(outcomes.take().map(|(_, count)| count), Some(1));
    }
}
