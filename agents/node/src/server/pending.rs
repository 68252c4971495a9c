//! Connections that have not presented the token yet. Their number is limited, for each address, for each network, and
//! in total, so that they can take neither the agent's memory nor its descriptors.
//!
//! Some places are reserved for connections from *addresses of the job*: those of its nodes, and those from which the
//! token was presented before. Of the others a new connection is preferred, because an authorised client presents the
//! token at once: the oldest one of the address that has most in its network is evicted for it, and none of the job's.
//!
//! When thousands of nodes connect to their leader at once, and no address has many connections, a new one is refused
//! instead, and its node tries again: to evict would waste the handshakes that are about to end.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Limits of the number of connections without token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PendingLimits {
    total: usize,
    /// Of addresses that are none of the job; the rest is reserved.
    of_others: usize,
    /// Of one network of these.
    of_network: usize,
    of_address: usize,
}

/// An address of the job with at most so many connections is treated as one of many nodes that connect at once.
const FEW: usize = 16;
/// Of such addresses, a connection is evicted only after this time.
const GRACE: Duration = Duration::from_secs(1);

impl PendingLimits {
    const TOTAL: usize = 1024;
    /// What the ranks of a large node need when all of them send their files to one neighbour.
    const OF_ADDRESS: usize = 256;

    /// The limits for a process that may have so many descriptors, most of which are for authenticated connections and
    /// for files.
    pub(super) fn for_descriptors(descriptors: Option<u64>) -> Self {
        let share = descriptors.and_then(|limit| usize::try_from(limit / 4).ok()).unwrap_or(usize::MAX);
        let total = Self::TOTAL.min(share.max(1));
        PendingLimits {
            total,
            of_others: (total / 2).max(1),
            of_network: total.div_ceil(4),
            of_address: Self::OF_ADDRESS.min(total.div_ceil(4)),
        }
    }
}

#[derive(Debug)]
pub(super) struct PendingConnections {
    table: Mutex<PendingTable>,
}

/// A connection without token; it leaves the table when it has presented the token, or when this is dropped.
#[derive(Debug)]
pub(super) struct PendingConnection {
    pub(super) since: Instant,
    id: u64,
    all: Arc<PendingConnections>,
    authenticated: AtomicBool,
    eviction: Arc<Notify>,
}

impl PendingConnections {
    pub(super) fn new(limits: PendingLimits) -> Arc<Self> {
        Arc::new(PendingConnections { table: Mutex::new(PendingTable::new(limits)) })
    }

    /// Adds a connection, for which another one may be evicted; `None` if it is to be closed. `is_node`: the address is
    /// that of one of the job's nodes.
    pub(super) fn add(self: &Arc<Self>, address: IpAddr, is_node: bool) -> Option<Arc<PendingConnection>> {
        let (since, eviction) = (Instant::now(), Arc::new(Notify::new()));
        let (id, evicted) = self.table.lock().add(address, is_node, since, eviction.clone())?;
        if let Some(evicted) = evicted {
            evicted.notify_one();
        }
        let authenticated = AtomicBool::new(false);
        Some(Arc::new(PendingConnection { since, id, all: self.clone(), authenticated, eviction }))
    }
}

impl PendingConnection {
    /// It has presented the token: it is not evicted any more, and its address is one of the job's.
    pub(super) fn set_authenticated(&self) {
        if !self.authenticated.swap(true, Ordering::Relaxed) {
            self.all.table.lock().set_authenticated(self.id);
        }
    }

    pub(super) fn is_authenticated(&self) -> bool {
        self.authenticated.load(Ordering::Relaxed)
    }

    /// Returns when it is evicted.
    pub(super) async fn evicted(&self) {
        loop {
            self.eviction.notified().await;
            // It may have presented the token at the same moment.
            if !self.is_authenticated() {
                return;
            }
        }
    }
}

impl Drop for PendingConnection {
    fn drop(&mut self) {
        self.all.table.lock().remove(self.id);
    }
}

/// The connections, and the decision which are kept. Times are passed in.
#[derive(Debug)]
struct PendingTable {
    limits: PendingLimits,
    next: u64,
    /// From which the token was presented.
    authenticated: HashSet<IpAddr>,
    of_job: Group,
    others: Group,
}

