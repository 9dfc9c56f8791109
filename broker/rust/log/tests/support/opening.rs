//! Opening logs as a broker does.

use std::path::Path;

use penstock_log::{Begun, Log, LogError, LogOptions, Opened};

pub fn small_segments() -> LogOptions {
    LogOptions { segment_bytes_min: 512, segment_bytes_max: 4096, ..LogOptions::default() }
}

pub fn open(directory: &Path) -> Opened {
    open_with(directory, small_segments()).unwrap()
}

/// Opens a log as a broker does.
pub fn open_with(directory: &Path, options: LogOptions) -> Result<Opened, LogError> {
    let mut opened = Log::open(directory, options)?;
    opened.begin_epoch(Begun::default())?;
    Ok(opened)
}
