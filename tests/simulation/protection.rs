//! The invariants of checkpoints: one that is reported as protected survives as many failures in each group as its
//! scheme does, and one that is published is complete.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast::events::DrainResult;
use holdfast_core::redundancy::registry::{self, is_unprotected};
use holdfast_core::store::DirectoryName;
use holdfast_model::{CheckpointId, Generation, Location, Rank, RankDescriptor, Scheme};
use holdfast_wire::agent::AgentEvent;

use crate::content::{Content, FileName};
use crate::names::{NodeIndex, position};
use crate::store::Held;
use crate::world::{Life, World, trace};

/// A checkpoint that was reported as protected.
#[derive(Clone, Debug)]
pub struct Protected {
    pub checkpoint: CheckpointId,
    /// The generation that reported it.
    generation: Generation,
    /// The node of each rank.
    homes: Vec<NodeIndex>,
    /// Its groups, each a list of members.
    groups: Vec<Vec<Rank>>,
    /// How many members of each group can be computed again.
    tolerances: Vec<usize>,
    /// The other nodes that have a copy of each rank's files, where the scheme keeps copies.
    copies: Option<Vec<Vec<NodeIndex>>>,
}

/// Survives more than any: what is the strongest is not known.
pub const UNKNOWN: (usize, CheckpointId) = (usize::MAX, CheckpointId::NONE);

impl World {
    /// Checks an event that an agent reports.
    pub fn watch_agent_event(&mut self, at: NodeIndex, event: &AgentEvent) {
        let serving = self.serving(at);
        match event {
            AgentEvent::CheckpointComplete { generation, checkpoint, scheme, protected, .. } => {
                self.watch_complete(at, *generation, *checkpoint, *scheme, *protected);
            }
            AgentEvent::CheckpointStarted { generation, checkpoint } => {
                // One with a number that was given up is another one.
                if let Some((of, newest)) = &mut self.oracle.given_up
                    && of == generation
                {
                    *newest = (*newest).min(CheckpointId(checkpoint.0.saturating_sub(1)));
                }
            }
            AgentEvent::CheckpointProtected { generation, checkpoint, scheme, .. } => {
                self.watch_protected(at, *generation, *checkpoint, *scheme);
            }
            AgentEvent::FlushFailed { reason, .. } => {
                assert!(!reason.contains("file work of the leader"), "{reason}");
            }
            AgentEvent::RestartPrevented { faulty: Some(node), .. } => {
                self.oracle.unfit.insert(node.clone());
            }
            AgentEvent::CheckpointFailed { generation, checkpoint, reason, .. } => {
                let reported = |known: &Protected| (known.generation, known.checkpoint) == (*generation, *checkpoint);
                let withdrawn = self.oracle.protected.as_ref().is_some_and(reported);
                assert!(
                    !withdrawn || self.oracle.disk_failures > 0,
                    "checkpoint {checkpoint} was reported as protected, and is withdrawn: {reason}"
                );
            }
            AgentEvent::RestartAttempt { generation, checkpoint, from: Location::Cache, reason }
                if serving == Some(*generation) =>
            {
                self.watch_attempt(at, *checkpoint, reason);
            }
            AgentEvent::Restarted { generation, checkpoint, protected, .. } if serving == Some(*generation) => {
                self.oracle.strongest = checkpoint.and_then(|checkpoint| self.strongest_held(at, checkpoint));
                self.watch_restart(at, *generation, *checkpoint, *protected);
            }
            _ => {}
        }
    }

    fn homes(&self, at: NodeIndex) -> Vec<NodeIndex> {
        let Some(part) = self.nodes[at as usize].agent.as_ref().and_then(|agent| agent.part.as_ref()) else {
            return Vec::new();
        };
        let mut homes = vec![0; part.plan.ranks() as usize];
        for node in &part.plan.nodes {
            for rank in &node.ranks {
                homes[rank.index()] = position(&node.name).unwrap();
            }
        }
        homes
    }

