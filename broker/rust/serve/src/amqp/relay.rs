//! The way of a client to the broker that leads its virtual host: this broker has admitted the client, and says its log-in again there.
//!
//! What must stay true: the client hears one answer to its `connection.open`, the leader's. Nothing of the log-in is kept once that is
//! there. Whatever the leader sends, no more is held of it than one frame.

mod flow;
pub(super) mod splice;

use std::io::{Error, ErrorKind};
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use penstock_wire::Name;
use penstock_wire::amqp::connection::Limits;
use penstock_wire::amqp::frame::next_frame;
use penstock_wire::amqp::replay::{Answered, Replay};
use penstock_wire::amqp::reply::{Exception, ReplyCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::greeting::OFFERED;
use crate::host::peer::Peer;
use crate::host::relay::{Duplex, Relays};
use crate::host::rights::Rights;

/// A client's log-in as it came, what was agreed with it, and where it wants to go.
pub(super) struct LogIn<'a> {
    pub start_ok: &'a [u8],
    pub limits: Limits,
    pub virtual_host: Name<'a>,
}

/// A connection to the leader that is in the virtual host.
pub(super) struct Relayed {
    pub leader: String,
    pub vhost: String,
    pub stream: Box<dyn Duplex>,
    /// Frames of the leader for the client. The first one is `connection.open-ok`.
    pub came: BytesMut,
    /// Whether that broker still leads, once that is watched.
    pub rights: Option<Rights>,
}

/// The leader's answer.
pub(super) enum Opened {
    There(Box<Relayed>),
    Refused(Exception),
}

/// Opens a connection of the client at the leader.
///
/// It fails when the leader cannot be reached, or does not answer as it has to.
pub(super) async fn open(
    relays: &Arc<dyn Relays>,
    (leader, vhost): (&str, &str),
    peer: &Peer,
    log_in: LogIn<'_>,
) -> std::io::Result<Opened> {
    let mut stream = relays.open(leader, peer.relayed()).await?;
    let mut said = Vec::new();
    let mut replay = Replay::begin(log_in.start_ok, log_in.limits, log_in.virtual_host, &mut said);
    stream.write_all(&said).await?;
    stream.flush().await?;
    drop(said);
    let mut came = BytesMut::new();
    loop {
        while let Some((frame, length)) = next_frame(&came, OFFERED.frame_bytes_max).map_err(Error::other)? {
            match replay.take(frame).map_err(Error::other)? {
                Answered::NotYet => came.advance(length),
                Answered::Opened => {
                    let (leader, vhost) = (leader.to_owned(), vhost.to_owned());
                    return Ok(Opened::There(Box::new(Relayed { leader, vhost, stream, came, rights: None })));
                }
                Answered::Closed { reply_code, reply_text, method } => {
                    let code = ReplyCode::of(reply_code).unwrap_or(ReplyCode::NotAllowed);
                    let text = reply_text.strip_prefix(code.name()).and_then(|text| text.strip_prefix(" - "));
                    return Ok(Opened::Refused(Exception::new(code, text.unwrap_or(&reply_text), method)));
                }
            }
        }
        if stream.read_buf(&mut came).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
}
