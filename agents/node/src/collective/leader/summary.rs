//! Files of a dataset as the nodes list them, and as the summary on the prefix directory does.

use std::collections::BTreeMap;

use holdfast_core::prefix::Summary;
use holdfast_core::prefix::summary::{RankFiles, SummaryFile};
use holdfast_model::{CheckpointId, Rank};
use holdfast_wire::peer::{DatasetFile, OrderResult};

use super::context::Context;

/// The summary of a complete dataset whose files the nodes listed.
pub(super) fn summary_of(cx: &Context, id: CheckpointId, results: impl Iterator<Item = OrderResult>) -> Summary {
    let mut by_rank: BTreeMap<Rank, RankFiles> = cx.ranks().map(|rank| (rank, RankFiles::default())).collect();
    for result in results {
        let OrderResult::Flushed(files) = result else { continue };
        for (rank, files) in files {
            by_rank.entry(rank).or_default().files = files
                .into_iter()
                .map(|DatasetFile { name, size, crc, output_path }| {
                    let (size, fetch, failed) = (Some(size), true, false);
                    SummaryFile { name, size, crc, fetch, failed, output_path }
                })
                .collect();
        }
    }
    Summary { id, ranks: cx.layout().ranks(), complete: true, by_rank }
}

/// A file of a summary that can be fetched.
pub(super) fn dataset_file(file: &SummaryFile) -> DatasetFile {
    let SummaryFile { name, size, crc, output_path, .. } = file.clone();
    DatasetFile { name, size: size.unwrap_or(0), crc, output_path }
}
