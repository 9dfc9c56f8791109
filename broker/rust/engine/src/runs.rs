//! Ranges of numbers that have messages, and how a long list of them is shortened.

/// At most `runs_max` runs: the smallest gaps between them are left out, of equal ones the first. So what a start skipped,
/// which is large, stays a gap longest.
#[must_use]
pub fn joined(runs: Vec<(u64, u64)>, runs_max: usize) -> Vec<(u64, u64)> {
    let excess = runs.len().saturating_sub(runs_max.max(1));
    if excess == 0 {
        return runs;
    }
    let gap = |pair: &[(u64, u64)]| match pair {
        [before, after] => after.0 - before.1,
        _ => 0,
    };
    let mut gaps: Vec<(u64, usize)> = runs.windows(2).map(gap).zip(1..).collect();
    gaps.select_nth_unstable(excess - 1);
    let mut left_out: Vec<usize> = gaps.into_iter().take(excess).map(|(_, at)| at).collect();
    left_out.sort_unstable();
    let mut left_out = left_out.into_iter().peekable();
    let mut shorter: Vec<(u64, u64)> = Vec::with_capacity(runs_max);
    for (at, run) in runs.into_iter().enumerate() {
        match shorter.last_mut() {
            Some(last) if left_out.next_if_eq(&at).is_some() => last.1 = run.1,
            _ => shorter.push(run),
        }
    }
    shorter
}

#[cfg(test)]
mod tests {
    use super::joined;

    #[test]
    fn few_runs_stay_as_they_are() {
        assert_eq!(joined(vec![], 3), []);
        assert_eq!(joined(vec![(1, 5), (7, 9), (20, 30)], 3), [(1, 5), (7, 9), (20, 30)]);
    }

    #[test]
    fn the_smallest_gaps_are_left_out() {
        let runs =
            vec![(1, 5), (6, 9), (1 << 32, 20 + (1 << 32)), (22 + (1 << 32), 30 + (1 << 32)), (2 << 32, 3 << 32)];

        assert_eq!(joined(runs.clone(), 4), [(1, 9), runs[2], runs[3], runs[4]]);
        assert_eq!(joined(runs.clone(), 3), [(1, 9), (1 << 32, 30 + (1 << 32)), runs[4]]);
        assert_eq!(joined(runs.clone(), 2), [(1, 9), (1 << 32, 3 << 32)]);
        assert_eq!(joined(runs, 0), [(1, 3 << 32)]);
    }

    #[test]
    fn of_equal_gaps_the_first_are_left_out() {
        assert_eq!(joined((0..10).map(|at| (2 * at, 2 * at + 1)).collect(), 3), [(0, 15), (16, 17), (18, 19)]);
    }
}
