//! XOR encode of four ranks' files in memory-backed cache, and the rebuild of one of them at restart, through real
//! agents.

use holdfast_wire::trust;

use crate::agents::Cluster;
use crate::figures::{Samples, at_least, below, ratio, title};
use crate::protected::Protected;
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
    let (mut memory, mut plain, mut tls) = (Samples::default(), Samples::default(), Samples::default());
    let trust = trust::generate()?;
    let mut cluster = Cluster::start(NODES)?;
    let taken = Protected::measure(&mut cluster, extent, 1, || {
        memory.add(loopback::memory(2, traffic)?);
        plain.add(loopback::ring(NODES, extent.bytes, None)?);
        tls.add(loopback::ring(NODES, extent.bytes, Some(&trust))?);
        Ok(())
    })?;
    memory.show_seconds("memcpy of as many bytes, 2 threads", Some(traffic));
    plain.show_seconds("loopback TCP, 4 processes in a ring", Some(traffic));
    tls.show_seconds("loopback TCP with TLS 1.3", Some(traffic));
    taken.show(traffic);
    let (encode, rebuild) = (taken.encode.median(), taken.restart.median());
    at_least("encode / loopback with TLS", tls.median() / encode, 0.5);
    at_least("rebuild / loopback with TLS", tls.median() / rebuild, 0.5);
    ratio("encode / loopback without TLS", plain.median() / encode);
    ratio("encode / memcpy", memory.median() / encode);
    if extent.bytes == crate::FULL.bytes {
        below("encode, beside the original's 0.61 to 0.73 s", encode, ORIGINAL_ENCODE, "s");
        below("rebuild, beside the original's 0.54 s", rebuild, ORIGINAL_REBUILD, "s");
    }
    Ok(())
}
