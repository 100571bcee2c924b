//! Systems that the format driver does not know.

use std::io;
use std::path::Path;
use std::sync::Arc;

use larder_device::{Device, DeviceError, FileDevice};

/// Fails: no driver can read `file`.
pub(crate) fn open(file: Arc<FileDevice>, _path: &Path) -> Result<Arc<dyn Device>, DeviceError> {
    let problem = "qcow2 images can be opened on Linux, macOS and Windows only; \
                   'qemu-img convert -O raw' makes one that can be opened here";
    Err(DeviceError::Open {
        device: file.name().to_owned(),
        source: io::Error::new(io::ErrorKind::Unsupported, problem),
    })
}
