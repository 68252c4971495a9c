//! Connections that have not presented the token yet. Their number is limited, in total and for each address, so that
//! they can take neither the agent's memory nor its descriptors.
//!
//! An authorised client presents the token at once. Therefore a new connection is preferred: the oldest one of the
//! address that has most of them is evicted for it. Only if no address has many, as when thousands of nodes connect to
//! their leader at once, the new connection is refused instead, and its node tries again: to evict would waste the
//! handshakes that are about to end.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
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
    of_address: usize,
}

/// An address with at most so many connections is treated as one of many nodes that connect at once.
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
        PendingLimits { total, of_address: Self::OF_ADDRESS.min(total.div_ceil(4)) }
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
        let table = PendingTable { limits, next: 0, waiting: HashMap::new(), of_address: HashMap::new() };
        Arc::new(PendingConnections { table: Mutex::new(table) })
    }

    /// Adds a connection, for which another one may be evicted; `None` if it is to be closed.
    pub(super) fn add(self: &Arc<Self>, address: IpAddr) -> Option<Arc<PendingConnection>> {
        let (since, eviction) = (Instant::now(), Arc::new(Notify::new()));
        let (id, evicted) = self.table.lock().add(address, since, eviction.clone())?;
        if let Some(evicted) = evicted {
            evicted.notify_one();
        }
        let authenticated = AtomicBool::new(false);
        Some(Arc::new(PendingConnection { since, id, all: self.clone(), authenticated, eviction }))
    }
}

