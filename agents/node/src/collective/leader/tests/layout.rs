use std::collections::BTreeMap;

use holdfast_model::{CheckpointId, Dataset, Descriptor, Level, NodeName, Rank, Scheme};

use super::super::layout::{Layout, LayoutError};
use super::world::plan;

fn layout(ranks: &[&[u32]]) -> Layout {
    Layout::new(&plan(ranks), vec!["/cache/index.0".to_owned()]).unwrap()
}

#[test]
fn ranks_and_domains_do_not_depend_on_the_order_of_the_nodes() {
    let layout = layout(&[&[3], &[], &[0, 2], &[1]]);
    let homes: Vec<String> = (0..4).map(|rank| layout.home(Rank(rank)).unwrap().to_string()).collect();
    assert_eq!(homes, ["n2", "n3", "n2", "n0"]);
    // Domains are numbered by rank, so that the groups do not depend on the order of the nodes.
    assert_eq!(layout.sites.iter().map(|site| site.domain).collect::<Vec<_>>(), [0, 1, 0, 2]);
}

#[test]
fn a_rank_without_a_node_is_named() {
    let mut plan = plan(&[&[0], &[1]]);
    plan.nodes[1].ranks = vec![Rank(2)];
    let refused = Layout::new(&plan, vec![String::new()]).unwrap_err();
    assert!(matches!(refused, LayoutError::NoNode { rank: Rank(1), ranks: 2 }), "{refused}");
    plan.settings.descriptors.clear();
    plan.nodes[1].ranks = vec![Rank(1)];
    assert!(matches!(Layout::new(&plan, Vec::new()), Err(LayoutError::NoDescriptors)));
}

#[test]
fn each_member_of_a_group_gets_its_own_view_of_it() {
    let layout = layout(&[&[0], &[1], &[2], &[3], &[]]);
    let groups = &layout.protection(CheckpointId(1)).unwrap().groups;
    let bytes = BTreeMap::from([(Rank(0), 5), (Rank(2), 9)]);
    let work = layout.work(groups, &bytes);
    assert_eq!(work.keys().map(NodeName::as_str).collect::<Vec<_>>(), ["n0", "n1", "n2", "n3"]);
    for (at, (node, views)) in (0u32..).zip(&work) {
        let [view] = &views[..] else { panic!("{node} is in one group") };
        assert_eq!((view.member, view.left, view.right, view.largest), (at, (at + 3) % 4, (at + 1) % 4, 9));
        assert_eq!(view.members[at as usize], (Rank(at), node.clone()));
    }
}

#[test]
fn a_member_that_keeps_copies_gets_only_its_neighbours() {
    let mut plan = plan(&[&[0], &[1], &[2], &[3], &[4]]);
    plan.settings.descriptors[0].scheme = Scheme::new("PARTNER");
    let layout = Layout::new(&plan, vec![String::new()]).unwrap();
    let groups = &layout.protection(CheckpointId(1)).unwrap().groups;
    assert_eq!(groups.groups.len(), 1, "all ranks are in one ring");
    let neighbours = |node: &str| {
        let work = layout.work(groups, &BTreeMap::new());
        let [view] = &work[&node.into()][..] else { panic!("{node} is in one group") };
        let rank = |index: u32| view.members[index as usize].0.0;
        (view.members.len(), rank(view.left), rank(view.member), rank(view.right))
    };
    assert_eq!(neighbours("n0"), (3, 4, 0, 1));
    assert_eq!(neighbours("n2"), (3, 1, 2, 3));
    assert_eq!(neighbours("n4"), (3, 3, 4, 0));
}

#[test]
fn spares_have_no_members() {
    let layout = layout(&[&[0, 1], &[2], &[]]);
    let members = layout.members(&layout.protection(CheckpointId(1)).unwrap().descriptors());
    let ranks: Vec<Vec<u32>> = members.values().map(|of_node| of_node.iter().map(|m| m.rank.0).collect()).collect();
    assert_eq!(ranks, [vec![0, 1], vec![2]]);
}

#[test]
fn a_level_selects_the_descriptor_of_its_scheme_and_without_one_the_id_does() {
    let mut plan = plan(&[&[0], &[1], &[2], &[3]]);
    let [xor] = &plan.settings.descriptors[..] else { panic!("one descriptor") };
    let partner = Descriptor { scheme: Scheme::new("PARTNER"), index: 1, ..xor.clone() };
    plan.settings.descriptors.push(partner);
    let layout = Layout::new(&plan, vec![String::new(); 2]).unwrap();
    let scheme = |level| {
        let dataset = Dataset { level, ..Dataset::default() };
        layout.protection_of(CheckpointId(1), &dataset).unwrap().scheme().to_string()
    };
    assert_eq!(scheme(Some(Level::Partner)), "PARTNER");
    assert_eq!(scheme(Some(Level::Parity)), "XOR");
    assert_eq!(scheme(None), "XOR");
    assert_eq!(scheme(Some(Level::Local)), "XOR", "of a run with `source: variables`");
}
