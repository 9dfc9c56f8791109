//! Brokers that connect, break, restart, and refuse each other, over real sockets.

#![allow(clippy::unwrap_used)]

mod brokers;

use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;

use brokers::{Broker, Heard, certificates, pair, settings};
use bytes::Bytes;
use penstock_peers::{Frame, Link, Peers, Secrets, Settings, StartError, Tls, Versions};

const UP: Link = Link::Up { protocol: 1 };

fn frame(head: u64, body: u32) -> Frame {
    Frame { head: Bytes::copy_from_slice(&head.to_le_bytes()), body: Bytes::copy_from_slice(&body.to_le_bytes()) }
}

/// A frame as it arrives.
fn whole(frame: &Frame) -> Bytes {
    [&frame.head[..], &frame.body[..]].concat().into()
}

fn frames_of(heard: &[Heard]) -> Vec<&Bytes> {
    heard.iter().filter_map(|heard| if let Heard::Frame(_, frame) = heard { Some(frame) } else { None }).collect()
}

#[test]
fn frames_arrive_in_order_in_both_directions() {
    let (first, second) = pair(settings(1), settings(2));
    let frames: Vec<Frame> = (0..10_000).map(|number| frame(u64::from(number % 7), number)).collect();
    first.send(2, frames.clone());
    second.send(1, frames.clone());
    for broker in [&first, &second] {
        broker.recorder.wait(|heard| (frames_of(heard).len() == frames.len()).then_some(()));
        let heard = broker.recorder.heard.lock().unwrap();
        assert!(frames_of(&heard).into_iter().eq(frames.iter().map(whole).collect::<Vec<_>>().iter()));
    }
}

#[test]
fn a_large_frame_arrives_whole() {
    let (first, second) = pair(settings(1), settings(2));
    let large = Frame { body: vec![7; 3 << 20].into(), ..Frame::default() };
    first.send(2, [large.clone()]);
    second.recorder.wait_for(&Heard::Frame(1, whole(&large)));
}

#[test]
fn a_broker_that_is_gone_is_known_as_gone_and_found_again_after_its_restart() {
    let (first, mut second) = pair(settings(1), settings(2));
    first.recorder.wait_for_links(UP, 1);
    second.kill();
    first.recorder.wait_for_links(Link::Down, 1);
    first.recorder.wait_for_links(Link::Refused, 1);
    let second = Broker::start_at(settings(2), second.address);
    first.recorder.wait_for_links(UP, 2);
    second.recorder.wait_for_links(UP, 1);
    first.send(2, [frame(1, 1)]);
    second.recorder.wait_for(&Heard::Frame(1, whole(&frame(1, 1))));
}

#[test]
fn the_side_that_was_called_knows_too_that_the_caller_is_gone() {
    let (mut first, second) = pair(settings(1), settings(2));
    second.recorder.wait_for_links(UP, 1);
    first.kill();
    second.recorder.wait_for_links(Link::Down, 1);
    second.recorder.wait_for_links(Link::Refused, 1);
}

#[test]
fn a_restarted_broker_takes_the_place_of_its_former_connection() {
    let (first, second) = pair(settings(1), settings(2));
    second.recorder.wait_for_links(UP, 1);
    let again = Broker::start(settings(1));
    // The first one would connect again, and again take the place.
    first.peers.as_ref().unwrap().forget(2);
    again.knows(2, &second);
    again.recorder.wait_for_links(UP, 1);
    again.send(2, [frame(1, 7)]);
    second.recorder.wait_for(&Heard::Frame(1, whole(&frame(1, 7))));
}

#[test]
fn a_connection_that_is_broken_on_purpose_is_made_again() {
    let (first, second) = pair(settings(1), settings(2));
    second.recorder.wait_for_links(UP, 1);
    second.peers.as_ref().unwrap().disconnect(1);
    second.recorder.wait_for_links(UP, 2);
    first.recorder.wait_for_links(UP, 2);
}

#[test]
fn a_frame_above_the_limit_breaks_the_connection_and_the_reason_is_said() {
    let (first, second) = pair(settings(1), settings(2));
    second.send(1, [Frame { body: vec![0; 5 << 20].into(), ..Frame::default() }, frame(1, 1)]);
    first.recorder.wait_for_failure("limit");
    first.recorder.wait_for_links(UP, 2);
    assert!(second.recorder.heard.lock().unwrap().contains(&Heard::Link(1, Link::Down)));
}

