//! Messages on their way to a queue with an own log, while that queue is created or deleted: a publisher gets the
//! answer of the queue's own log.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod house;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use house::{House, open, read_all, settings};
use penstock_engine::{
    Destination, EngineError, ExchangeKind, Fate, Level, Payload, Producer, ProducerSession, Publication, QueueId,
    QueueLevels, QueueSettings, ReadFrom, Shard, StreamSettings,
};

const OWN: QueueId = QueueId(7);
const STORED: Fate = Fate::Stored(Level::Disk);
const PATIENCE: Duration = Duration::from_secs(60);

fn own() -> QueueSettings<'static> {
    let (levels, stream) = (QueueLevels::default(), Some(StreamSettings::default()));
    QueueSettings { id: OWN, name: "own", auto_delete: false, levels, stream }
}

/// Settings whose end is reached under the shard's lock: it is signalled, and waits for permission.
struct Slowly(Option<QueueSettings<'static>>, Option<(Sender<()>, Receiver<()>)>);

impl Iterator for Slowly {
    type Item = QueueSettings<'static>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_some() {
            return self.0.take();
        }
        let (began, may_end) = self.1.take()?;
        began.send(()).unwrap();
        may_end.recv_timeout(PATIENCE).unwrap();
        None
    }
}

/// Puts queues on a thread, which holds the shard's lock until it is released.
fn put_slowly(shard: &Arc<Shard>, queue: Option<QueueSettings<'static>>) -> (JoinHandle<()>, Sender<()>) {
    let ((began, has_begun), (go_on, may_end)) = (channel(), channel());
    let shard = Arc::clone(shard);
    let thread = std::thread::spawn(move || shard.put_queues(Slowly(queue, Some((began, may_end)))).unwrap());
    has_begun.recv_timeout(PATIENCE).unwrap();
    (thread, go_on)
}

/// The stream "s" in the vhost's log and "own" in its own log, both behind "all".
fn opened(directory: &Path) -> House {
    let house = open(directory);
    house.shard.dedicate(OWN).unwrap();
    house.shard.put_queues([own()]).unwrap();
    house.shard.put_exchange("all", ExchangeKind::Fanout, None).unwrap();
    for name in ["s", "own"] {
        house.shard.add_route("all", "", None, Destination::Queue(name)).unwrap();
    }
    house
}

/// Exchange, key, body, and the producer's sequence unless it is 0.
type Sent = (&'static str, &'static str, &'static str, u64);

fn send(
    shard: &Shard,
    session: Option<&ProducerSession>,
    mandatory: bool,
    sent: &[Sent],
) -> Result<Vec<Fate>, EngineError> {
    let publication = |&(exchange, key, body, sequence): &Sent| {
        let mut payload = Payload::new(exchange.as_bytes(), key.as_bytes(), b"", body.as_bytes()).unwrap();
        if let Some(session) = session.filter(|_| sequence > 0) {
            payload = payload.with_producer(Producer { id: session.id(), sequence });
        }
        let (exchange, key) = (exchange.as_bytes(), key.as_bytes());
        Publication { payload, exchange, key, headers: None, persistent: true, mandatory }
    };
    let batch: Vec<_> = sent.iter().map(publication).collect();
    let mut fates = Vec::new();
    shard.publish_as(session, &batch, Some(Level::Disk), 1, &mut fates).map(|_| fates)
}

/// The fate that a publish returns while another thread holds a lock.
fn sent_soon(shard: &Arc<Shard>, sent: Sent) -> Fate {
    let (done, is_done) = channel();
    let shard = Arc::clone(shard);
    std::thread::spawn(move || done.send(send(&shard, None, true, &[sent]).unwrap()[0]).unwrap());
    is_done.recv_timeout(PATIENCE / 2).expect("it was routed to a queue that is not there")
}

fn bodies(house: &House, id: QueueId) -> Vec<String> {
    let mut reader = house.shard.home_of(id).read(id, settings(ReadFrom::First, None)).unwrap();
    read_all(&mut reader).into_iter().map(|said| said.body).collect()
}

/// The vhost's routing named the queue before the queue's own log had it. That log could not store the message, its
/// answer was ignored, and a mandatory message was confirmed.
#[test]
fn a_message_that_its_queues_own_log_does_not_take_is_not_confirmed() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    house.shard.home_of(OWN).delete_queue(OWN).unwrap();

    let sent = [("", "own", "a", 0), ("all", "", "b", 0)];
    assert_eq!(send(&house.shard, None, true, &sent).unwrap(), [Fate::Returned, STORED]);
    assert_eq!(send(&house.shard, None, false, &sent).unwrap(), [Fate::Unroutable, STORED]);
    let session = house.shard.open_producer("p", "anna").unwrap();
    let fates = send(&house.shard, Some(&session), true, &[("", "own", "a", 1)]).unwrap();
    assert_eq!(fates, [Fate::Returned]);
    house.shard.put_queues([own()]).unwrap();
    let fates = send(&house.shard, Some(&session), true, &[("", "own", "b", 2), ("", "own", "a", 1)]).unwrap();
    assert_eq!(fates, [Fate::Behind(1), STORED], "nothing overtakes what was returned");

    assert_eq!(bodies(&house, house::STREAM), ["b", "b"]);
    assert_eq!(bodies(&house, OWN), ["a"]);
    house.close();
}