    /// A checkpoint begins: others are evicted, the newest protected one only if the cache keeps no other. With several
    /// levels, the last that survives the most losses is not.
    pub fn evict(&mut self, evicted: &[CheckpointId]) {
        let settings = &self.scenario.settings;
        if let Some((losses, strongest)) = self.oracle.strongest.filter(|_| settings.descriptors.len() > 1) {
            assert!(
                !evicted.contains(&strongest),
                "checkpoint {strongest} is the last that survives {losses} lost nodes, and is evicted"
            );
        }
        let own = settings.levels.values().filter_map(|policy| policy.keep);
        let keep = own.chain([settings.caches[0].keep]).min().unwrap_or(1);
        self.oracle.protected = self.oracle.protected.take().filter(|_| keep > 1);
    }

    /// A node has begun a later generation: a leader that was frozen meanwhile reports what does not hold any more, and
    /// the orchestrator ignores it.
    fn is_over(&self, generation: Generation) -> bool {
        let plans = self.nodes.iter().filter_map(|node| node.disk.plan.as_ref());
        plans.map(|(plan, _)| plan.generation).any(|later| later > generation)
    }

    /// A node whose files may be lost or damaged.
    fn is_unsound(&self, at: NodeIndex) -> bool {
        let node = &self.nodes[at as usize];
        node.damaged || node.life != Life::Alive
    }

    fn held(&self, at: NodeIndex, checkpoint: CheckpointId, rank: Rank) -> Option<&Held> {
        self.nodes[at as usize].disk.get(checkpoint, rank)
    }

    fn descriptor(&self, homes: &[NodeIndex], checkpoint: CheckpointId, rank: Rank) -> Option<Arc<RankDescriptor>> {
        self.held(homes[rank.index()], checkpoint, rank)?.descriptor.clone()
    }

    /// A checkpoint is reported as complete: the files of every rank are sealed, and nothing is added to them if no
    /// redundancy follows.
    fn watch_complete(
        &mut self,
        at: NodeIndex,
        generation: Generation,
        checkpoint: CheckpointId,
        scheme: Scheme,
        protected: bool,
    ) {
        if self.serving(at) != Some(generation) || self.is_over(generation) {
            return;
        }
        if scheme.as_str() == "PREFIX" {
            self.oracle.on_prefix = Some((checkpoint, self.sound_nodes(at)));
            return;
        }
        let homes = self.homes(at);
        self.check_files(
            &homes,
            Some(generation),
            checkpoint,
            if protected { Held::is_sealed } else { Held::is_complete },
        );
    }

    /// A checkpoint is reported as protected: every rank's files and each group's redundancy are complete.
    fn watch_protected(&mut self, at: NodeIndex, generation: Generation, checkpoint: CheckpointId, scheme: Scheme) {
        if self.serving(at) != Some(generation) || scheme.as_str() == "PREFIX" || self.is_over(generation) {
            return;
        }
        if self.oracle.given_up.is_some_and(|(of, newest)| of == generation && checkpoint <= newest) {
            return;
        }
        let homes = self.homes(at);
        // An earlier generation may have written it.
        self.check_files(&homes, None, checkpoint, Held::is_complete);
        let before = self.oracle.protected.take();
        self.check_redundancy(&homes, generation, checkpoint);
        let described = self.nodes[at as usize].disk.datasets.get(&checkpoint);
        if described.is_some_and(|dataset| !dataset.checkpoint) {
            // Output: no run restarts from it.
            self.oracle.protected = before;
        } else if self.oracle.protected.is_none() {
            self.oracle.strongest = Some(UNKNOWN);
        } else if let Some(protected) = &self.oracle.protected {
            // Every rank has a copy on another node, which is all that copies ask for.
            let losses = match protected.copies {
                Some(_) => Some(1),
                None => protected.tolerances.iter().copied().min(),
            };
            self.oracle.strongest = self.oracle.strongest.max(losses.map(|losses| (losses, checkpoint)));
        }
    }

    /// The newest of the checkpoints up to this one that survive the most losses, by what the nodes hold when ranks
    /// restart: what they continue from, or an older one that stayed.
    fn strongest_held(&self, at: NodeIndex, newest: CheckpointId) -> Option<(usize, CheckpointId)> {
        let homes = self.homes(at);
        if homes.iter().any(|home| self.is_unsound(*home)) {
            return Some(UNKNOWN);
        }
        let known = homes.iter().flat_map(|home| self.nodes[*home as usize].disk.checkpoints());
        let ids: BTreeSet<CheckpointId> = known.filter(|id| *id <= newest).collect();
        let datasets = &self.nodes[at as usize].disk.datasets;
        let ids = ids.into_iter().filter(|id| datasets.get(id).is_none_or(|dataset| dataset.checkpoint));
        ids.filter_map(|id| Some((self.survived_losses(&homes, id)?, id))).max()
    }

