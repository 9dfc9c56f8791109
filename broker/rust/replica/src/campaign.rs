//! How a follower becomes the leader.
//!
//! Invariants: only a member of the in-sync set of the record that it changes campaigns (rule 5). Everything else here
//! is about time: a follower that misses its leader asks the others, so that a single broken connection deposes no leader.

use std::collections::BTreeSet;

use crate::state::{Campaign, CampaignStage, Replica, State};
use crate::{BrokerId, ChangeId, Epoch, Link, Message, Millis, Outcome, ReplicaId, ShardRecord};

impl Replica {
    pub(crate) fn tick_follower(&mut self) {
        let (now, settings) = (self.now, self.settings);
        if let Some(campaign) = self.campaign() {
            if now >= campaign.asked + 2 * settings.ask_again_after {
                // Its questions or its change were lost. A change that is made after all is seen by a read.
                let Some(following) = self.following() else { return };
                following.campaign = None;
                self.ask_coordinator();
            } else if campaign.stage == CampaignStage::Asking {
                // The others may have heard the leader a moment later.
                self.ask_for_votes();
            }
            return;
        }
        let is_stalled = self.is_stalled();
        let behind_others = self.rank() * settings.stagger;
        let Some(following) = self.following() else { return };
        let from = following.heard.map_or(following.gone_since, |heard| heard + settings.suspect_after);
        let misses = now >= following.waits_until && now >= from + behind_others;
        let misses = misses && !is_stalled;
        let misses = !self.leaves_it_to_others(misses) && misses;
        if self.record.is_none() || misses {
            match self.record() {
                _ if self.is_asking() => (),
                Some(record) if record.in_sync.contains(&self.me.replica) => self.start_campaign(),
                _ => {
                    self.wait();
                    self.ask_coordinator();
                }
            }
        }
    }

    /// Whether this follower gives the others time to lead, having missed its leader just now.
    fn leaves_it_to_others(&mut self, misses: bool) -> bool {
        let (now, within) = (self.now, self.settings.yield_for);
        if !self.yields {
            return false;
        }
        let Some(following) = self.following() else { return false };
        if !misses {
            following.yields_since = None;
            return false;
        }
        now < *following.yields_since.get_or_insert(now) + within
    }

    /// Whether this replica misses the leader of an epoch, or a later one, as the asking one does.
    pub(crate) fn misses_leader(&self, epoch: Epoch) -> bool {
        match &self.state {
            State::Following(following) => {
                let within = self.settings.suspect_after;
                self.promised <= epoch && following.heard.is_none_or(|heard| self.now >= heard + within)
            }
            State::Leading(_) => false,
            State::Halted(_) => true,
        }
    }

    fn start_campaign(&mut self) {
        self.set_campaign(CampaignStage::Asking);
        self.ask_for_votes();
        self.count_votes();
    }

    fn ask_for_votes(&mut self) {
        let Some(campaign) = self.campaign() else { return };
        let (question, epoch) = (campaign.question, campaign.missed);
        for broker in self.others() {
            self.send(broker, Message::PreVote { epoch, question });
        }
    }

    pub(crate) fn take_vote(&mut self, from: BrokerId, question: u64, agrees: bool) {
        let Some(campaign) = self.campaign() else { return };
        if agrees && campaign.question == question {
            campaign.agreed.insert(from);
            self.count_votes();
        }
    }

    fn count_votes(&mut self) {
        let (majority, me) = (self.majority(), self.me.broker);
        let brokers = self.record().map(ShardRecord::brokers).unwrap_or_default();
        let ended = self.ended_sessions.clone();
        let Some(campaign) = self.campaign() else { return };
        // A broker whose session has ended is as good as one that agrees.
        let agreed = |broker: &&BrokerId| **broker == me || campaign.agreed.contains(broker) || ended.contains(broker);
        if campaign.stage == CampaignStage::Asking && brokers.iter().filter(agreed).count() >= majority {
            campaign.stage = CampaignStage::Reading;
            self.ask_coordinator();
        }
    }

    /// Campaigns without asking the other followers: the leader hands over, or was this broker's boot before.
    pub(crate) fn campaign_at_once(&mut self) {
        if self.campaign().is_none() && !self.is_stalled() {
            self.set_campaign(CampaignStage::Reading);
            self.ask_coordinator();
        }
    }

    fn set_campaign(&mut self, stage: CampaignStage) {
        let (asked, known) = (self.now, self.record().map_or(0, |record| record.epoch));
        let missed = known.max(self.promised);
        let question = self.next_number();
        if let Some(following) = self.following() {
            let agreed = BTreeSet::new();
            following.campaign = Some(Campaign { asked, question, missed, agreed, stage, is_asked_for: false });
        }
    }