#[test]
fn nothing_is_routed_to_a_queue_before_its_own_log_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let house = open(directory.path());
    house.shard.dedicate(OWN).unwrap();
    let (holder, let_go) = put_slowly(&house.shard.home_of(OWN), None);
    let (declarer, may_declare) = put_slowly(&house.shard, Some(own()));
    may_declare.send(()).unwrap();

    assert_eq!(sent_soon(&house.shard, ("", "own", "a", 0)), Fate::Returned);

    let_go.send(()).unwrap();
    holder.join().unwrap();
    declarer.join().unwrap();
    assert_eq!(sent_soon(&house.shard, ("", "own", "b", 0)), STORED);
    assert_eq!(bodies(&house, OWN), ["b"]);
    house.close();
}

#[test]
fn nothing_is_routed_to_a_queue_whose_own_log_is_about_to_go() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    let (holder, let_go) = put_slowly(&house.shard.home_of(OWN), None);
    let shard = Arc::clone(&house.shard);
    let deleter = std::thread::spawn(move || shard.delete_queue(OWN).unwrap());
    while !Arc::ptr_eq(&house.shard.home_of(OWN), &house.shard) {
        std::thread::yield_now();
    }

    assert_eq!(sent_soon(&house.shard, ("", "own", "a", 0)), Fate::Returned);
    assert_eq!(sent_soon(&house.shard, ("all", "", "b", 0)), STORED);

    let_go.send(()).unwrap();
    holder.join().unwrap();
    assert_eq!(deleter.join().unwrap(), 0);
    house.close();
}

/// A publish of the named producer "p" that was routed and waits for the log of "own", and the means to release it.
struct OnItsWay {
    session: ProducerSession,
    publisher: JoinHandle<Result<Vec<Fate>, EngineError>>,
    holder: JoinHandle<()>,
    let_go: Sender<()>,
}

/// The second of its publishes, with the sequence 2.
fn publish_on_its_way(house: &House) -> OnItsWay {
    let (shard, old) = (Arc::clone(&house.shard), house.shard.open_producer("p", "anna").unwrap());
    assert_eq!(send(&shard, Some(&old), true, &[("", "own", "first", 1)]).unwrap(), [STORED]);
    let (holder, let_go) = put_slowly(&house.shard.home_of(OWN), None);
    let session = old.clone();
    let publisher =
        std::thread::spawn(move || send(&shard, Some(&old), true, &[("", "s", "without", 0), ("", "own", "old", 2)]));
    while house.shard.queue_counts(&[house::STREAM]).unwrap()[0].ready_count == 0 {
        std::thread::yield_now();
    }
    OnItsWay { session, publisher, holder, let_go }
}

impl OnItsWay {
    fn ends(self) -> Result<Vec<Fate>, EngineError> {
        self.let_go.send(()).unwrap();
        self.holder.join().unwrap();
        self.publisher.join().unwrap()
    }
}

/// Waits until a session has ended.
fn ended(house: &House, session: &ProducerSession) {
    while !matches!(
        send(&house.shard, Some(session), true, &[("nowhere", "", "x", 9)]),
        Err(EngineError::ProducerTaken(_))
    ) {
        std::thread::yield_now();
    }
}

/// The session was checked when the message was routed and not again when it was stored: the new owner of the name read
/// the highest sequence too early, assigned the next one to another message, and that one counted as a duplicate.
#[test]
fn a_publish_on_its_way_is_not_stored_after_its_name_was_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    let on_its_way = publish_on_its_way(&house);

    let new = house.shard.open_producer("p", "anna").unwrap();
    assert!(matches!(on_its_way.ends(), Err(EngineError::ProducerTaken(_))));

    assert_eq!(house.shard.sequence_in_family("p").unwrap(), Some(1));
    assert_eq!(send(&house.shard, Some(&new), true, &[("", "own", "new", 2)]).unwrap(), [STORED]);
    assert_eq!(bodies(&house, OWN), ["first", "new"]);
    house.close();
}

