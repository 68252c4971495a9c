//! XOR encode of four ranks' files in memory-backed cache, and the rebuild of one of them at restart, through real
//! agents.

use holdfast_model::DataPlane;
use holdfast_wire::trust;

use crate::agents::Cluster;
use crate::figures::{Samples, at_least, ratio, title};
use crate::protected::Protected;
use crate::{Extent, Result, loopback};

const NODES: usize = 4;

pub fn run(extent: Extent) -> Result<()> {
    for data_plane in [DataPlane::Encrypted, DataPlane::Authenticated, DataPlane::Plain] {
        measure(extent, data_plane)?;
    }
    Ok(())
}

fn measure(extent: Extent, data_plane: DataPlane) -> Result<()> {
    // Each member sends its data of three of the four slots: as many bytes as its file has. The chain of a rebuild has
    // one link less, and each link carries one slot more.
    let traffic = extent.bytes * NODES as u64;
    title(&format!(
        "XOR encode and rebuild of {NODES} × {} MiB through the agents, TCP on the loopback, {data_plane:?}",
        extent.bytes >> 20
    ));
    let (mut memory, mut limit) = (Samples::default(), Samples::default());
    let trust = (data_plane == DataPlane::Encrypted).then(trust::generate).transpose()?;
    let mut cluster = Cluster::start(NODES)?;
    cluster.data_plane = data_plane;
    let taken = Protected::measure(&mut cluster, extent, 1, || {
        memory.add(loopback::memory(2, traffic)?);
        limit.add(loopback::ring(NODES, extent.bytes, trust.as_ref())?);
        Ok(())
    })?;
    memory.show_seconds("memcpy of as many bytes, 2 threads", Some(traffic));
    let name = if trust.is_some() { "TCP with TLS 1.3" } else { "TCP" };
    limit.show_seconds(&format!("{name}, 4 processes in a ring"), Some(traffic));
    taken.show(traffic);
    let (encode, rebuild) = (taken.encode.median(), taken.restart.median());
    at_least(&format!("encode / {name}"), limit.median() / encode, 0.85);
    at_least(&format!("rebuild / {name}"), limit.median() / rebuild, 0.85);
    ratio("encode / memcpy", memory.median() / encode);
    Ok(())
}
