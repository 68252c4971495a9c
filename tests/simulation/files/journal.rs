//! The orchestrator's journal beside the state of the job, from which another orchestrator takes over.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use holdfast::allocation::local::Local;
use holdfast::allocation::{AgentSettings, AgentTemplate, Allocation as _};
use holdfast::job::journal::StateStore;
use holdfast::job::state::{JobState, StateChanges};
use holdfast::relaunch::{Changes, Snapshot};
use holdfast_core::state_directory::StateDirectory;
use serde_json::json;

use super::Files;
use super::faults::with_fault;
use crate::names::name;
use crate::prefix::JOB;
use crate::world::{Defect, World};

impl Files {
    /// A directory of its own: losses of power below the prefix directory are those of nodes.
    fn state(&self) -> PathBuf {
        self.root.path().join("state")
    }

    /// An orchestrator writes its complete state, and begins a journal.
    pub fn begin_journal(&mut self, snapshot: Snapshot) {
        let path = self.state();
        if !path.exists() {
            fs::create_dir(&path).unwrap();
            StateDirectory::below(&path).create().unwrap();
        }
        let user = "user1".to_owned();
        let local = Local::over_roots(JOB.to_owned(), user.clone(), vec![name(0)], path.clone(), path.clone()).unwrap();
        let settings = AgentSettings {
            job: "simulated".to_owned(),
            job_id: JOB.to_owned(),
            step: None,
            allocation: None,
            user,
            prefixes: vec![self.prefix()],
            control_base: "/control".to_owned(),
            control_bytes: None,
            cache_bases: [("/cache".to_owned(), None)].into(),
            disk_timeout: Duration::from_secs(30),
        };
        let trust = serde_json::from_value(json!({"certificate": "", "key": "", "token": ""})).unwrap();
        let agents = AgentTemplate { settings, trust, drains_only: false };
        let mut state = JobState::new("simulated".to_owned(), local.record(), agents);
        state.snapshot = Some(snapshot);
        state.write(&path).unwrap();
        self.journal = Some(StateStore::begin(path, state, None));
    }

    /// The last decisions could not be written.
    pub fn state_is_behind(&self) -> bool {
        self.journal.as_ref().is_some_and(StateStore::is_behind)
    }

    /// The state from which another orchestrator takes over.
    pub fn read_journal(&self) -> Snapshot {
        JobState::read(&self.state()).unwrap().unwrap().snapshot.unwrap()
    }
}

impl World {
    /// Writes entries of the journal; true if the orchestrator was killed meanwhile.
    pub fn append_on_files(&mut self, entries: &[Changes]) -> bool {
        if self.defect == Some(Defect::JournalNotWritten) {
            return false;
        }
        let fault = self.plan_orchestrator_fault();
        let Some(journal) = self.files.as_mut().and_then(|files| files.journal.as_mut()) else { return false };
        let ((), fault) = with_fault(fault, || {
            for (place, changes) in (1..).zip(entries) {
                let changes = StateChanges { memory: changes.clone(), ..StateChanges::default() };
                journal.write(changes, place == entries.len(), false);
            }
        });
        let behind = journal.is_behind();
        let killed = self.orchestrator_fault_happened(fault);
        assert!(fault.is_some() || !behind, "the journal cannot be written");
        killed
    }
}
