//! Makes an image file from a directory: `image_from_directory IMAGE DIRECTORY [COMPRESSION]`.

use std::error::Error;
use std::path::PathBuf;

use larder_mkfs::{MkfsOptions, mkfs};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let image: PathBuf = arguments.next().ok_or("no image file given")?.into();
    let directory: PathBuf = arguments.next().ok_or("no directory given")?.into();
    let compression = arguments.next().map(|text| text.to_string_lossy().parse()).transpose()?;
    let options =
        MkfsOptions { root_dir: Some(directory), compression, force: true, ..Default::default() };
    print!("{}", mkfs(&[image], &options)?);
    Ok(())
}
