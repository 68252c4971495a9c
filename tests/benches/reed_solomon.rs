//! The inner loops of Reed-Solomon on one core, beside XOR and memcpy: bytes of data a second, for so many chunks of
//! data and so many rows of redundancy data, in the field of the scheme RS and in that of FTI's level 3. Rebuilding
//! multiplies as often as encoding, with other factors.

use std::hint::black_box;

use holdfast_core::galois::products::{Field, Kernel, Products};
use holdfast_core::galois::rows::{self, Row};
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
    for (chunks, rows) in [(8_u32, 2_u32), (10, 4)] {
        let length = bytes / chunks as usize / PIECE * PIECE;
        title(&format!("Reed-Solomon {chunks}+{rows}, {} MiB of data on one core", (length * chunks as usize) >> 20));
        let data: Vec<Vec<u8>> = (0..chunks).map(|chunk| vec![chunk as u8 + 1; length]).collect();
        let (mut xor, mut memory) = (Samples::default(), Samples::default());
        let mut copy = vec![0; length];
        for _ in 0..extent.tries {
            memory.add(speed(&data, |data| copy.copy_from_slice(data)));
            xor.add(speed_of_pieces(&data, |_, piece| xor_into(&mut copy, piece)));
            black_box(&copy);
        }
        memory.show("memcpy", "GB/s");
        xor.show("XOR, one row", "GB/s");
        let code = Code::reed_solomon(chunks + rows, rows);
        let fastest = products(extent, "GF(2^8)", &data, |chunk| code.factors_of(chunk as u32));
        if chunks == 8 && Kernel::<u8>::usable().any(|kernel| kernel.name.contains("GFNI")) {
            at_least("fastest, GB/s", fastest, 10.0);
        }
        ratio("fastest / memcpy", fastest / memory.median());
        ratio("fastest / XOR", fastest / xor.median());
        let of_fti: Vec<Vec<u16>> =
            (0..rows as usize).map(|row| rows::factors(Row::Parity(row), chunks as usize)).collect();
        let fastest = products(extent, "GF(2^16)", &data, |chunk| of_fti.iter().map(|row| row[chunk]).collect());
        ratio("fastest / memcpy", fastest / memory.median());
    }
    Ok(())
}

/// Shows the figures of each kernel of a field, and returns that of the fastest.
fn products<E: Field>(extent: Extent, field: &str, data: &[Vec<u8>], factors: impl Fn(usize) -> Vec<E>) -> f64 {
    let factors: Vec<Vec<E>> = (0..data.len()).map(factors).collect();
    let mut sums = vec![0; PIECE * factors[0].len()];
    let mut kernels: Vec<(Kernel<E>, Samples)> = Kernel::usable().map(|kernel| (kernel, Samples::default())).collect();
    for _ in 0..extent.tries {
        for (kernel, figure) in &mut kernels {
            let products: Vec<Products<E>> =
                factors.iter().map(|factors| Products::new(factors).with(*kernel)).collect();
            figure.add(speed_of_pieces(data, |chunk, piece| products[chunk].add(piece, &mut sums, PIECE)));
            black_box(&sums);
        }
    }
    for (kernel, figure) in &kernels {
        figure.show(&format!("{field}: {}", kernel.name), "GB/s");
    }
    kernels[0].1.median()
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
