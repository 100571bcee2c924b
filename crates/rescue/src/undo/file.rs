//! The undo file: a header that names the devices, records of old content, and an end.
//!
//! All numbers are little-endian. The header: [`MAGIC`]; the number of devices (4 bytes); for each
//! the length of its path (4), the path, and its length in bytes (8); the XXH64 of all that (8). A
//! record: the number of the
//! device (4), the length of its content (4), the offset (8), the XXH64 of the new content (8), that
//! of all these and of the old content (8), and the old content. The end is a record for device
//! 2³² - 1 whose offset is the number of records before it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_device::{Device, DeviceError, Overlay};
use larder_format::ChecksumType;
use larder_platform::OsStrExt;
use larder_platform::OsStringExt;
use larder_platform::errno::in_words;
use larder_platform::for_this_user_only;

const MAGIC: &[u8; 16] = b"larder undo 1\n\0\0";
const END: u32 = u32::MAX;
/// The longest content of a record in bytes.
const MOST_BYTES: u32 = 1 << 20;
const MOST_DEVICES: u32 = 1 << 16;
const LONGEST_PATH: u32 = 1 << 16;

/// Why a repair cannot be written or undone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UndoError {
    /// The undo file cannot be made, written or read.
    #[error("{}: {}", path.display(), in_words(source))]
    File {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is no undo file.
    #[error("{}: is no undo file of larder", .0.display())]
    Foreign(PathBuf),
    /// It ends too early: the repair had not begun to write.
    #[error(
        "{}: is not complete, so the repair had not begun to write: the devices are as they were",
        .0.display()
    )]
    Incomplete(PathBuf),
    /// A record does not match its checksum.
    #[error("{}: is damaged", .0.display())]
    Damaged(PathBuf),
    /// Other devices were given.
    #[error("{}: is for {wanted} of {wanted_bytes} bytes, not for {device}", path.display())]
    OtherDevice {
        /// The undo file.
        path: PathBuf,
        /// The device it is for.
        wanted: String,
        /// The length of that.
        wanted_bytes: u64,
        /// The one that was given.
        device: String,
    },
    /// The number of devices differs.
    #[error("{}: is for {wanted} devices, and {found} are given", path.display())]
    Count {
        /// The undo file.
        path: PathBuf,
        /// Devices that it is for.
        wanted: usize,
        /// Devices that were given.
        found: usize,
    },
    /// Another program wrote to a device after the repair.
    #[error("{device}: was written to after the repair, which can no longer be undone")]
    WrittenSince {
        /// The device.
        device: String,
    },
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

pub(super) fn sum(bytes: &[u8]) -> u64 {
    let sum = ChecksumType::Xxhash.compute(bytes);
    u64::from_le_bytes(sum.as_bytes().try_into().expect("8 bytes"))
}

/// Makes a file or its absence durable.
pub(super) fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    larder_platform::sync_directory(folder.unwrap_or(Path::new(".")))
}

/// A device of the repair.
pub(super) struct UndoDevice {
    pub(super) path: PathBuf,
    len_bytes: u64,
}

/// Content that was overwritten.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) device: u32,
    pub(super) offset: u64,
    /// That of the new content.
    pub(super) sum: u64,
    pub(super) old: Vec<u8>,
}

impl Record {
    fn header(&self) -> Vec<u8> {
        let mut header = Vec::with_capacity(24);
        header.extend(self.device.to_le_bytes());
        header.extend((self.old.len() as u32).to_le_bytes());
        header.extend(self.offset.to_le_bytes());
        header.extend(self.sum.to_le_bytes());
        header
    }

    fn own_sum(&self) -> u64 {
        sum(&[self.header(), self.old.clone()].concat())
    }
}

pub(super) struct Writer {
    path: PathBuf,
    out: BufWriter<File>,
    records: u64,
}

impl Writer {
    /// Makes the file, which must not exist.
    pub(super) fn create(
        path: &Path,
        names: &[PathBuf],
        overlays: &[Arc<Overlay>],
    ) -> Result<Self, UndoError> {
        let mut options = OpenOptions::new();
        let made = for_this_user_only(options.write(true).create_new(true)).open(path);
        let file = made.map_err(|source| UndoError::File { path: path.to_owned(), source })?;
        let mut header = MAGIC.to_vec();
        header.extend((overlays.len() as u32).to_le_bytes());
        for (name, overlay) in names.iter().zip(overlays) {
            let name = name.as_os_str().as_bytes();
            header.extend((name.len() as u32).to_le_bytes());
            header.extend(name);
            header.extend(overlay.len_bytes().to_le_bytes());
        }
        header.extend(sum(&header).to_le_bytes());
        let mut writer = Self { path: path.to_owned(), out: BufWriter::new(file), records: 0 };
        writer.write(&header)?;
        Ok(writer)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), UndoError> {
        let written = self.out.write_all(bytes);
        written.map_err(|source| UndoError::File { path: self.path.clone(), source })
    }

