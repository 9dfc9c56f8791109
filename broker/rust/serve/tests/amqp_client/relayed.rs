//! Two brokers of one process, the first of which relays its clients to the other one.

use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use penstock_serve::host::{Duplex, Entrance, RelayedClient, Relays};

use super::Broker;

pub type Opening = BoxFuture<'static, std::io::Result<Box<dyn Duplex>>>;

/// Relays in this process to another broker.
pub struct ToBroker {
    pub entrance: Entrance,
    pub clients: Mutex<Vec<RelayedClient>>,
}

impl Relays for ToBroker {
    fn open(&self, leader: &str, client: RelayedClient) -> Opening {
        assert_eq!(leader, "mq-1");
        self.clients.lock().unwrap().push(client.clone());
        let entrance = self.entrance.clone();
        Box::pin(async move {
            let (here, there) = tokio::io::duplex(16 << 10);
            entrance.serve(client, "192.0.2.2:5681".parse().unwrap(), Box::new(there))?;
            Ok(Box::new(here) as Box<dyn Duplex>)
        })
    }
}

/// A broker that leads nothing, and the one that does.
pub struct Pair {
    pub here: Broker,
    pub leader: Broker,
    pub relays: Arc<ToBroker>,
}

impl Pair {
    pub fn start() -> Pair {
        let (here, leader) = (Broker::start(), Broker::start());
        let entrance = leader.server.entrance().clone();
        let relays = Arc::new(ToBroker { entrance, clients: Mutex::default() });
        here.server.set_relays(Arc::clone(&relays) as Arc<dyn Relays>);
        leads(&here);
        Pair { here, leader, relays }
    }

    pub fn stop(self) {
        self.here.stop();
        self.leader.stop();
    }
}

/// Has a broker know that another one leads.
pub fn leads(broker: &Broker) {
    *broker.decider.leader.lock().unwrap() = Some("mq-1".to_owned());
}
