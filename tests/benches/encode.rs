//! XOR encode of four ranks' files in memory-backed cache, and the rebuild of one of them at restart, through real
//! agents.

use holdfast_wire::trust;

use crate::agents::Cluster;
use crate::figures::{Samples, at_least, below, ratio, title};
use crate::{Extent, Result, loopback};

const NODES: usize = 4;
/// SCR v1.1-8 on such a machine (2 cores, memory-backed cache, MPI over shared memory, no encryption), seconds.
const ORIGINAL_ENCODE: f64 = 0.61;
const ORIGINAL_REBUILD: f64 = 0.54;

pub fn run(extent: Extent) -> Result<()> {
    // Each member sends its data of three of the four slots: as many bytes as its file has. The chain of a rebuild has
    // one link less, and each link carries one slot more.
    let traffic = extent.bytes * NODES as u64;
    title(&format!("XOR encode and rebuild of {NODES} × {} MiB through the agents", extent.bytes >> 20));
    let (mut encode, mut encode_cpu) = (Samples::default(), Samples::default());
    let (mut rebuild, mut rebuild_cpu) = (Samples::default(), Samples::default());
    let (mut memory, mut plain, mut tls) = (Samples::default(), Samples::default(), Samples::default());
    let trust = trust::generate()?;
    let mut cluster = Cluster::start(NODES)?;
    cluster.launch(extent)?;
    for round in 0..extent.tries {
        cluster.all("write")?;
        let before = cluster.processor_seconds()?;
        encode.add(cluster.all("complete")?);
        encode_cpu.add(cluster.processor_seconds()? - before);

        cluster.lose_node_of(round % NODES)?;
        let before = cluster.processor_seconds()?;
        rebuild.add(cluster.launch(extent)?);
        rebuild_cpu.add(cluster.processor_seconds()? - before);

        memory.add(loopback::memory(2, traffic)?);
        plain.add(loopback::ring(NODES, extent.bytes, None)?);
        tls.add(loopback::ring(NODES, extent.bytes, Some(&trust))?);
    }
    memory.show_seconds("memcpy of as many bytes, 2 threads", Some(traffic));
    plain.show_seconds("loopback TCP, 4 processes in a ring", Some(traffic));
    tls.show_seconds("loopback TCP with TLS 1.3", Some(traffic));
    encode.show_seconds("encode: complete_checkpoint, all of it", Some(traffic));
    encode_cpu.show_seconds("  processor time of the agents", None);
    rebuild.show_seconds("rebuild of one rank: init, all of it", Some(traffic));
    rebuild_cpu.show_seconds("  processor time of the agents", None);
    at_least("encode / loopback with TLS", tls.median() / encode.median(), 0.5);
    at_least("rebuild / loopback with TLS", tls.median() / rebuild.median(), 0.5);
    ratio("encode / loopback without TLS", plain.median() / encode.median());
    ratio("encode / memcpy", memory.median() / encode.median());
    if extent.bytes == crate::FULL.bytes {
        below("encode, beside the original's 0.61 to 0.73 s", encode.median(), ORIGINAL_ENCODE, "s");
        below("rebuild, beside the original's 0.54 s", rebuild.median(), ORIGINAL_REBUILD, "s");
    }
    Ok(())
}
