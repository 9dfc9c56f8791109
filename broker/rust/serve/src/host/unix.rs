//! Unix sockets: a file that clients of this machine connect to, without TLS and without addresses.
//!
//! What must stay true: the file has its permissions before any client can connect, a broker that listens is never replaced, and
//! no file is removed that is not a socket. A file that a killed broker left is replaced.

use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

/// The user and the group of the broker may connect.
const MODE: u32 = 0o660;

/// Binds a path.
///
/// # Errors
/// When another process listens there, when the file there is no socket, or when none can be made.
pub(crate) fn bind(path: &Path) -> Result<UnixListener> {
    refuse_if_taken(path)?;
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    remove_if_there(&new)?;
    let listener = UnixListener::bind(&new)?;
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(MODE))?;
    std::fs::rename(&new, path)?;
    Ok(listener)
}

fn refuse_if_taken(path: &Path) -> Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            Err(Error::new(ErrorKind::AlreadyExists, "the file there is not a socket"))
        }
        Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(Error::new(ErrorKind::AddrInUse, "another process listens there")),
        },
    }
}

/// Removes a file that may be gone already.
///
/// # Errors
/// When it stays.
pub(crate) fn remove_if_there(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::ErrorKind;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};

    use super::bind;

    #[tokio::test]
    async fn a_file_that_nobody_listens_at_is_replaced_and_one_of_a_listener_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("amqp.sock");
        drop(bind(&path).unwrap());
        assert!(path.exists(), "a killed broker leaves its file");

        let listener = bind(&path).unwrap();

        let found = std::fs::metadata(&path).unwrap();
        assert!(found.file_type().is_socket());
        assert_eq!(found.permissions().mode() & 0o777, 0o660);
        assert_eq!(bind(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(listener);
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        std::fs::write(&path, "mine").unwrap();

        assert_eq!(bind(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);

        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }
}
