//! The names of a log's files, as a directory lists them.

use std::path::{Path, PathBuf};

use crate::error::LogError;

/// The numbers in the names of a log's files, ascending.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) segments: Vec<u64>,
    /// Rewritten ones and their directories, by number and edition.
    pub(crate) rewritten: Vec<(u64, u32)>,
    /// The files of directories.
    pub(crate) indexes: Vec<PathBuf>,
    pub(crate) checkpoints: Vec<u64>,
    /// Files in which earlier starts recorded missing segments.
    pub(crate) lost: Vec<PathBuf>,
    pub(crate) temporary: Vec<PathBuf>,
    /// The highest number of any segment, including those rewritten, set aside, or removed with their directory left.
    pub(crate) highest: u64,
}

impl Names {
    pub(crate) fn list(directory: &Path) -> Result<Names, LogError> {
        let io = |error| LogError::io("list", directory, error);
        let mut names = Names::default();
        for entry in std::fs::read_dir(directory).map_err(io)? {
            let path = entry.map_err(io)?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if let Some(rest) = name.strip_prefix("msgs.") {
                names.highest = names.highest.max(number_of(name).unwrap_or(0));
                names.segments.extend(number(rest));
                let segment = rest.strip_suffix(".idx");
                names.rewritten.extend(edition(segment.unwrap_or(rest)));
                if rest.ends_with(".tmp") {
                    names.temporary.push(path);
                } else if rest.strip_suffix(".lost").and_then(number).is_some() {
                    names.lost.push(path);
                } else if segment.is_some_and(|segment| number(segment).is_some() || edition(segment).is_some()) {
                    names.indexes.push(path);
                }
            } else if let Some(rest) = name.strip_prefix("checkpoint.") {
                names.checkpoints.extend(number(rest));
                if rest.ends_with(".tmp") {
                    names.temporary.push(path);
                }
            } else if name == "manifest.tmp" || name == "truncating.tmp" {
                names.temporary.push(path);
            }
        }
        names.segments.sort_unstable();
        names.indexes.sort_unstable();
        names.checkpoints.sort_unstable();
        Ok(names)
    }
}

fn number(digits: &str) -> Option<u64> {
    (digits.len() >= 10 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok()).flatten()
}

fn edition(name: &str) -> Option<(u64, u32)> {
    let (digits, edition) = name.split_once('.')?;
    let is_edition = edition.bytes().all(|byte| byte.is_ascii_digit());
    Some((number(digits)?, edition.parse().ok().filter(|_| is_edition)?))
}

/// The number in the name of a segment as it was appended.
pub(crate) fn plain_number(file: &str) -> Option<u64> {
    number(file.strip_prefix("msgs.")?)
}

/// The number and the edition in the name of a rewritten segment.
pub(crate) fn edition_of(file: &str) -> Option<(u64, u32)> {
    edition(file.strip_prefix("msgs.")?)
}

/// The number in a segment's name, also of a rewritten one.
pub(crate) fn number_of(file: &str) -> Option<u64> {
    number(file.strip_prefix("msgs.")?.split('.').next()?)
}
