//! Where a file system is kept, for programs that open one from something else than paths.

pub use larder_device::{Access, Device, DeviceError, FileDevice, InUse, MemoryDevice, Operation};