    /// How many nodes can be lost at once, whichever they are, without losing files of this checkpoint; `None` if that
    /// is no node.
    fn survived_losses(&self, homes: &[NodeIndex], checkpoint: CheckpointId) -> Option<usize> {
        let mut members: BTreeMap<u32, BTreeMap<NodeIndex, usize>> = BTreeMap::new();
        let mut tolerances = BTreeMap::new();
        for (rank, home) in (0u32..).map(Rank).zip(homes) {
            let held = self.held(*home, checkpoint, rank).filter(|held| held.is_complete())?;
            let descriptor = held.descriptor.as_ref()?;
            let scheme = descriptor.descriptor.scheme;
            if crate::content::keeps_copies(scheme) {
                let elsewhere = homes.iter().filter(|other| *other != home);
                let mut copies = elsewhere.filter_map(|node| self.held(*node, checkpoint, rank));
                copies.find(|copy| copy.is_complete())?;
                continue;
            }
            let tolerance = registry::get(scheme)?.tolerance(descriptor) as usize;
            held.parity().filter(|parity| tolerance > 0 && parity.there && parity.sealed)?;
            tolerances.insert(descriptor.group_id, tolerance);
            *members.entry(descriptor.group_id).or_default().entry(*home).or_default() += 1;
        }
        let of_group = |(group, nodes): (&u32, &BTreeMap<NodeIndex, usize>)| {
            let mut sizes: Vec<usize> = nodes.values().copied().collect();
            sizes.sort_unstable_by(|a, b| b.cmp(a));
            let lost = sizes.iter().scan(0, |lost, size| {
                *lost += size;
                Some(*lost)
            });
            lost.take_while(|lost| *lost <= tolerances[group]).count()
        };
        // Copies survive the loss of one node.
        members.iter().map(of_group).min().or(Some(1)).filter(|losses| *losses > 0)
    }

    fn check_files(
        &self,
        homes: &[NodeIndex],
        generation: Option<Generation>,
        checkpoint: CheckpointId,
        is_complete: impl Fn(&Held) -> bool,
    ) {
        for (rank, home) in (0u32..).map(Rank).zip(homes) {
            if self.is_unsound(*home) {
                continue;
            }
            let held = self.held(*home, checkpoint, rank);
            let complete = held.is_some_and(&is_complete);
            assert!(complete, "checkpoint {checkpoint} is reported as complete, rank {rank} on n{home} has {held:?}");
            for file in held.into_iter().flat_map(Held::application) {
                let right = matches!(&file.content, Content::Written(origin)
                    if (origin.rank, origin.checkpoint) == (rank, checkpoint)
                        && generation.is_none_or(|generation| origin.generation == generation));
                assert!(right, "checkpoint {checkpoint} of generation {generation:?} is complete with {file:?}");
            }
        }
    }

    /// Every group survives the loss of as many nodes as its scheme tolerates, and of at least one.
    fn check_redundancy(&mut self, homes: &[NodeIndex], generation: Generation, checkpoint: CheckpointId) {
        let mut groups: BTreeMap<u32, Vec<Rank>> = BTreeMap::new();
        let mut tolerances = BTreeMap::new();
        let mut copies = false;
        for rank in (0..homes.len() as u32).map(Rank) {
            let Some(descriptor) = self.descriptor(homes, checkpoint, rank) else {
                // Its node is lost: the groups are not known any more.
                self.oracle.protected = None;
                return;
            };
            let scheme = descriptor.descriptor.scheme;
            copies = crate::content::keeps_copies(scheme);
            let tolerance = registry::get(scheme).unwrap().tolerance(&descriptor) as usize;
            assert!(copies || tolerance > 0, "checkpoint {checkpoint} is reported as protected with {scheme}");
            tolerances.insert(descriptor.group_id, tolerance);
            groups.entry(descriptor.group_id).or_default().push(rank);
        }
        let groups: Vec<Vec<Rank>> = groups.into_values().collect();
        for group in &groups {
            let nodes: BTreeSet<NodeIndex> = group.iter().map(|rank| homes[rank.index()]).collect();
            assert!(
                (copies || nodes.len() == group.len()) && nodes.len() > 1,
                "checkpoint {checkpoint} is reported as protected: group {group:?} on nodes {nodes:?}"
            );
            // A damaged file that is not detected may have been copied to other nodes.
            if self.oracle.undetected || nodes.iter().any(|node| self.is_unsound(*node)) {
                continue;
            }
            if copies {
                self.check_copies(homes, checkpoint, group);
            } else {
                self.check_parity(homes, checkpoint, group);
                let first = homes[group[0].index()];
                let descriptor = self.held(first, checkpoint, group[0]).and_then(|held| held.descriptor.clone());
                let losses = descriptor.map_or(0, |known| tolerances[&known.group_id]);
                self.recover_on_files(homes, checkpoint, group, losses);
            }
        }
        let copies = copies.then(|| self.copies(homes, checkpoint, &groups));
        let (homes, tolerances) = (homes.to_vec(), tolerances.into_values().collect());
        self.oracle.protected = Some(Protected { checkpoint, generation, homes, groups, tolerances, copies });
    }

