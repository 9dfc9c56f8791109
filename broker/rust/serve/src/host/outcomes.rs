//! What became of a publisher's messages: confirmed ranges, returned and rejected numbers, and what waits for the disk.

use std::collections::VecDeque;

use crate::host::refusal::Refusal;

/// Ranges that may wait for a sync before nothing more is read from the publisher.
const WAITING_MAX: usize = 65_536;

/// What a publisher is to be told, by the numbers that it counts.
#[derive(Debug, Default)]
pub struct Decided {
    /// First and last numbers of ranges.
    pub confirmed: Vec<(u64, u64)>,
    pub returned: Vec<(u64, &'static str)>,
    /// First and last numbers of ranges, and why.
    pub rejected: Vec<(u64, u64, Refusal)>,
}

/// Invariant: rounds in `waiting` only grow, and no number is in two places.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    decided: Decided,
    confirmed_count: u64,
    waiting: VecDeque<(u64, u64, u64)>,
}

impl Outcomes {
    pub fn confirm(&mut self, number: u64) {
        self.confirm_range(number, number);
    }

    fn confirm_range(&mut self, first: u64, last: u64) {
        self.confirmed_count += last - first + 1;
        match self.decided.confirmed.last_mut() {
            Some((_, end)) if *end + 1 == first => *end = last,
            _ => self.decided.confirmed.push((first, last)),
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
        self.decided.returned.push((number, "NO_ROUTE"));
    }

    pub fn reject(&mut self, number: u64, refused: &Refusal) {
        match self.decided.rejected.last_mut() {
            Some((_, last, before)) if *last + 1 == number && before == refused => *last = number,
            _ => self.decided.rejected.push((number, number, refused.clone())),
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
        self.decided.returned.len() as u64
    }

    /// Hands over what the publisher is to be told, and how many messages that confirms, when there is anything.
    pub fn take<T>(&mut self, tell: impl FnOnce(&Decided) -> T) -> Option<(T, u64)> {
        let decided = &mut self.decided;
        if decided.confirmed.is_empty() && decided.returned.is_empty() && decided.rejected.is_empty() {
            return None;
        }
        let told = tell(decided);
        decided.confirmed.clear();
        decided.returned.clear();
        decided.rejected.clear();
        Some((told, std::mem::take(&mut self.confirmed_count)))
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
        assert!(outcomes.take(|_| ()).is_none());

        outcomes.synced(150);

        assert_eq!(outcomes.take(|_| ()).map(|(_, count)| count), Some(2));
        assert_eq!(outcomes.next_round(), Some(200));
    }

    #[test]
    fn an_os_confirm_does_not_wait_behind_a_disk_confirm() {
        let mut outcomes = Outcomes::default();
        outcomes.wait(1, 100);
        outcomes.confirm(2);

        assert_eq!(outcomes.take(|_| ()).map(|(_, count)| count), Some(1));
    }
}
