//! Any content of a control file is refused or parsed; nothing panics.

use std::path::Path;

use holdfast_core::control::filemap::Filemap;
use holdfast_core::control::flush::FlushFile;
use holdfast_core::control::halt::HaltFile;
use holdfast_core::control::meta::Meta;
use holdfast_core::control::node_path::real_path;
use holdfast_core::control::nodes;
use holdfast_core::control::transfer::TransferFile;
use holdfast_core::kvtree::Tree;
use holdfast_model::Rank;
use holdfast_testkit::fuzz::SCR_KEYS;
use proptest::prelude::*;

/// Trees of the keys that the readers use, with unexpected values.
fn trees() -> impl Strategy<Value = Tree> {
    let key = prop_oneof![
        prop::sample::select(SCR_KEYS).prop_map(str::to_owned),
        prop::sample::select(vec![
            "0",
            "1",
            "-1",
            "",
            "00",
            "9223372036854775807",
            "-9223372036854775808",
            "18446744073709551615",
            "nan",
            "0x",
            "inf",
            "../../etc/passwd",
            "/etc/passwd",
        ])
        .prop_map(str::to_owned),
        ".{0,5}",
    ];
    Just(Tree::new()).prop_recursive(7, 120, 6, move |inner| {
        proptest::collection::vec((key.clone(), inner), 0..6).prop_map(|elements| {
            let mut tree = Tree::new();
            for (key, value) in elements {
                tree.set(key, value);
            }
            tree
        })
    })
}

proptest! {
    #[test]
    fn filemaps_with_any_content_can_be_queried(tree in trees(), other in trees()) {
        if let (Ok(mut map), Ok(other)) = (Filemap::from_tree(tree), Filemap::from_tree(other)) {
            map.merge(&other);
            for id in map.checkpoints() {
                for rank in map.ranks(id) {
                    for path in map.files(id, rank) {
                        if let Ok(real) = real_path(Path::new("/srv/node"), path) {
                            prop_assert!(real.starts_with("/srv/node"));
                        }
                    }
                    let _ = (map.is_complete(id, rank), map.descriptor(id, rank), map.partner(id, rank));
                }
            }
            let _ = map.extract_rank(Rank(0));
            for id in map.checkpoints() {
                map.remove_checkpoint(id);
                prop_assert!(map.ranks(id).is_empty());
            }
        }
    }

    #[test]
    fn the_other_files_parse_any_content_or_refuse_it(
        tree in trees(),
        now in any::<i64>(),
        left in any::<Option<i64>>(),
    ) {
        if let Ok(mut halt) = HaltFile::from_tree(tree.clone()) {
            halt.decrement();
            for reason in halt.check(now, left, left) {
                let _ = reason.message(&chrono::Utc);
            }
        }
        if let Ok(flush) = FlushFile::from_tree(tree.clone()) {
            let _ = flush.checkpoints().into_iter().filter_map(|id| flush.locations(id)).count();
        }
        if let Ok(mut transfers) = TransferFile::from_tree(tree.clone()) {
            let _ = transfers.all_written();
            transfers.request(&transfers.files(), 1.0, 0.0);
        }
        if let Ok(meta) = Meta::from_tree(&tree) {
            prop_assert!(!meta.file.contains('/'));
        }
        let _ = nodes::from_tree(&tree);
    }
}