#[test]
fn a_publish_on_its_way_does_not_bring_a_deleted_name_back() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    let on_its_way = publish_on_its_way(&house);
    let shard = Arc::clone(&house.shard);

    let deleter = std::thread::spawn(move || shard.delete_producer("p").unwrap());
    ended(&house, &on_its_way.session);
    assert!(house.shard.producer_owner("p").unwrap().is_some(), "a crash now leaves a name that can be deleted");
    assert!(matches!(on_its_way.ends(), Err(EngineError::ProducerTaken(_))));
    assert!(deleter.join().unwrap());

    assert_eq!(house.shard.home_of(OWN).producers().unwrap(), []);
    assert!(!house.shard.delete_producer("p").unwrap());
    let (shard, fresh) = (&house.shard, house.shard.open_producer("p", "anna").unwrap());
    assert_eq!(send(shard, Some(&fresh), true, &[("", "own", "new", 1)]).unwrap(), [STORED]);
    assert_eq!(bodies(&house, OWN), ["first", "new"]);
    house.close();
}

/// The log of the queue kept what the new session published: the next one's first messages were confirmed and not stored.
#[test]
fn nothing_is_left_of_a_name_that_is_opened_again_while_it_is_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    let on_its_way = publish_on_its_way(&house);
    let shard = Arc::clone(&house.shard);
    let deleter = std::thread::spawn(move || shard.delete_producer("p").unwrap());
    ended(&house, &on_its_way.session);

    let (shard, again) = (Arc::clone(&house.shard), house.shard.open_producer("p", "anna").unwrap());
    let publisher = std::thread::spawn(move || send(&shard, Some(&again), true, &[("", "own", "between", 5)]));
    std::thread::park_timeout(Duration::from_millis(20));
    assert!(on_its_way.ends().is_err());
    assert!(deleter.join().unwrap());
    // It was stored, or came too late.
    let _ = publisher.join().unwrap();

    assert_eq!(house.shard.home_of(OWN).producers().unwrap(), []);
    assert_eq!(house.shard.producers().unwrap(), []);
    house.close();
}

/// The vhost did not check the log that holds the message, waited for a stored message, and refused all later ones.
#[test]
fn what_a_caller_refuses_itself_holds_nothing_back_when_an_own_log_has_it() {
    let directory = tempfile::tempdir().unwrap();
    for first in [1, 3] {
        let house = opened(directory.path());
        let session = house.shard.open_producer("p", "anna").unwrap();
        let fates = |sequence| send(&house.shard, Some(&session), true, &[("", "own", "m", sequence)]).unwrap();
        // The second round finds the first one's messages, after a restart.
        if first == 1 {
            assert_eq!((fates(1), fates(2)), (vec![STORED], vec![STORED]));
        }

        house.shard.refuse(&session, 2).unwrap();
        assert_eq!(fates(first + 2), [STORED], "2 is stored, whatever became of its copy");
        house.shard.refuse(&session, first + 3).unwrap();

        assert_eq!(fates(first + 4), [Fate::Behind(first + 3)]);
        house.close();
    }
}

/// The deletion failed with the log of a queue that was deleted meanwhile.
#[test]
fn the_names_of_a_user_are_deleted_also_while_a_queue_goes_with_its_log() {
    const OTHER: QueueId = QueueId(8);
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    house.shard.dedicate(OTHER).unwrap();
    house.shard.put_queues([QueueSettings { id: OTHER, name: "other", ..own() }]).unwrap();
    let sessions = ["p", "q"].map(|name| house.shard.open_producer(name, "anna").unwrap());
    for (session, queue) in sessions.iter().zip(["own", "other"]) {
        assert_eq!(send(&house.shard, Some(session), true, &[("", queue, "first", 1)]).unwrap(), [STORED]);
    }
    let (holder, let_go) = put_slowly(&house.shard.home_of(OWN), None);
    let shard = Arc::clone(&house.shard);
    let deleter = std::thread::spawn(move || shard.delete_producers_of("anna"));
    sessions.iter().for_each(|session| ended(&house, session));
    std::thread::park_timeout(Duration::from_millis(20));

    house.shard.delete_queue(OTHER).unwrap();
    let_go.send(()).unwrap();
    holder.join().unwrap();

    assert_eq!(deleter.join().unwrap().unwrap(), 2);
    assert_eq!(house.shard.producers_of_family().unwrap(), []);
    house.close();
}
