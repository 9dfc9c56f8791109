//! A connection whose virtual host another broker leads: bytes go to and fro between the client and the leader, unread.
//!
//! What must stay true: each direction holds one read at most, so whoever does not read is sent no more. What is held counts in the
//! budget of memory; while that is spent, reads are small, and do not wait. Heartbeats go from end to end. The client hears why its
//! connection ends when it was sent whole frames; otherwise its socket is closed.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use penstock_wire::amqp::reply::Exception;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::timeout;

use super::super::errors::{leader_gone, led_elsewhere, of_end, of_user, shutdown};
use super::Relayed;
use super::flow::{Cut, Flow, Side, Watch};
use crate::host::connection::{Connection, Ended};
use crate::host::memory::{Outgoing, Part, Share};
use crate::host::refusal::{Kind, Refusal};
use crate::host::relay::Duplex;
use crate::host::rights::{Rights, until_refused};
use crate::host::stopping::until_stopped;

/// So much is read at a time, and so much while the budget of memory is spent.
const READ_BYTES: usize = 64 << 10;
const READ_BYTES_SHORT: usize = 4 << 10;

/// The time that the last frames have to reach the client, and the last bytes of a client that is gone to reach the leader.
const LAST_WORDS: Duration = Duration::from_secs(1);
const LAST_BYTES: Duration = Duration::from_secs(10);

/// See the module.
pub(in crate::amqp) struct Splice {
    leader: String,
    vhost: String,
    stream: Box<dyn Duplex>,
    /// From the client to the leader.
    up: Flow,
    /// From the leader to the client.
    down: Flow,
    cut: Cut,
    share: Share,
    shared: usize,
    part: Part,
    outgoing: Outgoing,
    /// Whether the leader still leads.
    rights: Option<Rights>,
    stopping: watch::Receiver<bool>,
}

enum End {
    ByClient,
    ByLeader,
    /// Another broker leads, and that one may not know it yet; or the virtual host is gone.
    Refused(Refusal),
    Here(Ended),
    Stopping,
}

impl Splice {
    /// Goes on with a connection whose virtual host is open at the leader. `unwritten` is for the client, and `input` came behind its
    /// `connection.open`.
    pub fn new(
        relayed: Relayed,
        socket: &Connection,
        (unwritten, input): (&[u8], BytesMut),
        stopping: watch::Receiver<bool>,
    ) -> Splice {
        let Relayed { leader, vhost, stream, came, rights } = relayed;
        let account = &socket.peer().state.account;
        let (mut cut, mut first) = (Cut::default(), BytesMut::from(unwritten));
        cut.came(first.len(), &came);
        first.extend_from_slice(&came);
        Splice {
            leader,
            vhost,
            stream,
            up: Flow::new(input),
            down: Flow::new(first),
            cut,
            share: Share::new(account),
            shared: 0,
            part: Part::take(account, 0),
            outgoing: Outgoing::new(account),
            rights,
            stopping,
        }
    }

    pub async fn run(mut self, mut socket: Box<Connection>) {
        let (mut stopping, mut rights) = (self.stopping.clone(), self.rights.take());
        let end = tokio::select! {
            end = poll_fn(|cx| self.poll(&mut socket, cx)) => end,
            () = until_stopped(&mut stopping) => End::Stopping,
            refused = until_refused(&mut rights) => End::Refused(refused),
        };
        let exception = match end {
            End::ByClient => {
                drop(socket);
                return self.say_to_leader().await;
            }
            End::ByLeader => Some(leader_gone(&self.leader, &self.vhost)),
            End::Refused(refused) if refused.kind == Kind::LedElsewhere => Some(led_elsewhere(&self.vhost)),
            End::Refused(refused) => Some(of_user(&refused)),
            End::Here(ended) => of_end(ended),
            End::Stopping => Some(shutdown()),
        };
        let last = self.last_words(exception);
        // What it held is free before, and the leader hears of the end.
        drop(self);
        if let Some(last) = last {
            socket.say_last(&last, LAST_WORDS).await;
        }
    }

    fn poll(&mut self, socket: &mut Connection, cx: &mut Context<'_>) -> Poll<End> {
        if let Poll::Ready(ended) = socket.poll_ended(cx) {
            return Poll::Ready(End::Here(ended));
        }
        let has_room = self.outgoing.has_room();
        let down = self.down.poll((&mut self.stream, socket), read_bytes(has_room), &mut self.cut, cx);
        if let Poll::Ready(side) = down {
            return Poll::Ready(if side == Side::Source { End::ByLeader } else { End::ByClient });
        }
        let has_room = self.share.has_room();
        let up = self.up.poll((socket, &mut self.stream), read_bytes(has_room), &mut (), cx);
        self.count();
        up.map(|side| if side == Side::Source { End::ByClient } else { End::ByLeader })
    }

    /// Counts what waits to be written in the budget of memory.
    fn count(&mut self) {
        let held = self.up.bytes().len();
        match held.checked_sub(self.shared) {
            Some(0) => {}
            Some(more) => self.share.take(more, true),
            None => self.share.give_back(self.shared - held),
        }
        self.shared = held;
        self.part.resize(self.down.bytes().len());
    }

    /// Sends the leader what the client has sent before it went.
    async fn say_to_leader(mut self) {
        let said = async {
            self.stream.write_all(self.up.bytes()).await?;
            self.stream.shutdown().await?;
            // It has read everything when it ends the connection, too.
            let mut rest = vec![0; READ_BYTES_SHORT];
            while self.stream.read(&mut rest).await? > 0 {}
            std::io::Result::Ok(())
        };
        // A leader that does not read it in time notices the end as well.
        let _ = timeout(LAST_BYTES, said).await;
    }

    /// What the client is sent at the end: whole frames, and the reason, unless the leader has said one.
    fn last_words(&self, exception: Option<Exception>) -> Option<Vec<u8>> {
        let unwritten = self.down.bytes();
        if self.cut.has_closed() {
            return Some(unwritten.to_vec());
        }
        let mut last = unwritten.get(..self.cut.at()?)?.to_vec();
        exception?.put_connection_close(&mut last);
        Some(last)
    }
}

fn read_bytes(has_room: bool) -> usize {
    if has_room { READ_BYTES } else { READ_BYTES_SHORT }
}

#[cfg(test)]
mod tests {
    use super::Splice;

    /// Ten thousand relayed connections that say nothing are made of this and of a task.
    #[test]
    fn a_relayed_connection_without_bytes_is_small() {
        assert!(size_of::<Splice>() <= 512, "{}", size_of::<Splice>());
    }
}