    pub(super) fn add(&mut self, record: &Record) -> Result<(), UndoError> {
        self.write(&record.header())?;
        self.write(&record.own_sum().to_le_bytes())?;
        self.write(&record.old)?;
        self.records += 1;
        Ok(())
    }

    /// Writes the end, and returns when the file and its name are durable.
    pub(super) fn finish(mut self) -> Result<(), UndoError> {
        self.add(&Record { device: END, offset: self.records, sum: 0, old: Vec::new() })?;
        let durable = self
            .out
            .flush()
            .and_then(|()| self.out.get_ref().sync_all())
            .and_then(|()| sync_folder_of(&self.path));
        durable.map_err(|source| UndoError::File { path: self.path, source })
    }
}

pub(super) struct Reader {
    path: PathBuf,
    input: BufReader<File>,
    pub(super) devices: Vec<UndoDevice>,
    records: u64,
}

impl Reader {
    pub(super) fn open(path: &Path) -> Result<Self, UndoError> {
        let failed = |source| UndoError::File { path: path.to_owned(), source };
        let input = BufReader::new(File::open(path).map_err(failed)?);
        let mut reader = Self { path: path.to_owned(), input, devices: Vec::new(), records: 0 };
        let mut magic = [0; 16];
        match reader.read(&mut magic) {
            Ok(()) if magic == *MAGIC => {}
            Ok(()) | Err(UndoError::Incomplete(_)) => {
                return Err(UndoError::Foreign(path.to_owned()));
            }
            Err(error) => return Err(error),
        }
        let count = reader.number()?;
        let mut header = [&magic[..], &count.to_le_bytes()].concat();
        for _ in 0..reader.bounded(count, MOST_DEVICES)? {
            let len = reader.number()?;
            let mut name = vec![0; reader.bounded(len, LONGEST_PATH)?];
            reader.read(&mut name)?;
            let len_bytes = reader.long_number()?;
            header.extend([&len.to_le_bytes(), &name[..], &len_bytes.to_le_bytes()].concat());
            let path = PathBuf::from(std::ffi::OsString::from_vec(name));
            reader.devices.push(UndoDevice { path, len_bytes });
        }
        if reader.long_number()? != sum(&header) {
            return Err(reader.damaged());
        }
        Ok(reader)
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<(), UndoError> {
        self.input.read_exact(buf).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => UndoError::Incomplete(self.path.clone()),
            _ => UndoError::File { path: self.path.clone(), source },
        })
    }

    fn number(&mut self) -> Result<u32, UndoError> {
        let mut bytes = [0; 4];
        self.read(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn long_number(&mut self) -> Result<u64, UndoError> {
        let mut bytes = [0; 8];
        self.read(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn bounded(&self, number: u32, most: u32) -> Result<usize, UndoError> {
        if number <= most { Ok(number as usize) } else { Err(self.damaged()) }
    }

    fn damaged(&self) -> UndoError {
        UndoError::Damaged(self.path.clone())
    }

    /// Refuses devices that are not those of the repair, by number and length.
    pub(super) fn check_devices(&self, devices: &[Arc<dyn Device>]) -> Result<(), UndoError> {
        if devices.len() != self.devices.len() {
            let (wanted, found) = (self.devices.len(), devices.len());
            return Err(UndoError::Count { path: self.path.clone(), wanted, found });
        }
        for (known, device) in self.devices.iter().zip(devices) {
            if known.len_bytes != device.len_bytes() {
                return Err(UndoError::OtherDevice {
                    path: self.path.clone(),
                    wanted: known.path.display().to_string(),
                    wanted_bytes: known.len_bytes,
                    device: device.name().to_owned(),
                });
            }
        }
        Ok(())
    }

    /// The next record; `None` at the end of a whole file.
    pub(super) fn next(&mut self) -> Result<Option<Record>, UndoError> {
        let device = self.number()?;
        let len = self.number()?;
        let (offset, sum, own_sum) =
            (self.long_number()?, self.long_number()?, self.long_number()?);
        let mut old = vec![0; self.bounded(len, MOST_BYTES)?];
        self.read(&mut old)?;
        let record = Record { device, offset, sum, old };
        if record.own_sum() != own_sum {
            return Err(self.damaged());
        }
        if device == END {
            return if offset == self.records { Ok(None) } else { Err(self.damaged()) };
        }
        self.records += 1;
        let is_inside = self.devices.get(device as usize).is_some_and(|device| {
            offset.checked_add(u64::from(len)).is_some_and(|end| end <= device.len_bytes)
        });
        if is_inside { Ok(Some(record)) } else { Err(self.damaged()) }
    }
}
