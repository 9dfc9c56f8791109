//! A connection's socket with one buffer for each direction. Reading and writing never block; waiting is a call of its own, with a
//! time limit. It knows frames, and no method.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use penstock_wire::amqp::frame::{EMPTY_FRAME_BYTES, Frame, next_frame};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The largest frame that is offered to the broker.
pub(super) const FRAME_BYTES_MAX: u32 = 131_072;
/// A whole frame fits always.
const INPUT_BYTES: usize = 2 * FRAME_BYTES_MAX as usize + EMPTY_FRAME_BYTES;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// See the module.
pub(super) struct Link {
    socket: TcpStream,
    input: Vec<u8>,
    /// The part of `input` that was received and not taken.
    start: usize,
    end: usize,
    /// Bytes to send; the first `written` of them were sent.
    pub out: Vec<u8>,
    written: usize,
    pub frame_bytes_max: u32,
}

impl Link {
    pub fn connect(host: &str, port: u16) -> Result<Link, String> {
        let cannot = |error: std::io::Error| format!("cannot connect to {host}:{port}: {error}");
        let mut last = std::io::Error::new(ErrorKind::NotFound, "the name has no address");
        for address in (host, port).to_socket_addrs().map_err(cannot)? {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(socket) => {
                    socket.set_nodelay(true).and_then(|()| socket.set_nonblocking(true)).map_err(cannot)?;
                    let (input, out) = (vec![0; INPUT_BYTES], Vec::new());
                    let frame_bytes_max = FRAME_BYTES_MAX;
                    return Ok(Link { socket, input, start: 0, end: 0, out, written: 0, frame_bytes_max });
                }
                Err(error) => last = error,
            }
        }
        Err(cannot(last))
    }

    /// How many bytes wait to be sent.
    pub fn unwritten(&self) -> usize {
        self.out.len() - self.written
    }

    /// Reads what there is, and returns whether it was anything.
    pub fn read(&mut self) -> Result<bool, String> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.input.len() - self.end < self.input.len() / 2 {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let space = self.input.get_mut(self.end..).unwrap_or_default();
        match self.socket.read(space) {
            Ok(0) if space.is_empty() => Ok(false),
            Ok(0) => Err("the broker has closed the connection".to_owned()),
            Ok(count) => {
                self.end += count;
                Ok(true)
            }
            Err(error) if is_not_ready(&error) => Ok(false),
            Err(error) => Err(format!("the connection is lost: {error}")),
        }
    }

    /// Hands each complete frame to `take`, with the buffer for answers, until it wants no more.
    pub fn frames(
        &mut self,
        mut take: impl FnMut(Frame<'_>, &mut Vec<u8>) -> Result<bool, String>,
    ) -> Result<(), String> {
        loop {
            let received = self.input.get(self.start..self.end).unwrap_or_default();
            let Some((frame, length)) =
                next_frame(received, self.frame_bytes_max).map_err(|error| error.to_string())?
            else {
                return Ok(());
            };
            let goes_on = take(frame, &mut self.out);
            self.start += length;
            if !goes_on? {
                return Ok(());
            }
        }
    }

    /// Sends as much as the socket takes.
    pub fn write(&mut self) -> Result<(), String> {
        while self.unwritten() > 0 {
            match self.socket.write(self.out.get(self.written..).unwrap_or_default()) {
                Ok(0) => return Err("the broker has closed the connection".to_owned()),
                Ok(count) => self.written += count,
                Err(error) if is_not_ready(&error) => return Ok(()),
                Err(error) => return Err(format!("the connection is lost: {error}")),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(())
    }

    /// Waits until something can be read, or written if anything is to be, and no longer than `limit`.
    pub fn wait(&self, limit: Duration) {
        let writes = if self.unwritten() > 0 { PollFlags::OUT } else { PollFlags::empty() };
        let mut sockets = [PollFd::new(&self.socket, PollFlags::IN | writes)];
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        // An interrupted wait was a short one.
        let _ = poll(&mut sockets, Some(&limit));
    }
}

fn is_not_ready(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
