//! Outcomes of published messages, collected until the application takes them. Neighbours with the same outcome become
//! one range, so a steady stream of confirms has one entry however late it is taken.

/// `OutcomeRange::code` of confirmed messages.
pub const CONFIRMED: i32 = 0;
/// `OutcomeRange::code` of mandatory messages that reached no queue. Other codes are those of gRPC.
pub const RETURNED: i32 = -1;

/// Outcome of the messages `first` to `last`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutcomeRange {
    pub first: u64,
    pub last: u64,
    pub code: i32,
    pub reason: String,
}

#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    ranges: Vec<OutcomeRange>,
}

impl Outcomes {
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(crate) fn push(&mut self, first: u64, last: u64, code: i32, reason: &str) {
        match self.ranges.last_mut() {
            Some(end) if end.last.checked_add(1) == Some(first) && end.code == code && end.reason == reason => {
                end.last = last;
            }
            _ => self.ranges.push(OutcomeRange { first, last, code, reason: reason.to_owned() }),
        }
    }

    pub(crate) fn take(&mut self) -> Vec<OutcomeRange> {
        std::mem::take(&mut self.ranges)
    }
}
