//! The node agent: serves ranks, peers and the orchestrator on one node.
