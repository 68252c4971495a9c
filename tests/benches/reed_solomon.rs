//! The inner loops of Reed-Solomon on one core, beside XOR and memcpy: bytes of data a second, for so many chunks of
//! data and so many rows of redundancy data. Rebuilding multiplies as often as encoding, with other factors.

use std::hint::black_box;

use holdfast_core::galois::bytes::{Kernel, Products};
use holdfast_core::redundancy::parity::code::Code;
use holdfast_core::redundancy::piece::xor_into;
use rustix::time::{ClockId, clock_gettime};

use crate::figures::{Samples, at_least, ratio, title};
use crate::{Extent, Result};

/// Bytes of a piece, of which each row has one in the cache.
const PIECE: usize = 64 << 10;
/// Data that fit into no cache.
const DATA: usize = 96 << 20;

pub fn run(extent: Extent) -> Result<()> {
    let bytes = usize::try_from(extent.bytes)?.min(DATA);
    let gfni = Kernel::usable().iter().any(|kernel| kernel.name.contains("GFNI"));
    for (chunks, rows) in [(8_u32, 2_u32), (10, 4)] {
        let length = bytes / chunks as usize / PIECE * PIECE;
        title(&format!("Reed-Solomon {chunks}+{rows}, {} MiB of data on one core", (length * chunks as usize) >> 20));
        let data: Vec<Vec<u8>> = (0..chunks).map(|chunk| vec![chunk as u8 + 1; length]).collect();
        let code = Code::reed_solomon(chunks + rows, rows);
        let kernels = Kernel::usable();
        let products = |kernel: &Kernel| -> Vec<Products> {
            (0..chunks).map(|chunk| Products::with(*kernel, &code.factors_of(chunk))).collect()
        };
        let products: Vec<Vec<Products>> = kernels.iter().map(products).collect();
        let mut figures = vec![Samples::default(); kernels.len()];
        let (mut xor, mut memory) = (Samples::default(), Samples::default());
        let mut sums = vec![0; PIECE * rows as usize];
        let mut copy = vec![0; length];
        for _ in 0..extent.tries {
            memory.add(speed(&data, |data| copy.copy_from_slice(data)));
            xor.add(speed_of_pieces(&data, |_, piece| xor_into(&mut sums, piece)));
            for (products, figure) in products.iter().zip(&mut figures) {
                figure.add(speed_of_pieces(&data, |chunk, piece| products[chunk].add(piece, &mut sums, PIECE)));
            }
            black_box((&sums, &copy));
        }
        memory.show("memcpy", "GB/s");
        xor.show("XOR, one row", "GB/s");
        for (kernel, figure) in kernels.iter().zip(&figures) {
            figure.show(kernel.name, "GB/s");
        }
        let fastest = figures[0].median();
        if gfni && chunks == 8 {
            at_least("fastest, GB/s", fastest, 10.0);
        }
        ratio("fastest / memcpy", fastest / memory.median());
        ratio("fastest / XOR", fastest / xor.median());
    }
    Ok(())
}

/// Gigabytes a second of a function that takes each chunk.
fn speed(data: &[Vec<u8>], of_chunk: impl FnMut(&[u8])) -> f64 {
    let begun = processor_seconds();
    data.iter().map(|chunk| black_box(chunk.as_slice())).for_each(of_chunk);
    (data.len() * data[0].len()) as f64 / (processor_seconds() - begun) / 1e9
}

/// Time that this thread had a core: other load does not count.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Gigabytes a second of a function that takes the first piece of each chunk, then the second one of each.
fn speed_of_pieces(data: &[Vec<u8>], mut of_piece: impl FnMut(usize, &[u8])) -> f64 {
    let begun = processor_seconds();
    for at in (0..data[0].len()).step_by(PIECE) {
        for (chunk, bytes) in data.iter().enumerate() {
            of_piece(chunk, black_box(&bytes[at..at + PIECE]));
        }
    }
    (data.len() * data[0].len()) as f64 / (processor_seconds() - begun) / 1e9
}