    /// An answer of the coordinator came: a campaign changes the record.
    pub(crate) fn take_campaign_read(&mut self, is_news: bool) {
        let Some((record, version)) = self.record.clone() else { return };
        let (me, now) = (self.me, self.now);
        let is_member = record.in_sync.contains(&me.replica);
        let was_led_here = record.leader.broker == me.broker && record.leader.boot != me.boot;
        let Some(following) = self.following() else { return };
        let is_missed = following.campaign.as_ref().is_some_and(|campaign| record.epoch <= campaign.missed);
        if !is_member {
            following.campaign = None;
            return self.wait();
        }
        if !is_missed && !was_led_here {
            // Another one leads since then: it is heard soon, or missed again. The record of a leader that is missed is no
            // sign of it.
            if following.campaign.take().is_some() || is_news {
                following.heard = Some(now);
            }
            return;
        }
        match following.campaign.as_ref().map(|campaign| campaign.stage) {
            None if was_led_here && following.leader.is_none() => self.campaign_at_once(),
            Some(CampaignStage::Reading) => {
                // A watch may show the new record before the answer comes.
                following.predecessor = following.heard.map(|heard| (record.leader.broker, heard));
                let record = ShardRecord { epoch: record.epoch + 1, leader: me, ..record };
                let change = self.change(version, record);
                if let Some(campaign) = self.campaign() {
                    campaign.stage = CampaignStage::Changing(change, version);
                }
            }
            _ => (),
        }
    }

    /// Takes the outcome of the change by which this replica is elected, and of no other one: it may have asked for changes of
    /// the same record before, as a leader that resigned.
    pub(crate) fn take_election(&mut self, change: ChangeId, outcome: Outcome) {
        let (me, ended) = (self.me, self.ended_sessions.clone());
        let Some(campaign) = self.campaign() else { return };
        let CampaignStage::Changing(_, base) = campaign.stage else { return };
        if campaign.stage != CampaignStage::Changing(change, base) {
            return;
        }
        self.wait();
        let Some((before, known)) = self.record.clone() else { return };
        let Some(following) = self.following() else { return };
        let campaign = following.campaign.take();
        match outcome {
            Outcome::Changed(version) if known == base => {
                let old = before.leader.broker;
                following.is_predecessor_gone |= old == me.broker || ended.contains(&old);
                let epoch = before.epoch + 1;
                self.know(ShardRecord { epoch, leader: me, ..before }, version);
                self.promise(epoch, me.broker);
            }
            Outcome::Conflict => {
                // The leader that hands over may have changed its in-sync set meanwhile.
                let again = campaign.filter(|campaign| campaign.is_asked_for);
                following.campaign = again.map(|campaign| Campaign { stage: CampaignStage::Reading, ..campaign });
                self.ask_coordinator();
            }
            _ => self.ask_coordinator(),
        }
    }

    /// Leaves the others, or the coordinator, some time before this replica asks again.
    fn wait(&mut self) {
        let until = self.now + self.settings.suspect_after;
        if let Some(following) = self.following() {
            following.waits_until = until;
        }
    }

    /// The place of this replica among those in sync that may follow the leader, and are not out of reach.
    fn rank(&self) -> Millis {
        let Some(record) = self.record() else { return 0 };
        let place = |replica: ReplicaId, broker: BrokerId| (mixed(self.settings.order ^ broker), replica);
        let mine = place(self.me.replica, self.me.broker);
        let is_near = |broker| self.links.get(&broker).is_none_or(|(link, _)| *link == Link::Up);
        let others = record.in_sync.iter().filter(|&&replica| replica != record.leader.replica);
        let others = others.filter_map(|&replica| Some((replica, *record.replicas.get(&replica)?)));
        let places = others.filter(|(_, broker)| is_near(*broker)).map(|(replica, broker)| place(replica, broker));
        places.filter(|&other| other < mine).count() as Millis
    }
}

/// A number that shows nothing of the one that it was made of (the last steps of splitmix64).
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::mixed;

    #[test]
    fn brokers_have_another_order_with_another_number() {
        let first = |order: u64| (1..=3).min_by_key(|broker| mixed(order ^ broker));

        let firsts: Vec<usize> =
            (1..=3).map(|broker| (0..300).filter(|&order| first(order) == Some(broker)).count()).collect();

        assert!(
            firsts.iter().all(|count| (60..140).contains(count)),
            "each is the first as often as the others: {firsts:?}"
        );
    }
}