    fn copies(&self, homes: &[NodeIndex], checkpoint: CheckpointId, groups: &[Vec<Rank>]) -> Vec<Vec<NodeIndex>> {
        let mut copies = vec![Vec::new(); homes.len()];
        for group in groups {
            let nodes: BTreeSet<NodeIndex> = group.iter().map(|rank| homes[rank.index()]).collect();
            for rank in group {
                let has = |node: &NodeIndex| {
                    *node != homes[rank.index()] && self.held(*node, checkpoint, *rank).is_some_and(Held::is_complete)
                };
                copies[rank.index()] = nodes.iter().copied().filter(has).collect();
            }
        }
        copies
    }

    fn check_copies(&self, homes: &[NodeIndex], checkpoint: CheckpointId, group: &[Rank]) {
        for rank in group {
            let home = homes[rank.index()];
            let own = self.held(home, checkpoint, *rank).map(Held::written);
            let elsewhere = group.iter().map(|other| homes[other.index()]).filter(|node| *node != home);
            let mut copies = elsewhere.filter_map(|node| self.held(node, checkpoint, *rank));
            let copied = copies.any(|held| held.is_complete() && Some(held.written()) == own);
            assert!(
                copied,
                "checkpoint {checkpoint} is reported as protected: no other node has a copy of rank {rank}"
            );
        }
    }

    fn check_parity(&self, homes: &[NodeIndex], checkpoint: CheckpointId, group: &[Rank]) {
        let mut first = None;
        for (member, rank) in group.iter().enumerate() {
            let held = self.held(homes[rank.index()], checkpoint, *rank);
            let parity = held.and_then(Held::parity).map(|file| (&file.content, file.there && file.sealed, file.name));
            let Some((Content::Parity(parity), true, FileName::Parity { member: at, .. })) = parity else {
                panic!("checkpoint {checkpoint} is reported as protected: rank {rank} has no parity: {held:?}");
            };
            let first = first.get_or_insert_with(|| parity.clone());
            let written = held.map(Held::written).unwrap_or_default();
            let encoded = &parity.members[at as usize];
            let fits = first.is_same(parity)
                && at as usize == member
                && encoded.len() == written.len()
                && written.iter().all(|file| encoded.contains(file));
            assert!(
                fits,
                "checkpoint {checkpoint} is reported as protected: the parity of rank {rank} is of other files"
            );
        }
    }

    /// True if a protected checkpoint must be recoverable without the nodes that are `lost`.
    fn survives(&self, protected: &Protected, lost: impl Fn(NodeIndex) -> bool) -> bool {
        match &protected.copies {
            Some(copies) => {
                let mut ranks = protected.homes.iter().zip(copies);
                ranks.all(|(home, copies)| !lost(*home) || copies.iter().any(|node| !lost(*node)))
            }
            _ => protected.groups.iter().zip(&protected.tolerances).all(|(group, tolerance)| {
                let nodes: BTreeSet<NodeIndex> = group.iter().map(|rank| protected.homes[rank.index()]).collect();
                nodes.into_iter().filter(|node| lost(*node)).count() <= *tolerance
            }),
        }
    }

