//! An eventfd that wakes an event loop. It is written once when there is something to take and read once when all of it
//! was taken, so a busy stream costs no system call per message.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};
use tonic::Code;

use crate::error::RpcError;

#[derive(Debug)]
pub(crate) struct Wake {
    fd: OwnedFd,
}

impl Wake {
    pub(crate) fn new() -> Result<Self, RpcError> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| {
            RpcError::new(Code::ResourceExhausted, format!("no eventfd ({error}); raise the limit of open files"))
        })?;
        Ok(Self { fd })
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Makes it readable. It fails only when the counter is readable already.
    pub(crate) fn set(&self) {
        let _ = rustix::io::write(self.fd.as_fd(), &1u64.to_le_bytes());
    }

    /// Makes it unreadable; does nothing when it is.
    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(self.fd.as_fd(), &mut [0u8; 8]);
    }
}
