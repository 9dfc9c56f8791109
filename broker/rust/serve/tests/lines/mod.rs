//! A protocol of text lines on the host, as small as one can be that logs in, publishes, consumes and settles.
//!
//! `LOGIN user password`, `PUBLISH exchange key body`, `CONSUME queue`, `ACK consumer sequence`; a dash is the empty exchange.
//! Consumers are numbered from 1 on; all of a connection wake it by one ring, and share the credit of `CREDIT count`. `TURNS` asks
//! how often it was woken, and how many turns that gave. Answers are lines, too.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::future::pending;
use std::ops::ControlFlow;
use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use penstock_engine::{Credit, Sequence, SequenceRange, Settle};
use penstock_serve::host::{
    Broker, Caller, Connection, ConsumeOptions, Consuming, Decided, Kind, Message, Obstacle, Protocol, Publishing,
    Refusal, Ring, Room, Source, Turn,
};
use penstock_wire::Name;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

pub const LINES: Protocol = Protocol {
    name: "lines",
    alpn: &[b"lines"],
    refusal: |reason| format!("REFUSED {reason}\n").into_bytes(),
    web: None,
};

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
    let mut client = Client::new(broker, peer.caller(""));
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
    consumers: BTreeMap<u64, Consuming>,
    ring: Ring,
    credit: Arc<Credit>,
    /// The numbers of consumers that have a turn.
    rung: Vec<u64>,
    woken: usize,
    turns: usize,
}

impl Client {
    fn new(broker: Broker, caller: Caller) -> Client {
        let (consumers, ring, credit) = (BTreeMap::new(), Ring::default(), Arc::new(Credit::new(u32::MAX)));
        let (is_known, publisher, rung, woken, turns) = (false, None, Vec::new(), 0, 0);
        Client { broker, caller, is_known, publisher, consumers, ring, credit, rung, woken, turns }
    }

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
                    let (vhost, no_name) = (name("/")?, name("")?);
                    let opened = Publishing::open(&self.broker, self.caller.clone(), vhost, None, no_name).await?;
                    self.publisher = Some((opened, Unstored::default()));
                }
                let message = [exchange.trim_start_matches('-'), key, body].map(str::to_owned);
                name(&message[0])?;
                name(&message[1])?;
                self.publisher.iter_mut().for_each(|(_, unstored)| unstored.0.push_back(message.clone()));
            }
            ["CONSUME", queue] => {
                let (vhost, queue, consumer_tag, prefetch) = (name("/")?, name(queue)?, name("")?, 2);
                let options = ConsumeOptions { vhost, queue, consumer_tag, prefetch, ..ConsumeOptions::default() };
                let number = self.consumers.len() as u64 + 1;
                let (caller, ring) = (self.caller.clone(), Some((&self.ring, number)));
                let opened = Consuming::open_with(&self.broker, caller, options, ring, Some(&self.credit)).await?;
                self.consumers.insert(number, opened);
                self.rung.push(number);
            }
            ["ACK", number, sequence] => {
                let number = number.parse().unwrap_or(0);
                let (Some(consumer), Ok(sequence)) = (self.consumers.get_mut(&number), sequence.parse()) else {
                    return Err(Refusal::new(Kind::InvalidArgument, "no consumer, or no number"));
                };
                let range = SequenceRange { first: Sequence(sequence), last: Sequence(sequence) };
                let count = consumer.settle(&[range], Settle::Ack).await?;
                let _ = writeln!(out, "SETTLED {count}");
                self.rung.push(number);
            }
            ["CREDIT", count] => self.credit.set_limit(count.parse().unwrap_or(u32::MAX)),
            ["TURNS"] => {
                let _ = writeln!(out, "WOKEN {} TURNS {}", self.woken, self.turns);
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
        for number in std::mem::take(&mut self.rung) {
            let Some(consumer) = self.consumers.get_mut(&number) else { continue };
            consumer.ring();
            self.turns += 1;
            while let Turn::Send = turn_of(consumer).await? {
                consumer
                    .send(&mut |view, picked| {
                        let (sequence, body) = (picked.taken.sequence.0, String::from_utf8_lossy(view.body));
                        let again = if picked.taken.redelivered { " again" } else { "" };
                        let _ = writeln!(out, "MESSAGE {number} {sequence} {body}{again}");
                        Ok(Room::ForMore)
                    })
                    .await?;
            }
        }
        Ok(())
    }

    /// Waits until something was synced, or consumers have their turn.
    async fn until_work(&mut self) -> Result<(), Refusal> {
        let waiting = self.publisher.as_ref().and_then(|(publisher, _)| publisher.oldest_waiting());
        let synced = async {
            match &waiting {
                Some(places) => places.wait().await,
                None => pending().await,
            }
        };
        tokio::select! {
            synced = synced => return synced.map_err(Refusal::from),
            () = self.ring.heard() => {}
        }
        self.woken += 1;
        self.ring.take(&mut self.rung);
        Ok(())
    }

    /// The client hears why, and may begin anew.
    fn refuse(&mut self, out: &mut String, refused: &Refusal) {
        let _ = writeln!(out, "REFUSED {:?} {}", refused.kind, refused.text);
        self.publisher = None;
        self.consumers.clear();
    }
}

async fn turn_of(consumer: &mut Consuming) -> Result<Turn, Refusal> {
    match consumer.turn(false).await? {
        Turn::Cancelled(reason) => Err(Refusal::new(Kind::NotFound, reason)),
        turn => Ok(turn),
    }
}

fn name(text: &str) -> Result<Name<'_>, Refusal> {
    Name::new("a name", text.as_bytes()).map_err(Refusal::from)
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
            let (exchange, routing_key) = (Name::new("", exchange.as_bytes())?, Name::new("", routing_key.as_bytes())?);
            let body = body.as_bytes();
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