impl PendingConnection {
    /// It has presented the token: it is not evicted any more.
    pub(super) fn set_authenticated(&self) {
        if !self.authenticated.swap(true, Ordering::Relaxed) {
            self.all.table.lock().remove(self.id);
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
    waiting: HashMap<u64, WaitingConnection>,
    /// The connections of each address, oldest first.
    of_address: HashMap<IpAddr, BTreeSet<u64>>,
}

#[derive(Debug)]
struct WaitingConnection {
    address: IpAddr,
    since: Instant,
    eviction: Arc<Notify>,
}

impl PendingTable {
    /// The number of the new connection, and the connection that is evicted for it; `None` if the new one is refused.
    fn add(&mut self, address: IpAddr, now: Instant, eviction: Arc<Notify>) -> Option<(u64, Option<Arc<Notify>>)> {
        let address = site_of(address);
        let of_same = self.of_address.get(&address).map_or(0, BTreeSet::len);
        let evicted = if of_same >= self.limits.of_address {
            self.oldest_of(&address)
        } else if self.waiting.len() >= self.limits.total {
            Some(self.least_useful(now)?)
        } else {
            None
        };
        let evicted = evicted.and_then(|id| self.remove(id)).map(|connection| connection.eviction);
        let id = self.next;
        self.next += 1;
        self.waiting.insert(id, WaitingConnection { address, since: now, eviction });
        self.of_address.entry(address).or_default().insert(id);
        Some((id, evicted))
    }

    fn remove(&mut self, id: u64) -> Option<WaitingConnection> {
        let removed = self.waiting.remove(&id)?;
        if let Some(of_same) = self.of_address.get_mut(&removed.address) {
            of_same.remove(&id);
            if of_same.is_empty() {
                self.of_address.remove(&removed.address);
            }
        }
        Some(removed)
    }

    fn oldest_of(&self, address: &IpAddr) -> Option<u64> {
        self.of_address.get(address)?.first().copied()
    }

    /// The connection that is evicted when there are too many in total; `None` if none is to be.
    fn least_useful(&self, now: Instant) -> Option<u64> {
        let (_, of_busiest) = self.of_address.iter().max_by_key(|(_, of_same)| of_same.len())?;
        if of_busiest.len() > FEW {
            return of_busiest.first().copied();
        }
        let oldest = self.waiting.keys().min()?;
        let waited = now.saturating_duration_since(self.waiting.get(oldest)?.since);
        (waited >= GRACE).then_some(*oldest)
    }
}

/// What counts as one address: of IPv6, the network, whose addresses one machine can all have.
fn site_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::net::Ipv4Addr;

    const LIMITS: PendingLimits = PendingLimits { total: 100, of_address: 40 };

    fn node(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    fn fill(pending: &Arc<PendingConnections>, address: IpAddr, count: usize) -> Vec<Arc<PendingConnection>> {
        (0..count).map(|_| pending.add(address).unwrap()).collect()
    }

    fn count(pending: &PendingConnections) -> usize {
        let table = pending.table.lock();
        assert_eq!(table.waiting.len(), table.of_address.values().map(BTreeSet::len).sum::<usize>());
        table.waiting.len()
    }

    async fn is_evicted(connection: &PendingConnection) -> bool {
        tokio::time::timeout(Duration::from_millis(1), connection.evicted()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn of_too_many_connections_from_one_address_the_oldest_is_evicted_and_an_authenticated_one_is_not() {
        let pending = PendingConnections::new(LIMITS);
        let authenticated = pending.add(node(1)).unwrap();
        authenticated.set_authenticated();
        let oldest = pending.add(node(1)).unwrap();
        let second = pending.add(node(1)).unwrap();
        let _others = fill(&pending, node(1), LIMITS.of_address - 1);
        assert!(is_evicted(&oldest).await && !is_evicted(&second).await && !is_evicted(&authenticated).await);
        assert_eq!(count(&pending), LIMITS.of_address);
    }

    #[tokio::test(start_paused = true)]
    async fn of_too_many_in_total_the_oldest_of_the_busiest_address_is_evicted() {
        let pending = PendingConnections::new(LIMITS);
        let legitimate = pending.add(node(9)).unwrap();
        let flood: Vec<_> = (1..=3).flat_map(|number| fill(&pending, node(number), 33)).collect();
        assert_eq!(count(&pending), LIMITS.total);
        let newest = pending.add(node(10)).unwrap();
        let mut evicted = 0;
        for connection in &flood {
            evicted += usize::from(is_evicted(connection).await);
        }
        assert_eq!(evicted, 1);
        assert!(!is_evicted(&legitimate).await && !is_evicted(&newest).await);
        assert_eq!(count(&pending), LIMITS.total);
    }

    #[tokio::test(start_paused = true)]
    async fn when_many_nodes_connect_at_once_the_surplus_is_refused_and_accepted_when_others_are_done_or_silent() {
        let pending = PendingConnections::new(LIMITS);
        let mut herd: Vec<_> = (0..100).map(|number| pending.add(node(number)).unwrap()).collect();
        assert!(pending.add(node(200)).is_none());
        herd.remove(3).set_authenticated();
        let accepted = pending.add(node(200)).unwrap();
        assert!(pending.add(node(201)).is_none());
        tokio::time::advance(GRACE).await;
        let later = pending.add(node(201)).unwrap();
        assert!(is_evicted(&herd[0]).await && !is_evicted(&herd[1]).await && !is_evicted(&accepted).await);
        drop((herd, accepted, later));
        assert_eq!(count(&pending), 0);
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_count_as_one() {
        let site = |text: &str| site_of(text.parse().unwrap());
        assert_eq!(site("2001:db8::1"), site("2001:db8::ffff:2"));
        assert_ne!(site("2001:db8::1"), site("2001:db8:0:1::1"));
        assert_eq!(site("::ffff:10.0.0.1"), site("10.0.0.1"));
        assert_ne!(site("10.0.0.1"), site("10.0.0.2"));
    }

    #[test]
    fn few_descriptors_lower_the_limits() {
        assert_eq!(PendingLimits::for_descriptors(None), PendingLimits { total: 1024, of_address: 256 });
        assert_eq!(PendingLimits::for_descriptors(Some(1 << 20)), PendingLimits { total: 1024, of_address: 256 });
        assert_eq!(PendingLimits::for_descriptors(Some(1024)), PendingLimits { total: 256, of_address: 64 });
        assert_eq!(PendingLimits::for_descriptors(Some(3)), PendingLimits { total: 1, of_address: 1 });
    }
}
