//! `--enqueue`: waiting until other work on the devices has ended.

use std::io;
use std::thread;
use std::time::Duration;

use clap::Args;
use larder::ErrorKind;

/// How often it looks whether the other work has ended.
const LOOKS: Duration = Duration::from_millis(500);

/// The option, of commands that other work on devices excludes.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Enqueue {
    /// Wait while other work on the devices goes on, or, of an image, while another program has it
    /// open
    #[arg(long)]
    enqueue: bool,
}

impl Enqueue {
    /// Calls `attempt` until nothing else is in its way, if that is asked for; once otherwise.
    pub fn wait<T>(self, mut attempt: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
        loop {
            match attempt() {
                Err(error) if self.enqueue && is_in_the_way(&error) => thread::sleep(LOOKS),
                ended => return ended,
            }
        }
    }
}

/// Whether an error says that other work is in the way. EBUSY does not: it is about a device that
/// something else uses.
fn is_in_the_way(error: &anyhow::Error) -> bool {
    let of_mount = |error: &io::Error| {
        error.kind() == io::ErrorKind::ResourceBusy && error.raw_os_error().is_none()
    };
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(of_mount)
            || cause
                .downcast_ref::<larder::Error>()
                .is_some_and(|error| error.kind() == ErrorKind::InUse)
    })
}