/// Connections that compete for the same places.
#[derive(Debug, Default)]
struct Group {
    waiting: BTreeMap<u64, WaitingConnection>,
    /// The connections of each address of each network, oldest first.
    networks: HashMap<IpAddr, HashMap<IpAddr, BTreeSet<u64>>>,
}

#[derive(Debug)]
struct WaitingConnection {
    origin: Origin,
    since: Instant,
    eviction: Arc<Notify>,
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Origin {
    /// As the peer has it.
    exact: IpAddr,
    /// What counts as one address.
    address: IpAddr,
    network: IpAddr,
}

impl PendingTable {
    fn new(limits: PendingLimits) -> Self {
        let (of_job, others) = (Group::default(), Group::default());
        PendingTable { limits, next: 0, authenticated: HashSet::new(), of_job, others }
    }

    /// The number of the new connection, and the connection that is evicted for it; `None` if the new one is refused.
    fn add(
        &mut self,
        address: IpAddr,
        is_node: bool,
        now: Instant,
        eviction: Arc<Notify>,
    ) -> Option<(u64, Option<Arc<Notify>>)> {
        let is_of_job = is_node || self.authenticated.contains(&address.to_canonical());
        let origin = if is_of_job { Origin::of_job(address) } else { Origin::of_other(address) };
        let evicted = self.evicted_for(origin, is_of_job, now)?;
        let evicted = evicted.and_then(|id| self.remove(id)).map(|connection| connection.eviction);
        let id = self.next;
        self.next += 1;
        let group = if is_of_job { &mut self.of_job } else { &mut self.others };
        group.insert(id, WaitingConnection { origin, since: now, eviction });
        Some((id, evicted))
    }

    /// The connection that is evicted for a new one, if any must be; `None` if the new one is refused.
    fn evicted_for(&self, origin: Origin, is_of_job: bool, now: Instant) -> Option<Option<u64>> {
        let PendingLimits { total, of_others, of_network, of_address } = self.limits;
        let group = if is_of_job { &self.of_job } else { &self.others };
        let of_same = group.of_address(origin);
        if of_same.is_some_and(|same| same.len() >= of_address) {
            return Some(of_same.and_then(BTreeSet::first).copied());
        }
        if !is_of_job && group.count_of_network(origin.network) >= of_network {
            return Some(group.least_useful_of(origin.network));
        }
        let is_full = self.of_job.waiting.len() + self.others.waiting.len() >= total;
        if !is_full && (is_of_job || group.waiting.len() < of_others) {
            return Some(None);
        }
        let of_job = || if is_of_job { self.of_job.outlasted(now) } else { None };
        self.others.least_useful().or_else(of_job).map(Some)
    }

    fn set_authenticated(&mut self, id: u64) {
        if let Some(connection) = self.remove(id) {
            self.authenticated.insert(connection.origin.exact);
        }
    }

    fn remove(&mut self, id: u64) -> Option<WaitingConnection> {
        self.of_job.remove(id).or_else(|| self.others.remove(id))
    }
}

impl Group {
    fn insert(&mut self, id: u64, connection: WaitingConnection) {
        let Origin { address, network, .. } = connection.origin;
        self.networks.entry(network).or_default().entry(address).or_default().insert(id);
        self.waiting.insert(id, connection);
    }

    fn remove(&mut self, id: u64) -> Option<WaitingConnection> {
        let removed = self.waiting.remove(&id)?;
        let Origin { address, network, .. } = removed.origin;
        if let Some(addresses) = self.networks.get_mut(&network) {
            if let Some(of_same) = addresses.get_mut(&address) {
                of_same.remove(&id);
                if of_same.is_empty() {
                    addresses.remove(&address);
                }
            }
            if addresses.is_empty() {
                self.networks.remove(&network);
            }
        }
        Some(removed)
    }

    fn of_address(&self, origin: Origin) -> Option<&BTreeSet<u64>> {
        self.networks.get(&origin.network)?.get(&origin.address)
    }

    fn count_of_network(&self, network: IpAddr) -> usize {
        self.networks.get(&network).into_iter().flat_map(HashMap::values).map(BTreeSet::len).sum()
    }

