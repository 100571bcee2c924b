//! `larder device ready`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use larder_ioctl::DeviceList;

use super::block_device::expect_block_device;
use crate::outcome::Outcome;

/// Ask the kernel whether it knows all devices of a file system
///
/// The exit code is 0 if the kernel knows all devices of the file system on this one, so that it
/// can mount it, and 1 if it does not. It knows this device afterwards.
///
/// Examples:
///   larder device ready /dev/sdb
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Ready {
    /// A block device of the file system
    #[arg(value_name = "DEVICE")]
    device: PathBuf,
}

impl Ready {
    pub fn run(self) -> Outcome {
        let device = &self.device;
        expect_block_device(device)?;
        let list = DeviceList::open().context("the kernel's list of devices")?;
        let ready = device.canonicalize().and_then(|path| list.is_ready(&path));
        let named = || format!("unable to determine if the device '{}' is ready", device.display());
        Ok(if ready.with_context(named)? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