#[test]
fn frames_are_asked_for_only_as_the_connection_can_take_them() {
    let (first, second) = pair(settings(1), settings(2));
    second.recorder.wait_for_links(UP, 1);
    *second.recorder.holds.lock().unwrap() = true;
    let (count, bytes) = (200, 1 << 20);
    first.send(2, (0..count).map(|_| Frame { body: vec![0; bytes].into(), ..Frame::default() }));
    // As long as nothing is taken, what was asked for is bounded by windows and buffers. How far it gets does not matter, so a
    // short wait is enough for a fault to be seen.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let asked = *first.recorder.asked.lock().unwrap();
    assert!(asked < 64, "{asked} frames of 1 MiB were asked for, and none taken");
    second.recorder.release();
    second.recorder.wait(|heard| (frames_of(heard).len() == count).then_some(()));
}

/// The settings of a broker of a later version, which also speaks the first one.
fn later(number: u64) -> Settings {
    Settings { versions: Versions { protocol_lowest: 1, protocol_highest: 2, format: 3 }, ..settings(number) }
}

fn used(broker: &Broker) -> (u16, u16) {
    let used = broker.peers.as_ref().unwrap().used();
    (used.protocol, used.format)
}

#[test]
fn a_cluster_uses_a_later_version_once_all_brokers_were_heard_to_know_it() {
    let (first, mut second) = pair(later(1), later(2));
    first.recorder.wait_for_links(Link::Up { protocol: 2 }, 1);
    assert_eq!(used(&first), (2, 3), "both know it");
    second.kill();
    first.recorder.wait_for_links(Link::Down, 1);
    assert_eq!(used(&first), (2, 3), "it counts as it was heard last");

    let old = Broker::start(settings(3));
    first.peers.as_ref().unwrap().set(3, "127.0.0.1:1");
    assert_eq!(used(&first), (1, 2), "it was not heard yet");
    first.knows(3, &old);
    first.recorder.wait_for_links(UP, 1);
    assert_eq!(used(&first), (1, 2));
    assert_eq!(used(&old), (1, 2));

    drop(old);
    let upgraded = Broker::start(later(3));
    first.knows(3, &upgraded);
    first.recorder.wait_for_links(Link::Up { protocol: 2 }, 2);
    assert_eq!(used(&first), (2, 3));
}

#[test]
fn a_broker_that_is_not_of_the_cluster_any_more_holds_nothing_back() {
    let (first, _second) = pair(later(1), settings(2));
    first.recorder.wait_for_links(UP, 1);
    assert_eq!(used(&first), (1, 2));

    first.peers.as_ref().unwrap().forget(2);

    assert_eq!(used(&first), (2, 3));
}

fn refused(second: Settings, reason: &str) {
    let (first, second) = pair(settings(1), second);
    first.recorder.wait_for_failure(reason);
    let heard = [first.recorder.heard.lock().unwrap().clone(), second.recorder.heard.lock().unwrap().clone()].concat();
    assert!(!heard.iter().any(|heard| matches!(heard, Heard::Link(_, Link::Up { .. }))), "{heard:?}");
}

#[test]
fn a_broker_with_another_secret_is_refused() {
    refused(
        Settings { secrets: Secrets::new(vec!["other".into()]), ..settings(2) },
        "the secret of the cluster is another one",
    );
}

#[test]
fn a_broker_of_another_cluster_is_refused() {
    refused(Settings { cluster: [4; 16], ..settings(2) }, "broker 1 belongs to another cluster");
}

#[test]
fn a_broker_with_another_number_than_meant_is_refused() {
    let (first, third) = (Broker::start(settings(1)), Broker::start(settings(3)));
    first.knows(2, &third);
    first.recorder.wait_for_failure("broker 1 means broker 2, and this is broker 3");
}

#[test]
fn a_broker_that_shares_no_version_is_refused() {
    let versions = Versions { protocol_lowest: 2, protocol_highest: 3, format: 2 };
    refused(Settings { versions, ..settings(2) }, "speaks the versions 1-1 of the protocol and this broker 2-3");
}