    /// The oldest connection of the address that has most in this network.
    fn least_useful_of(&self, network: IpAddr) -> Option<u64> {
        busiest(self.networks.get(&network)?.values())?.first().copied()
    }

    /// The same of the network that has most.
    fn least_useful(&self) -> Option<u64> {
        let counted = self.networks.keys().map(|network| (self.count_of_network(*network), network));
        let (_, network) = counted.max_by_key(|(count, _)| *count)?;
        self.least_useful_of(*network)
    }

    /// The oldest connection of an address that has more than a few, or that had its time.
    fn outlasted(&self, now: Instant) -> Option<u64> {
        let of_busiest = busiest(self.networks.values().flat_map(HashMap::values))?;
        if of_busiest.len() > FEW {
            return of_busiest.first().copied();
        }
        let (oldest, connection) = self.waiting.first_key_value()?;
        (now.saturating_duration_since(connection.since) >= GRACE).then_some(*oldest)
    }
}

/// The most connections, and of several with as many the oldest ones.
fn busiest<'a>(addresses: impl Iterator<Item = &'a BTreeSet<u64>>) -> Option<&'a BTreeSet<u64>> {
    addresses.max_by_key(|of_same| (of_same.len(), Reverse(of_same.first().copied())))
}

impl Origin {
    fn of_job(address: IpAddr) -> Self {
        let exact = address.to_canonical();
        Origin { address: exact, ..Origin::of_other(address) }
    }

