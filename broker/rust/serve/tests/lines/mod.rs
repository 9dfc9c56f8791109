//! A protocol of text lines on the host, as small as one can be that logs in, publishes, consumes and settles.
//!
//! `LOGIN user password`, `PUBLISH exchange key body`, `CONSUME queue`, `ACK sequence`; a dash is the empty exchange. Answers are
//! lines, too.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::future::pending;
use std::ops::ControlFlow;

use futures_util::{Stream, StreamExt};
use penstock_engine::{Sequence, SequenceRange, Settle};
use penstock_serve::host::{
    Broker, Caller, Connection, ConsumeOptions, Consuming, Decided, Kind, Message, Obstacle, Protocol, Publishing,
    Refusal, Room, Source, Turn,
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

pub const LINES: Protocol =
    Protocol { alpn: &[b"lines"], refusal: |reason| format!("REFUSED {reason}\n").into_bytes() };

/// Serves connections until the broker stops.
pub async fn serve(broker: Broker, connections: impl Stream<Item = std::io::Result<Connection>>) {
    let (mut connections, mut stopping) = (std::pin::pin!(connections), broker.stopping.clone());
    loop {
        tokio::select! {
            connection = connections.next() => {
                let Some(Ok(connection)) = connection else { return };
                tokio::spawn(converse(broker.clone(), connection));
            }
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
    }
}

async fn converse(broker: Broker, connection: Connection) {
    let peer = connection.peer().clone();
    let (reading, mut writing) = tokio::io::split(connection);
    let mut lines = BufReader::new(reading).lines();
    let mut client = Client { caller: peer.caller(""), broker, is_known: false, publisher: None, consumer: None };
    let mut out = String::new();
    loop {
        if let Err(refused) = client.work(&mut out).await {
            client.refuse(&mut out, &refused);
        }
        if writing.write_all(out.as_bytes()).await.is_err() {
            return;
        }
        out.clear();
        let happened = tokio::select! {
            line = lines.next_line() => match line {
                Ok(Some(line)) => {
                    peer.asks();
                    client.take(&line, &mut out, |authorization| peer.caller(authorization)).await
                }
                _ => return,
            },
            happened = client.until_work() => happened,
        };
        if let Err(refused) = happened {
            client.refuse(&mut out, &refused);
        }
    }
}

struct Client {
    broker: Broker,
    caller: Caller,
    is_known: bool,
    publisher: Option<(Publishing, Unstored)>,
    consumer: Option<Consuming>,
}

impl Client {
    async fn take(&mut self, line: &str, out: &mut String, caller: impl FnOnce(&str) -> Caller) -> Result<(), Refusal> {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["LOGIN", user, password] => {
                self.caller = caller(&format!("Basic {user}:{password}"));
                let admitted = self.broker.log_in(&self.caller).await?;
                self.is_known = true;
                let _ = writeln!(out, "WELCOME {}", admitted.user);
            }
            _ if !self.is_known => return Err(Refusal::new(Kind::Unauthenticated, "log in first")),
            ["PUBLISH", exchange, key, body] => {
                if self.publisher.is_none() {
                    let opened = Publishing::open(&self.broker, self.caller.clone(), "/", None, "").await?;
                    self.publisher = Some((opened, Unstored::default()));
                }
                let message = [exchange.trim_start_matches('-'), key, body].map(str::to_owned);
                self.publisher.iter_mut().for_each(|(_, unstored)| unstored.0.push_back(message.clone()));
            }
            ["CONSUME", queue] => {
                let (vhost, consumer_tag, prefetch) = ("/", "", 2);
                let options =
                    ConsumeOptions { vhost, queue, consumer_tag, prefetch, auto_ack: false, exclusive: false };
                self.consumer = Some(Consuming::open(&self.broker, self.caller.clone(), options).await?);
            }
            ["ACK", sequence] => {
                let (Some(consumer), Ok(number)) = (&mut self.consumer, sequence.parse()) else {
                    return Err(Refusal::new(Kind::InvalidArgument, "no consumer, or no number"));
                };
                let range = SequenceRange { first: Sequence(number), last: Sequence(number) };
                let count = consumer.settle(&[range], Settle::Ack).await?;
                let _ = writeln!(out, "SETTLED {count}");
            }
            _ => return Err(Refusal::new(Kind::InvalidArgument, "no such line")),
        }
        Ok(())
    }

    /// Stores what came, and writes what there is to be told.
    async fn work(&mut self, out: &mut String) -> Result<(), Refusal> {
        if let Some((publisher, unstored)) = &mut self.publisher {
            while !unstored.is_empty() && !publisher.is_crowded() {
                publisher.store(unstored).await?;
            }
            publisher.note_synced();
            publisher.tell(|decided| tell(decided, out));
        }
        let Some(consumer) = &mut self.consumer else { return Ok(()) };
        loop {
            match consumer.turn(false).await? {
                Turn::Send => {
                    consumer
                        .send(&mut |view, picked| {
                            let (number, body) = (picked.taken.sequence.0, String::from_utf8_lossy(view.body));
                            let again = if picked.taken.redelivered { " again" } else { "" };
                            let _ = writeln!(out, "MESSAGE {number} {body}{again}");
                            Ok(Room::ForMore)
                        })
                        .await?;
                }
                Turn::Wait(_) => return Ok(()),
                Turn::Cancelled(reason) => return Err(Refusal::new(Kind::NotFound, reason)),
            }
        }
    }

    /// Waits until something was synced, or the consumer has its turn.
    async fn until_work(&mut self) -> Result<(), Refusal> {
        let waiting = self.publisher.as_ref().and_then(|(publisher, _)| publisher.oldest_waiting());
        let synced = async {
            match &waiting {
                Some(places) => places.wait().await,
                None => pending().await,
            }
        };
        let turn = async {
            match &mut self.consumer {
                Some(consumer) => consumer.until_turn(None).await,
                None => pending().await,
            }
        };
        tokio::select! {
            synced = synced => synced.map_err(Refusal::from),
            turn = turn => turn,
        }
    }

    /// The client hears why, and may begin anew.
    fn refuse(&mut self, out: &mut String, refused: &Refusal) {
        let _ = writeln!(out, "REFUSED {:?} {}", refused.kind, refused.text);
        (self.publisher, self.consumer) = (None, None);
    }
}

fn tell(decided: &Decided, out: &mut String) {
    for (first, last) in &decided.confirmed {
        let _ = writeln!(out, "CONFIRMED {first} {last}");
    }
    for (number, reason) in &decided.returned {
        let _ = writeln!(out, "RETURNED {number} {reason}");
    }
    for (first, last, refused) in &decided.rejected {
        let _ = writeln!(out, "REJECTED {first} {last} {}", refused.text);
    }
}

/// Messages that came, each with its exchange, key and body.
#[derive(Default)]
struct Unstored(VecDeque<[String; 3]>);

impl Source for Unstored {
    type End = usize;

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn message_count(&self) -> usize {
        self.0.len()
    }

    fn each<'a>(
        &'a self,
        messages_max: usize,
        mut take: impl FnMut(Message<'a, usize>) -> Result<ControlFlow<()>, Obstacle>,
    ) -> Result<(), Obstacle> {
        for (at, [exchange, routing_key, body]) in self.0.iter().enumerate().take(messages_max) {
            let (exchange, routing_key, body) = (exchange.as_bytes(), routing_key.as_bytes(), body.as_bytes());
            let (properties, key, mandatory, sequence, end) = (None, None, true, None, at + 1);
            let delay_ms = None;
            let message = Message { exchange, routing_key, properties, body, key, mandatory, delay_ms, sequence, end };
            if take(message)?.is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn advance(&mut self, end: usize) -> usize {
        self.0.drain(..end).map(|message| message.iter().map(String::len).sum::<usize>()).sum()
    }
}
