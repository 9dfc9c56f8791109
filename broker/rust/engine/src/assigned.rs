//! The sequences that the messages of a batch got in their queues, for protocols whose confirms name them.
//!
//! Messages that follow each other in the batch and in the queue are one run, so a batch for one queue is one entry however
//! long it is.

use penstock_queue::{QueueId, Sequence};

/// Consecutive messages of a batch with consecutive sequences in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assigned {
    pub queue: QueueId,
    /// The index of the first of them in the batch.
    pub place: usize,
    /// Its sequence.
    pub first: Sequence,
    pub count: usize,
}

/// Adds one more message, by its index in the batch.
pub(crate) fn assign(runs: &mut Vec<Assigned>, queue: QueueId, place: usize, sequence: Sequence) {
    match runs.last_mut() {
        Some(last) if last.queue == queue && last.place + last.count == place && end_of(last) == sequence => {
            last.count += 1;
        }
        _ => runs.push(Assigned { queue, place, first: sequence, count: 1 }),
    }
}

/// Adds runs whose indexes count from `places`: the message at index n of theirs is at `places(n)` of the batch.
pub(crate) fn assign_all(runs: &mut Vec<Assigned>, added: &[Assigned], places: impl Fn(usize) -> Option<usize>) {
    for run in added {
        for (index, number) in (run.place..run.place + run.count).zip(run.first.0..) {
            if let Some(place) = places(index) {
                assign(runs, run.queue, place, Sequence(number));
            }
        }
    }
}

fn end_of(run: &Assigned) -> Sequence {
    Sequence(run.first.0 + run.count as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: QueueId = QueueId(1);
    const OTHER: QueueId = QueueId(2);

    fn run(queue: QueueId, place: usize, first: u64, count: usize) -> Assigned {
        Assigned { queue, place, first: Sequence(first), count }
    }

    #[test]
    fn a_gap_in_the_batch_or_in_the_queue_begins_another_run() {
        let mut runs = Vec::new();
        for (queue, place, sequence) in [(ONE, 0, 7), (ONE, 1, 8), (ONE, 3, 9), (ONE, 4, 11), (OTHER, 5, 12)] {
            assign(&mut runs, queue, place, Sequence(sequence));
        }

        assert_eq!(runs, [run(ONE, 0, 7, 2), run(ONE, 3, 9, 1), run(ONE, 4, 11, 1), run(OTHER, 5, 12, 1)]);
    }

    #[test]
    fn runs_of_a_part_of_the_batch_are_placed_in_the_whole() {
        let places = [2, 3, 6];
        let mut runs = vec![run(OTHER, 0, 1, 2)];

        assign_all(&mut runs, &[run(ONE, 0, 20, 3)], |index| places.get(index).copied());

        assert_eq!(runs, [run(OTHER, 0, 1, 2), run(ONE, 2, 20, 2), run(ONE, 6, 22, 1)]);
    }
}
