//! Why a replica cannot be opened.

use std::path::PathBuf;

use penstock_log::LogError;
use penstock_replica::Epoch;

/// Why a replica cannot be opened. Messages name the thing, the rule and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(
        "the log in {} has lost records that were on its disk, the first at byte {at} of {file}; move the folder away, \
         so that the replica begins anew with the records of the others",
        path.display()
    )]
    RecordsLost { path: PathBuf, file: String, at: u64 },
    #[error(
        "the log in {} is gone, and the file 'replica' beside it has a promise of epoch {promised}, so that it may have \
         had confirmed records; move the folder away, so that the replica begins anew with the records of the others",
        path.display()
    )]
    LogGone { path: PathBuf, promised: Epoch },
    #[error("{} is not the file of a replica's promise, or both its checksums do not match; move the folder away, \
             so that the replica begins anew with the records of the others", path.display())]
    Promise { path: PathBuf },
    #[error("{} has format {found}, this version reads up to {supported}; start a newer version", path.display())]
    NewerPromise { path: PathBuf, found: u32, supported: u32 },
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
}