#[test]
fn a_secret_is_replaced_without_a_gap() {
    let (first, second) = pair(settings(1), settings(2));
    let secrets = |secrets: &[&str]| Secrets::new(secrets.iter().map(|secret| (*secret).to_owned()).collect());
    drop((first, second));
    let (one, two) = (secrets(&["old"]), secrets(&["old"]));
    let (first, second) =
        pair(Settings { secrets: one.clone(), ..settings(1) }, Settings { secrets: two.clone(), ..settings(2) });
    second.recorder.wait_for_links(UP, 1);
    two.set(vec!["old".into(), "new".into()]);
    one.set(vec!["new".into(), "old".into()]);
    second.peers.as_ref().unwrap().disconnect(1);
    second.recorder.wait_for_links(UP, 2);
    first.recorder.wait_for_links(UP, 2);
    two.set(vec!["new".into()]);
    second.peers.as_ref().unwrap().disconnect(1);
    second.recorder.wait_for_links(UP, 3);
    assert!(!format!("{one:?}").contains("new"));
}

#[test]
fn brokers_with_certificates_of_one_authority_connect() {
    let tls = certificates();
    let (first, second) =
        pair(Settings { tls: Some(tls.clone()), ..settings(1) }, Settings { tls: Some(tls), ..settings(2) });
    second.recorder.wait_for_links(UP, 1);
    first.send(2, [frame(1, 1)]);
    second.recorder.wait_for(&Heard::Frame(1, whole(&frame(1, 1))));
}

#[test]
fn a_broker_with_a_certificate_of_another_authority_is_refused() {
    let (ours, theirs) = (certificates(), certificates());
    // It trusts the authority of the broker that it calls, and shows a certificate of another one.
    let stranger = Tls { authority: ours.authority.clone(), ..theirs };
    let (first, second) =
        pair(Settings { tls: Some(stranger), ..settings(1) }, Settings { tls: Some(ours), ..settings(2) });
    first.recorder.wait(|heard| heard.iter().any(|heard| matches!(heard, Heard::Failed(2, _))).then_some(()));
    assert_eq!(*second.recorder.heard.lock().unwrap(), []);
}

/// Connections that say nothing.
fn strangers(broker: &Broker, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| TcpStream::connect(broker.address).unwrap()).collect()
}

fn wait_until_ended(stranger: &mut TcpStream) {
    // Only ends a test that would otherwise never end.
    stranger.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut bytes = [0; 64];
    loop {
        match stranger.read(&mut bytes) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
                return;
            }
        }
    }
}

/// They took file descriptors without a bound, until logs had none left.
fn strangers_are_few(first: Settings, second: Settings) {
    let second = Broker::start(second);
    let mut earlier = strangers(&second, 150);
    let first = Broker::start(first);
    first.knows(2, &second);
    first.recorder.wait_for_links(UP, 1);
    let later = strangers(&second, 150);
    earlier.iter_mut().for_each(wait_until_ended);

    first.send(2, [frame(1, 1)]);
    second.recorder.wait_for(&Heard::Frame(1, whole(&frame(1, 1))));
    assert!(!first.recorder.heard.lock().unwrap().contains(&Heard::Link(2, Link::Down)));
    drop(later);
}

#[test]
fn connections_without_a_greeting_are_few_and_keep_no_broker_away() {
    strangers_are_few(settings(1), settings(2));
}

#[test]
fn connections_without_a_certificate_are_few_and_keep_no_broker_away() {
    let tls = certificates();
    strangers_are_few(Settings { tls: Some(tls.clone()), ..settings(1) }, Settings { tls: Some(tls), ..settings(2) });
}

#[test]
fn without_certificates_no_other_machine_is_let_in() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let error =
        Peers::start(settings(1), 1, listener, std::sync::Arc::new(brokers::Recorder::default()), runtime.handle());
    assert!(matches!(error, Err(StartError::Plaintext(_))));
    let first = Broker::start(settings(1));
    first.peers.as_ref().unwrap().set(2, "192.0.2.1:5681");
    first.recorder.wait_for_failure("without TLS only loopback addresses are connected");
}