    /// True if the nodes that are not `lost` hold enough of a checkpoint to recover all of it, on whatever nodes its
    /// files are.
    fn is_recoverable(&self, protected: &Protected, lost: impl Fn(NodeIndex) -> bool) -> bool {
        let complete = |rank: &Rank| {
            let home = protected.homes[rank.index()];
            let elsewhere = (0..self.nodes.len() as NodeIndex).filter(|node| *node != home);
            let has = |node: NodeIndex| self.held(node, protected.checkpoint, *rank).is_some_and(Held::is_complete);
            [home].into_iter().chain(elsewhere).any(|node| !lost(node) && has(node))
        };
        let mut groups = protected.groups.iter().zip(&protected.tolerances);
        groups.all(|(group, tolerance)| group.iter().filter(|rank| !complete(rank)).count() <= *tolerance)
    }

    /// The nodes of a run that can be relied on.
    fn sound_nodes(&self, at: NodeIndex) -> BTreeSet<NodeIndex> {
        let part = self.nodes[at as usize].agent.as_ref().and_then(|agent| agent.part.as_ref());
        let nodes = part.into_iter().flat_map(|part| &part.plan.nodes);
        nodes.filter_map(|node| position(&node.name)).filter(|node| !self.is_unsound(*node)).collect()
    }

    /// A run gives up a checkpoint in cache only if it cannot be recovered.
    fn watch_attempt(&self, at: NodeIndex, checkpoint: CheckpointId, reason: &str) {
        let Some(protected) = self.oracle.protected.as_ref().filter(|known| known.checkpoint == checkpoint) else {
            return;
        };
        if self.oracle.rejected >= Some(checkpoint) || self.oracle.disk_failures > 0 {
            return;
        }
        let sound = self.sound_nodes(at);
        assert!(
            !self.is_recoverable(protected, |node| !sound.contains(&node)),
            "checkpoint {checkpoint} was protected and is given up ({reason}), although the nodes hold enough of it"
        );
    }

    /// A run restarts, and not from an older checkpoint than one that must be recoverable.
    fn watch_restart(
        &mut self,
        at: NodeIndex,
        generation: Generation,
        from: Option<CheckpointId>,
        protected: Option<bool>,
    ) {
        let homes = self.homes(at);
        let settings = &self.scenario.settings;
        if let Some(protected) = self.oracle.protected.clone()
            && settings.restart.distribute
            && self.oracle.rejected < Some(protected.checkpoint)
            && from < Some(protected.checkpoint)
        {
            let part = self.nodes[at as usize].agent.as_ref().and_then(|agent| agent.part.as_ref());
            let Some(part) = part else { return };
            let used: BTreeSet<NodeIndex> = part.plan.nodes.iter().filter_map(|node| position(&node.name)).collect();
            let lost = |node: NodeIndex| self.nodes[node as usize].damaged || !used.contains(&node);
            assert!(
                !self.survives(&protected, lost) || self.oracle.disk_failures > 0,
                "generation {generation} restarts from {from:?}, although checkpoint {} was protected, in groups {:?} \
                 on {:?}",
                protected.checkpoint,
                protected.groups,
                protected.homes
            );
        }
        if let Some((checkpoint, nodes)) = self.oracle.on_prefix.take()
            && !self.scenario.faults.prefix_fails
            && self.oracle.rejected < Some(checkpoint)
            && (settings.restart.distribute || settings.restart.fetch)
        {
            let known = self.sound_nodes(at).intersection(&nodes).next().is_some();
            assert!(
                from >= Some(checkpoint) || !known || self.oracle.disk_failures > 0,
                "generation {generation} restarts from {from:?}, although checkpoint {checkpoint} is on the prefix"
            );
        }
        if protected == Some(false) {
            // The older one stays until it is protected.
            return;
        }
        self.oracle.protected = None;
        if let Some(checkpoint) = from {
            let everywhere = homes.iter().zip(0u32..);
            let here = everywhere.map(|(home, rank)| self.held(*home, checkpoint, Rank(rank)));
            let schemes: Option<Vec<Scheme>> =
                here.map(|held| Some(held?.descriptor.as_ref()?.descriptor.scheme)).collect();
            if schemes.is_some_and(|schemes| schemes.iter().all(|scheme| !is_unprotected(*scheme))) {
                self.check_redundancy_after_restart(&homes, generation, checkpoint);
            }
        }
    }

