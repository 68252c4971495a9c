//! Simulated pairs: the real machines of two nodes' agents and the real granter of leases, with processes, clocks,
//! messages and failures from a seed. `node` is a node with its agent and processes, `oracle` holds the invariants, and
//! `world` lets all of it happen.

mod node;
mod oracle;
mod seeds;
mod world;
