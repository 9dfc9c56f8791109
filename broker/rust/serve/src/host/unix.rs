//! Unix sockets: a file that clients of this machine connect to, without TLS and without addresses.
//!
//! What must stay true: the file has its permissions before any client can connect, a broker that listens is never replaced, and
//! neither a start nor a stop removes a file of another process. A file that a killed broker left is replaced. The file goes with
//! the listener, whatever ends that, if it is still the listener's own.
//!
//! A start that replaces a file and a stop that removes one lock the folder meanwhile, so that brokers do not meet in between. The
//! lock is the kernel's and leaves nothing behind.

use std::fs::{File, Metadata, Permissions};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use tokio::net::{UnixListener, UnixSocket, UnixStream};

/// The user and the group of the broker may connect.
const MODE: u32 = 0o660;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// How often a start tries to lock the folder, and the time between two of them. Others hold it for some system calls.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// A file by its device and its number in that, which no other file has while the socket is open.
type FileId = (u64, u64);

/// A socket that listens. Dropping it removes its file.
#[derive(Debug)]
pub(crate) struct Listener {
    /// Dropped after the file is removed.
    listener: UnixListener,
    path: PathBuf,
    file: FileId,
}

impl Listener {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Accepts a connection; nothing is lost when this is dropped.
    ///
    /// # Errors
    /// Those of the system.
    pub async fn accept(&self) -> Result<UnixStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Without the lock the file is looked at all the same: only a start in this very moment could be missed.
        let _lock = folder_of(&self.path).inspect(|folder| {
            let _ = flock(folder, FlockOperation::NonBlockingLockExclusive);
        });
        // A file that cannot be removed is replaced by the next start.
        let _ = remove_if_same(&self.path, self.file);
    }
}

/// Binds a path.
///
/// # Errors
/// When another process listens there, when the file there is no socket, or when none can be made.
pub(crate) async fn bind(path: &Path) -> Result<Listener> {
    let _lock = lock_folder(path).await?;
    if let Some(left) = find_left(path).await? {
        remove_if_same(path, left)?;
    }
    let socket = UnixSocket::new_stream()?;
    // This makes the file, and fails where another process has made one meanwhile. Until the socket listens no client connects.
    socket.bind(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(MODE))?;
    let file = id_of(&std::fs::symlink_metadata(path)?);
    Ok(Listener { listener: socket.listen(BACKLOG)?, path: path.to_owned(), file })
}

/// The file of a socket that no process listens at any more, if there is one.
async fn find_left(path: &Path) -> Result<Option<FileId>> {
    let found = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        found => found?,
    };
    if !found.file_type().is_socket() {
        return Err(Error::new(ErrorKind::AlreadyExists, "the file there is not a socket"));
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(Some(id_of(&found))),
        // So many connections wait there already that it takes no more.
        Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
        _ => Err(Error::new(ErrorKind::AddrInUse, "another process listens there")),
    }
}

fn id_of(found: &Metadata) -> FileId {
    (found.dev(), found.ino())
}

fn remove_if_same(path: &Path, file: FileId) -> Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if id_of(&found) == file => std::fs::remove_file(path),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The folder of a file, to be locked; nothing where it may not be read.
fn folder_of(path: &Path) -> Option<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new("."))).ok()
}

/// Locks the folder of a file until the answer is dropped.
async fn lock_folder(path: &Path) -> Result<Option<File>> {
    let Some(folder) = folder_of(path) else { return Ok(None) };
    for _ in 0..LOCK_TRIES {
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(folder)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => tokio::time::sleep(LOCK_PAUSE).await,
            // The file system has no locks.
            Err(_) => return Ok(None),
        }
    }
    Err(Error::new(ErrorKind::WouldBlock, "another process keeps the folder locked"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::ErrorKind;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    use std::os::unix::net::UnixListener;

    use super::bind;

    #[tokio::test]
    async fn a_file_that_no_process_listens_at_is_replaced_and_one_of_a_listener_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("amqp.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a killed broker leaves its file");

        let listener = bind(&path).await.unwrap();

        let found = std::fs::metadata(&path).unwrap();
        assert!(found.file_type().is_socket());
        assert_eq!(found.permissions().mode() & 0o777, 0o660);
        assert_eq!(bind(&path).await.unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(listener);
    }

    #[tokio::test]
    async fn the_file_goes_with_its_listener_and_no_other_one_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        let (path, beside) = (folder.path().join("amqp.sock"), folder.path().join("amqp.sock.new"));
        std::fs::write(&beside, "mine").unwrap();

        let listener = bind(&path).await.unwrap();
        drop(listener);

        assert!(!path.exists());
        assert_eq!(std::fs::read_to_string(&beside).unwrap(), "mine");
    }

    #[tokio::test]
    async fn a_file_that_another_process_has_put_there_meanwhile_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("amqp.sock");
        let listener = bind(&path).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        let others = UnixListener::bind(&path).unwrap();

        drop(listener);

        assert!(path.exists());
        drop(others);
    }

    #[tokio::test]
    async fn a_listener_that_takes_no_more_connections_is_not_replaced_and_holds_no_start_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("amqp.sock");
        let others = tokio::net::UnixSocket::new_stream().unwrap();
        others.bind(&path).unwrap();
        let others = others.listen(0).unwrap();
        let first = tokio::net::UnixStream::connect(&path).await.unwrap();

        assert_eq!(bind(&path).await.unwrap_err().kind(), ErrorKind::AddrInUse);

        drop((first, others));
    }

    #[tokio::test]
    async fn of_two_starts_at_once_one_has_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("amqp.sock");
        drop(UnixListener::bind(&path).unwrap());

        let (first, second) = tokio::join!(bind(&path), bind(&path));

        let kinds = [&first, &second].map(|bound| bound.as_ref().err().map(std::io::Error::kind));
        assert!(kinds.contains(&None) && kinds.contains(&Some(ErrorKind::AddrInUse)), "{kinds:?}");
        assert!(path.exists());
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        std::fs::write(&path, "mine").unwrap();

        assert_eq!(bind(&path).await.unwrap_err().kind(), ErrorKind::AlreadyExists);

        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }
}
