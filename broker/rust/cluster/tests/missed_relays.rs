//! Clients whose broker has no way to the leader: whoever runs it reads why, and not once for each client.
#![allow(clippy::unwrap_used)]

mod node;

use std::sync::{Arc, Mutex};

use penstock_cluster::{Events, Published, ShardId, Token};
use penstock_log::{FoldState, LogError, Position};
use penstock_peers::RelayedClient;
use penstock_replica::{Role, Settings};

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Events for Heard {
    fn committed(&self, _: &ShardId, _: Position) {}
    fn ended(&self, _: &ShardId, _: Token, _: Published) {}
    fn role(&self, _: &ShardId, _: Role) {}
    fn failed(&self, _: &ShardId, _: &LogError) {}
    fn replaced(&self, _: &ShardId, _: FoldState) {}
    fn noticed(&self, sentence: &str) {
        self.0.lock().unwrap().push(sentence.to_owned());
    }
}

#[test]
fn a_relay_that_cannot_be_made_is_said_once_for_each_broker() {
    let heard = Arc::new(Heard::default());
    let node = node::start(1, 7, Settings::default(), Arc::clone(&heard) as Arc<dyn Events>);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();

    for broker in [2, 2, 3, 2] {
        let opening = node.relay(broker, RelayedClient::default()).unwrap();
        assert!(runtime.block_on(opening).is_err(), "there is no such broker");
    }

    let said = heard.0.lock().unwrap();
    let count_of = |broker: &str| said.iter().filter(|text| text.starts_with(broker)).count();
    assert_eq!((count_of("broker 2 takes no relay"), count_of("broker 3 takes no relay")), (1, 1), "{said:?}");
}
