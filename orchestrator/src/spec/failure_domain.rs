//! `allocation.failure_domain`: which nodes are lost together. No set of ranks has two members in one failure domain
//! where the nodes allow it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;

use holdfast_core::hostlist;
use holdfast_model::NodeName;

use super::reading::Section;
use super::registered::ManagerFacts;
use super::value_kinds::Choice;

/// A larger file is not a list of racks.
const LARGEST_FILE: u64 = 16 << 20;
const EXAMPLE: &str = "write the nodes of each rack: `racks: {r1: \"n[1-16]\", r2: \"n[17-32]\"}`";

/// What is lost at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DomainKind {
    #[default]
    Node,
    Rack,
    /// What the resource manager knows to be behind one switch.
    Topology,
}

impl Choice for DomainKind {
    const AVAILABLE: &'static [(&'static str, Self)] =
        &[("node", DomainKind::Node), ("rack", DomainKind::Rack), ("topology", DomainKind::Topology)];
}

impl DomainKind {
    /// One of them, in messages.
    pub fn noun(self) -> &'static str {
        match self {
            DomainKind::Node => "node",
            DomainKind::Rack => "rack",
            DomainKind::Topology => "switch",
        }
    }
}

/// The failure domains of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureDomains {
    pub kind: DomainKind,
    /// The rack or switch of each node that has one.
    pub of_nodes: BTreeMap<NodeName, String>,
}

impl FailureDomains {
    /// The name of the failure domain of a node: itself if it has no rack or switch.
    pub fn of(&self, node: &NodeName) -> String {
        self.of_nodes.get(node).map_or_else(|| node.to_string(), |name| format!("{} {name}", self.kind.noun()))
    }

    /// The nodes that count as failure domains of their own, although a rack or switch was expected.
    pub fn without<'a>(&'a self, nodes: &'a [NodeName]) -> impl Iterator<Item = &'a NodeName> {
        let expected = self.kind != DomainKind::Node;
        nodes.iter().filter(move |node| expected && !self.of_nodes.contains_key(*node))
    }
}

/// What the keys of the section say together.
pub(super) fn read(
    section: &Section<'_>,
    written: Option<DomainKind>,
    racks: Option<BTreeMap<String, String>>,
    file: Option<String>,
    manager: Option<&ManagerFacts>,
) -> FailureDomains {
    let list_key = if racks.is_some() { "racks" } else { "racks_file" };
    let has_racks = racks.is_some() || file.is_some();
    if racks.is_some() && file.is_some() {
        section.mistake("racks_file", "`racks` and `racks_file` exclude each other", "keep one of them");
    }
    let kind = written.unwrap_or(if has_racks { DomainKind::Rack } else { DomainKind::Node });
    match kind {
        DomainKind::Rack if !has_racks => {
            section.mistake("failure_domain", "`failure_domain: rack` needs `racks` or `racks_file`", EXAMPLE);
        }
        DomainKind::Node | DomainKind::Topology if has_racks => {
            let message = format!("`{list_key}` has no effect with this `failure_domain`");
            section.mistake(list_key, message, "write `failure_domain: rack`, or leave the key out");
        }
        DomainKind::Topology if manager.is_some_and(|facts| !facts.has_topology) => {
            let help = "write `failure_domain: rack` with `racks`, or leave the key out";
            section.mistake("failure_domain", "this manager knows no switches", help);
        }
        _ => {}
    }
    let lines: Vec<(String, String)> = match (racks, file) {
        (Some(racks), _) => racks.into_iter().collect(),
        (None, Some(file)) => read_file(section, &file),
        (None, None) => Vec::new(),
    };
    let mut of_nodes: BTreeMap<NodeName, String> = BTreeMap::new();
    for (rack, list) in lines {
        let Some(nodes) = hostlist::expand(&list).ok().filter(|nodes| !nodes.is_empty()) else {
            let message = format!("rack `{rack}`: `{list}` is no host list");
            section.mistake(list_key, message, EXAMPLE);
            continue;
        };
        for node in nodes.into_iter().collect::<BTreeSet<NodeName>>() {
            if let Some(other) = of_nodes.insert(node.clone(), rack.clone()).filter(|other| *other != rack) {
                let message = format!("{node} is in the racks `{other}` and `{rack}`");
                section.mistake(list_key, message, "remove it from one of them");
            }
        }
    }
    FailureDomains { kind, of_nodes }
}

/// Lines `rack hosts`; `#` begins a comment. A rack may have several lines.
fn read_file(section: &Section<'_>, file: &str) -> Vec<(String, String)> {
    let key = section.path_of("racks_file");
    let path = section.reader().absolute(&key, file.into());
    let help = "give a text file with lines `RACK HOSTS`, such as `r1 n[1-16]`; the path is relative to the directory \
                of the spec";
    let mut text = String::new();
    let read = File::open(&path).and_then(|file| file.take(LARGEST_FILE + 1).read_to_string(&mut text));
    if let Err(error) = read {
        section.mistake("racks_file", format!("{} cannot be read: {error}", path.display()), help);
        return Vec::new();
    }
    if text.len() as u64 > LARGEST_FILE {
        section.mistake("racks_file", format!("{} is larger than 16 MiB", path.display()), help);
        return Vec::new();
    }
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
        match words[..] {
            [] => {}
            [rack, hosts] => found.push((rack.to_owned(), hosts.to_owned())),
            _ => {
                let message = format!("line {number} of {} is not a rack and its hosts", path.display());
                section.mistake("racks_file", message, help);
            }
        }
    }
    found
}