    /// Of IPv6, one machine can have all addresses of its network, which therefore count as one.
    fn of_other(address: IpAddr) -> Self {
        let exact = address.to_canonical();
        match exact {
            IpAddr::V4(v4) => {
                let network = Ipv4Addr::from_bits(v4.to_bits() & !0xff).into();
                Origin { exact, address: exact, network }
            }
            IpAddr::V6(v6) => {
                let first = |bits: u32| Ipv6Addr::from_bits(v6.to_bits() & u128::MAX << (128 - bits)).into();
                Origin { exact, address: first(64), network: first(48) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: PendingLimits = PendingLimits { total: 100, of_others: 60, of_network: 50, of_address: 40 };

    /// Each 256 are in one network.
    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    fn fill(
        pending: &Arc<PendingConnections>,
        address: IpAddr,
        is_node: bool,
        count: usize,
    ) -> Vec<Arc<PendingConnection>> {
        (0..count).map(|_| pending.add(address, is_node).unwrap()).collect()
    }

    fn count(pending: &PendingConnections) -> usize {
        let table = pending.table.lock();
        for group in [&table.of_job, &table.others] {
            let listed: usize = group.networks.keys().map(|network| group.count_of_network(*network)).sum();
            assert_eq!(group.waiting.len(), listed);
        }
        table.of_job.waiting.len() + table.others.waiting.len()
    }

    async fn is_evicted(connection: &PendingConnection) -> bool {
        tokio::time::timeout(Duration::from_millis(1), connection.evicted()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn of_too_many_connections_from_one_address_the_oldest_is_evicted_and_an_authenticated_one_is_not() {
        for is_node in [false, true] {
            let pending = PendingConnections::new(LIMITS);
            let oldest = pending.add(address(1), is_node).unwrap();
            let second = pending.add(address(1), is_node).unwrap();
            let authenticated = pending.add(address(2), is_node).unwrap();
            authenticated.set_authenticated();
            let _others = fill(&pending, address(1), is_node, LIMITS.of_address - 1);
            assert!(is_evicted(&oldest).await && !is_evicted(&second).await && !is_evicted(&authenticated).await);
            assert_eq!(count(&pending), LIMITS.of_address);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_too_many_from_one_network_the_oldest_of_its_busiest_address_is_evicted() {
        let pending = PendingConnections::new(LIMITS);
        let single = pending.add(address(9), false).unwrap();
        let flood: Vec<_> = (10..34).flat_map(|number| fill(&pending, address(number), false, 2)).collect();
        let another = pending.add(address(8), false).unwrap();
        assert_eq!(count(&pending), LIMITS.of_network);
        let newest = pending.add(address(7), false).unwrap();
        assert!(is_evicted(&flood[0]).await && !is_evicted(&flood[1]).await);
        for kept in [&single, &another, &newest] {
            assert!(!is_evicted(kept).await);
        }
        // Another network has places of its own, and after that those of the busiest one.
        let elsewhere = fill(&pending, address(300), false, 20);
        assert_eq!(count(&pending), LIMITS.of_others);
        assert!(!is_evicted(&single).await && !is_evicted(&elsewhere[0]).await);
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_of_the_job_have_reserved_places_and_evict_others() {
        let pending = PendingConnections::new(LIMITS);
        // A node is in the network of those that flood the port.
        let flood: Vec<_> = (0..200).map(|number| pending.add(address(number % 250), false).unwrap()).collect();
        assert_eq!(count(&pending), LIMITS.of_network);
        let nodes: Vec<_> = (0..60).map(|number| pending.add(address(1000 + number), true).unwrap()).collect();
        let more: Vec<_> = (0..200).map(|number| pending.add(address(number % 250), false)).collect();
        assert_eq!(count(&pending), LIMITS.total);
        assert!(more.iter().all(Option::is_some), "of others, the newest is preferred");
        for node in &nodes {
            assert!(!is_evicted(node).await);
        }
        // An address that presented the token, and no other one of its network, is one of the job's.
        let orchestrator = more[199].as_ref().unwrap();
        orchestrator.set_authenticated();
        let again = pending.add(address(199), false).unwrap();
        let _flood: Vec<_> = (0..198).map(|number| pending.add(address(number), false)).collect();
        assert!(!is_evicted(&again).await);
        drop(flood);
    }

    #[tokio::test(start_paused = true)]
    async fn when_many_nodes_connect_at_once_the_surplus_is_refused_and_accepted_when_others_are_done_or_silent() {
        let pending = PendingConnections::new(LIMITS);
        let node = |number: u32| address(1000 * number);
        let mut herd: Vec<_> = (0..100).map(|number| pending.add(node(number), true).unwrap()).collect();
        assert!(pending.add(node(200), true).is_none());
        assert!(pending.add(node(200), false).is_none(), "no other one gets a place of the job's");
        herd.remove(3).set_authenticated();
        let accepted = pending.add(node(200), true).unwrap();
        assert!(pending.add(node(201), true).is_none());
        tokio::time::advance(GRACE).await;
        let later = pending.add(node(201), true).unwrap();
        assert!(is_evicted(&herd[0]).await && !is_evicted(&herd[1]).await && !is_evicted(&accepted).await);
        drop((herd, accepted, later));
        assert_eq!(count(&pending), 0);
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_count_as_one_unless_they_are_the_job_s() {
        let address = |text: &str| Origin::of_other(text.parse().unwrap()).address;
        assert_eq!(address("2001:db8::1"), address("2001:db8::ffff:2"));
        assert_ne!(address("2001:db8::1"), address("2001:db8:0:1::1"));
        assert_eq!(address("::ffff:10.0.0.1"), address("10.0.0.1"));
        assert_ne!(address("10.0.0.1"), address("10.0.0.2"));
        let network = |text: &str| Origin::of_other(text.parse().unwrap()).network;
        assert_eq!(network("10.0.0.1"), network("10.0.0.2"));
        assert_ne!(network("10.0.0.1"), network("10.0.1.1"));
        assert_eq!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:1::1"));
        let of_job = |text: &str| Origin::of_job(text.parse().unwrap()).address;
        assert_ne!(of_job("2001:db8::1"), of_job("2001:db8::2"));
    }

    #[test]
    fn few_descriptors_lower_the_limits() {
        let limits = |descriptors| {
            let PendingLimits { total, of_others, of_network, of_address } =
                PendingLimits::for_descriptors(descriptors);
            [total, of_others, of_network, of_address]
        };
        assert_eq!(limits(None), [1024, 512, 256, 256]);
        assert_eq!(limits(Some(1 << 20)), [1024, 512, 256, 256]);
        assert_eq!(limits(Some(1024)), [256, 128, 64, 64]);
        assert_eq!(limits(Some(3)), [1, 1, 1, 1]);
    }
}
