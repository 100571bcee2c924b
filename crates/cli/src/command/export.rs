//! `larder export`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use larder_device::{Device, FileDevice};
use larder_objects::{Address, ObjectDevice};

use crate::interrupt::HalfMade;
use crate::objects::parse_address_with_state;
use crate::outcome::Outcome;
use crate::progress::Progress;

/// How much is copied at a time, in bytes.
pub const PIECE_BYTES: u64 = 8 << 20;

/// Copy a file system from object storage to an image
///
/// The kernel mounts the image. Space that is not in use takes none in it.
///
/// Examples:
///   larder export s3://bucket/photos disk.img
///   larder export s3://bucket/photos@yesterday disk.img
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Export {
    /// Where the file system is; with @STATE one of its kept states
    #[arg(value_name = "URL", value_parser = parse_address_with_state)]
    address: Address,
    /// The image to make
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

impl Export {
    pub fn run(self) -> Outcome {
        let (store, options) = self.address.connect()?;
        let state = self.address.state.as_ref();
        let device = ObjectDevice::open_read_only(store, state, &options)?;
        let made = HalfMade::of(std::slice::from_ref(&self.image))?;
        copy_out(&device, &FileDevice::create_new(&self.image)?)?;
        made.keep();
        Ok(ExitCode::SUCCESS)
    }
}

fn copy_out(device: &ObjectDevice, file: &FileDevice) -> anyhow::Result<()> {
    file.set_len(device.len_bytes())?;
    let mut progress = Progress::of_bytes();
    let (mut at, mut copied) = (0, 0);
    let mut piece = Vec::new();
    while let Some(content) = device.content_after(at).map_err(std::io::Error::from)? {
        let end = content.end.min(content.start + PIECE_BYTES);
        device.readahead(end, PIECE_BYTES);
        piece.resize((end - content.start) as usize, 0);
        device.read_at(&mut piece, content.start)?;
        file.write_at(&piece, content.start)?;
        copied += piece.len() as u64;
        progress.set(copied);
        at = end;
    }
    Ok(file.flush()?)
}