    /// A checkpoint that was moved and rebuilt is protected again, if the placement allows it.
    fn check_redundancy_after_restart(
        &mut self,
        homes: &[NodeIndex],
        generation: Generation,
        checkpoint: CheckpointId,
    ) {
        let mut groups: BTreeMap<u32, BTreeSet<NodeIndex>> = BTreeMap::new();
        let mut sizes: BTreeMap<u32, usize> = BTreeMap::new();
        for rank in (0..homes.len() as u32).map(Rank) {
            let Some(descriptor) = self.descriptor(homes, checkpoint, rank) else { return };
            groups.entry(descriptor.group_id).or_default().insert(homes[rank.index()]);
            *sizes.entry(descriptor.group_id).or_default() += 1;
        }
        // Fewer nodes may have brought two members of a group together.
        if groups.iter().all(|(id, nodes)| nodes.len() == sizes[id] && nodes.len() > 1) {
            self.check_redundancy(homes, generation, checkpoint);
        }
    }

    /// The index lists a directory as complete only if it is complete.
    pub fn check_published(&mut self, name: &DirectoryName, complete: bool, world: u32) {
        trace!(self, "published: {name}, complete: {complete}");
        self.read_back_prefix();
        if !complete {
            return;
        }
        let Some(directory) = self.prefix.directories.get(name) else {
            panic!("{name} is published and does not exist")
        };
        let problem = directory.problem(world, self.scenario.parts).filter(|_| !self.oracle.undetected);
        assert_eq!(problem, None, "{name} is indexed as complete");
    }

    /// Checks the result of a drain, and that it saved what was protected if it was `undisturbed` by faults.
    pub fn check_drain(&mut self, result: &DrainResult, undisturbed: bool) {
        self.read_back_prefix();
        let entries = self.prefix.index.entries();
        let newest = entries.iter().filter(|entry| entry.complete == Some(true)).map(|entry| entry.id).max();
        if let DrainResult::Complete { checkpoint } = result {
            let there = entries.iter().any(|entry| entry.id == *checkpoint && entry.complete == Some(true));
            assert!(there, "checkpoint {checkpoint} is drained, and the index does not list it as complete");
        }
        let ended = matches!(result, DrainResult::Complete { .. } | DrainResult::Nothing);
        if undisturbed && ended && newest.is_some() {
            let unfinished: Vec<_> = entries.iter().filter(|entry| self.prefix.is_unfinished(entry)).collect();
            assert!(
                unfinished.is_empty(),
                "the drain ended with {result:?} and left unfinished flushes: {unfinished:?}"
            );
        }
        let Some(protected) = self.oracle.protected.clone() else { return };
        let reached: BTreeSet<NodeIndex> =
            self.orchestrator.machine.agents().filter_map(|(node, _)| position(node)).collect();
        let lost = |node: NodeIndex| self.is_unsound(node) || !reached.contains(&node);
        // The application could not read it, or the settings do not restart from the cache: then it was deleted.
        if self.oracle.rejected >= Some(protected.checkpoint) || !self.scenario.settings.restart.distribute {
            return;
        }
        let could_be_saved = self.survives(&protected, lost) || self.is_recoverable(&protected, lost);
        if undisturbed && self.oracle.disk_failures == 0 && could_be_saved {
            assert!(
                newest >= Some(protected.checkpoint),
                "the drain ended with {result:?}, although checkpoint {} was protected, in groups {:?} on {:?}",
                protected.checkpoint,
                protected.groups,
                protected.homes
            );
        }
    }

    /// The end of the job: the index and the link lead to complete checkpoints.
    pub fn check_end(&mut self) {
        self.read_back_prefix();
        if let Some(current) = &self.prefix.current {
            let entry = self.prefix.index.entry(current);
            let complete = entry.is_some_and(|entry| entry.complete == Some(true));
            assert!(complete, "the link leads to {current}, which is not complete");
        }
        let complete: Vec<_> = self.prefix.index.entries().into_iter().filter(|it| it.complete == Some(true)).collect();
        let world = self.scenario.world();
        for entry in complete {
            if let Some(directory) = self.prefix.directories.get(&entry.directory) {
                let problem = directory.problem(world, self.scenario.parts).filter(|_| !self.oracle.undetected);
                assert_eq!(problem, None, "{} is indexed as complete at the end", entry.directory);
            }
        }
    }
}
