//! `larder import`.

use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use larder_device::{Access, Device, FileDevice};
use larder_objects::{Address, ObjectDevice};

use super::export::PIECE_BYTES;
use crate::objects::{create_at, parse_address};
use crate::outcome::Outcome;
use crate::progress::Progress;

/// Copy an image to object storage
///
/// Zeros take no space there.
///
/// Example: larder import disk.img s3://bucket/photos
#[derive(Debug, Args)]
pub struct Import {
    /// Encrypt what is stored, with the key that LARDER_KEY_FILE or its like gives
    #[arg(long)]
    encrypt: bool,
    /// The image or device to copy, which must not be in use
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// Where to; there must be no file system yet
    #[arg(value_name = "URL", value_parser = parse_address)]
    address: Address,
}

impl Import {
    pub fn run(self) -> Outcome {
        // Nothing may change it meanwhile.
        let image = FileDevice::open(&self.image, Access::ReadWrite)?;
        create_at(&self.address, image.len_bytes(), self.encrypt)?;
        let (store, options) = self.address.connect()?;
        let device = ObjectDevice::open(store, &options)?;
        let mut progress = Progress::of_bytes();
        progress.expect(image.len_bytes());
        let mut piece = Vec::new();
        let mut at = 0;
        while at < image.len_bytes() {
            let len_bytes = PIECE_BYTES.min(image.len_bytes() - at);
            piece.resize(len_bytes as usize, 0);
            image.read_at(&mut piece, at)?;
            for run in runs(&piece) {
                device.write_at(&piece[run.clone()], at + run.start as u64)?;
            }
            at += len_bytes;
            progress.set(at);
        }
        device.flush()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Blocks of zeros of this length are left out.
const BLOCK_BYTES: usize = 4096;

/// The parts of `piece` that have no blocks of zeros.
fn runs(piece: &[u8]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (index, block) in piece.chunks(BLOCK_BYTES).enumerate() {
        let start = index * BLOCK_BYTES;
        match runs.last_mut() {
            _ if block.iter().all(|byte| *byte == 0) => {}
            Some(last) if last.end == start => last.end += block.len(),
            _ => runs.push(start..start + block.len()),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_zeros_are_left_out() {
        let mut piece = vec![0; 4 * BLOCK_BYTES + 100];
        assert!(runs(&piece).is_empty());
        piece[BLOCK_BYTES] = 1;
        piece[2 * BLOCK_BYTES + 7] = 1;
        piece[4 * BLOCK_BYTES + 99] = 1;
        let expected = [BLOCK_BYTES..3 * BLOCK_BYTES, 4 * BLOCK_BYTES..4 * BLOCK_BYTES + 100];
        assert_eq!(runs(&piece), expected);
    }
}
