//! `larder device scan`.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use larder_ioctl::DeviceList;

use super::block_device::expect_block_device;
use crate::global::Global;
use crate::message::message;
use crate::outcome::{Outcome, exit_code};
use crate::output::stdout;

/// Make the kernel know block devices of btrfs, or forget them
///
/// The kernel mounts a file system on several devices by one of them, if it knows the others. udev
/// tells it of each device, and so does mkfs; where there is no udev, this does. Without devices
/// all that are attached are looked at. larder itself needs none of this.
///
/// Examples:
///   larder device scan
///   larder device scan /dev/sdb /dev/sdc
///   larder device scan --forget
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Scan {
    /// Look at all block devices, which happens without devices anyway
    #[arg(short = 'd', long, conflicts_with_all = ["forget", "devices"])]
    all_devices: bool,
    /// Make the kernel forget these devices, or all that are not mounted
    #[arg(short = 'u', long)]
    forget: bool,
    /// The block devices
    #[arg(value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

impl Scan {
    pub fn run(self, global: &Global) -> Outcome {
        for device in &self.devices {
            expect_block_device(device)?;
        }
        let list = DeviceList::open().context("the kernel's list of devices")?;
        if self.forget {
            return self.forget(&list);
        }
        let mut out = stdout();
        let mut say = |text: String| {
            if global.is_quiet() { Ok(()) } else { writeln!(out, "{text}") }
        };
        let mut failures = 0;
        if self.devices.is_empty() {
            say("Scanning for Btrfs filesystems".to_owned())?;
            for (uuid, devices) in larder::find_filesystems() {
                let devices = devices.unwrap_or_else(|error| {
                    eprintln!("ERROR: {}", message(&error.into()));
                    failures += 1;
                    Vec::new()
                });
                for device in devices {
                    match scan(&list, &device) {
                        Ok(()) => say(format!("registered: {}", device.display()))?,
                        Err(_) if !larder::is_still_on(uuid, &[&device]) => {}
                        Err(error) => {
                            eprintln!("ERROR: {}", message(&error));
                            failures += 1;
                        }
                    }
                }
            }
        }
        for device in &self.devices {
            say(format!("Scanning for btrfs filesystems on '{}'", device.display()))?;
            if let Err(error) = scan(&list, device) {
                eprintln!("ERROR: {}", message(&error));
                failures += 1;
            }
        }
        Ok(exit_code(failures))
    }

    fn forget(&self, list: &DeviceList) -> Outcome {
        if self.devices.is_empty() {
            list.forget(None).context("devices that are not mounted cannot be forgotten")?;
        }
        for device in &self.devices {
            let forgotten = list.forget(Some(&device.canonicalize()?));
            forgotten.with_context(|| format!("cannot forget '{}'", device.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn scan(list: &DeviceList, device: &Path) -> anyhow::Result<()> {
    let scanned = device.canonicalize().and_then(|path| list.scan(&path));
    scanned.with_context(|| format!("device scan failed on '{}'", device.display()))
}

/// Makes the kernel know those of `devices` that are block devices, if it has btrfs and this user
/// may tell it.
pub fn register(devices: &[impl AsRef<OsStr>]) {
    let Ok(list) = DeviceList::open() else { return };
    for device in devices.iter().map(Path::new) {
        if expect_block_device(device).is_ok()
            && let Err(error) = scan(&list, device)
        {
            eprintln!("WARNING: {}", message(&error));
        }
    }
}
