//! The processor time of the broker's process, from /proc.

use std::fs;
use std::time::Duration;

/// Linux counts in these, whatever its own clock's rate is.
const TICKS_PER_SECOND: u64 = 100;

/// Return the time that a process of this machine has used so far, of all its threads.
pub(super) fn used(pid: u32) -> Result<Duration, String> {
    let file = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&file).map_err(|error| format!("the process {pid} cannot be measured: {error}"))?;
    ticks(&stat)
        .map(|ticks| Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND))
        .ok_or_else(|| format!("{file} cannot be read"))
}

/// The 14th and the 15th field; the second is a name, which may have spaces and parentheses.
fn ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11).map(str::parse::<u64>);
    Some(fields.next()?.ok()? + fields.next()?.ok()?)
}

#[cfg(test)]
mod tests {
    use super::{ticks, used};

    #[test]
    fn user_and_system_time_count() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194304 5 0 0 0 30 12 0 0 20 0 3 0 100 0 0";

        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks("nothing"), None);
        assert!(used(std::process::id()).is_ok());
    }
}
