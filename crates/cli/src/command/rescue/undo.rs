//! `larder rescue undo`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use larder_device::Access;
use larder_rescue::undo;

use crate::outcome::Outcome;
use crate::place::{PlaceOptions, located};
use crate::source::expect_no_user;

/// Take a repair back: the devices get the content from before it
///
/// FILE is what `check --repair --undo FILE` or a command of `rescue` wrote, or the file
/// NAME.larder-undo that an interrupted repair left. It names the devices; give DEVICE if they have
/// other paths now. Refused if another program has written to a device since the repair.
///
/// Examples:
///   larder rescue undo repair.undo
///   larder rescue undo disk.img.larder-undo disk.img
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Undo {
    #[command(flatten)]
    place: PlaceOptions,
    /// The undo file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The image files or block devices of the file system, if their paths changed
    #[arg(value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

impl Undo {
    pub fn run(self) -> Outcome {
        let place = self.place.place();
        let devices =
            if self.devices.is_empty() { undo::devices_of(&self.file)? } else { self.devices };
        expect_no_user(&located(&devices, place))?;
        let opened = devices.iter().map(|path| larder_image::open(path, Access::ReadWrite, place));
        let opened = opened.collect::<Result<Vec<_>, _>>()?;
        let bytes = undo::undo(&self.file, &opened)?;
        println!("{bytes} bytes have their content from before the repair");
        Ok(ExitCode::SUCCESS)
    }
}
