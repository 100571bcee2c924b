//! Chunks: which devices hold a range of logical addresses, and how.
//!
//! Pure arithmetic, without I/O.

mod item;
mod map;
mod mapping;

use larder_format::block_group::STRIPE_LEN_BYTES;
use larder_format::{BlockGroupFlags, Logical, Physical, Profile, Shape, Uuid};

pub use item::system_chunk_array;
pub use map::ChunkMap;
pub use mapping::{Content, DeviceAddress, Segment};

/// An invalid chunk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("chunk at {logical}: {problem}")]
pub struct ChunkError {
    /// Logical start of the chunk.
    pub logical: Logical,
    /// The invalid field, and why.
    pub problem: String,
}

/// One device's part of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkStripe {
    /// Id of the device.
    pub devid: u64,
    /// UUID of the device.
    pub dev_uuid: Uuid,
    /// Its physical address on the device.
    pub physical: Physical,
}

/// A range of logical addresses and its stripes.
///
/// # Invariants
/// - The number of stripes fits the profile; a striped chunk holds a whole number of full stripes.
/// - Neither the logical range nor any stripe's physical range passes the end of the 64-bit space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    logical: Logical,
    len_bytes: u64,
    flags: BlockGroupFlags,
    profile: Profile,
    shape: Shape,
    stripes: Box<[ChunkStripe]>,
}

impl Chunk {
    /// A chunk of `len_bytes` from `logical`. Refuses invalid ones.
    pub fn new(
        logical: Logical,
        len_bytes: u64,
        flags: BlockGroupFlags,
        stripes: impl Into<Box<[ChunkStripe]>>,
    ) -> Result<Self, ChunkError> {
        let refuse = |problem: String| ChunkError { logical, problem };
        let profile = check_flags(flags).map_err(refuse)?;
        let (shape, stripes) = (profile.shape(), stripes.into());
        let chunk = Self { logical, len_bytes, flags, profile, shape, stripes };
        chunk.check_stripes().and_then(|()| chunk.check_ranges()).map_err(refuse)?;
        Ok(chunk)
    }

    fn check_stripes(&self) -> Result<(), String> {
        let stripes = self.stripes.len();
        if self.shape.allows(stripes) {
            Ok(())
        } else {
            Err(format!("{} with {stripes} stripes", self.profile))
        }
    }

    fn check_ranges(&self) -> Result<(), String> {
        let len_bytes = self.len_bytes;
        let row_bytes = self.data_stripes() as u64 * STRIPE_LEN_BYTES;
        if len_bytes == 0 {
            return Err("its length is 0".into());
        }
        if self.logical.checked_add(len_bytes).is_none() {
            return Err(format!("{len_bytes} bytes pass the end of the address space"));
        }
        if self.is_striped() && !len_bytes.is_multiple_of(row_bytes) {
            return Err(format!("{len_bytes} bytes are not whole stripes of {row_bytes}"));
        }
        let stripe_bytes = self.bytes_per_stripe();
        match self.stripes.iter().find(|s| s.physical.checked_add(stripe_bytes).is_none()) {
            Some(stripe) => Err(format!(
                "{stripe_bytes} bytes from {} on device {} pass the end of the address space",
                stripe.physical, stripe.devid
            )),
            None => Ok(()),
        }
    }

    /// The first address.
    pub fn logical(&self) -> Logical {
        self.logical
    }

    /// Length in bytes of logical address space.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// The address after the last.
    pub fn end(&self) -> Logical {
        Logical(self.logical.0 + self.len_bytes)
    }

    /// Whether it contains `logical`.
    pub fn contains(&self, logical: Logical) -> bool {
        self.logical <= logical && logical < self.end()
    }

    /// Type and profile.
    pub fn flags(&self) -> BlockGroupFlags {
        self.flags
    }

    /// Whether tree blocks lie there.
    pub fn holds_tree_blocks(&self) -> bool {
        self.flags.intersects(BlockGroupFlags::METADATA | BlockGroupFlags::SYSTEM)
    }

    /// How its bytes are laid out on devices.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// The shape of its profile.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The devices' parts, in the order of the chunk item.
    pub fn stripes(&self) -> &[ChunkStripe] {
        &self.stripes
    }

    /// Bytes that each stripe takes on its device: the length of its device extent.
    pub fn bytes_per_stripe(&self) -> u64 {
        self.len_bytes / self.data_stripes() as u64
    }

    /// Stripes with different data: all except mirrors and parity.
    pub fn data_stripes(&self) -> usize {
        self.shape.data_stripes(self.stripes.len())
    }

    /// Whether data goes to one device after the other in pieces of 64 KiB.
    pub fn is_striped(&self) -> bool {
        self.shape.is_striped
    }

    /// Whether a lost stripe is rebuilt from parity.
    pub fn has_parity(&self) -> bool {
        self.shape.parities > 0
    }

    /// The number of ways to read a byte: one for each mirror; for RAID5 directly or rebuilt; for
    /// RAID6 directly, or rebuilt without any one of the other stripes.
    pub fn copies(&self) -> usize {
        match self.shape.parities {
            0 => self.mirrors(),
            1 => 2,
            _ => self.stripes.len(),
        }
    }

    /// Devices that hold each byte directly.
    pub(crate) fn mirrors(&self) -> usize {
        self.shape.copies
    }

    /// Whether every byte can still be read without the stripes for which `is_missing` holds.
    pub fn survives(&self, is_missing: impl Fn(&ChunkStripe) -> bool) -> bool {
        let missing = |stripes: &[ChunkStripe]| stripes.iter().filter(|s| is_missing(s)).count();
        if self.has_parity() {
            return missing(&self.stripes) <= self.shape.parities;
        }
        self.stripes.chunks(self.mirrors()).all(|mirrors| missing(mirrors) < mirrors.len())
    }
}

fn check_flags(flags: BlockGroupFlags) -> Result<Profile, String> {
    let types = flags & BlockGroupFlags::TYPES;
    let unknown = flags.difference(BlockGroupFlags::TYPES | BlockGroupFlags::PROFILES);
    if !unknown.is_empty() {
        return Err(format!("unknown bits {:#x} in its type", unknown.bits()));
    }
    if types.is_empty()
        || (types.contains(BlockGroupFlags::SYSTEM) && types.bits().count_ones() > 1)
    {
        return Err(format!("type {:#x} is none that exists", types.bits()));
    }
    flags.profile().ok_or_else(|| format!("several profiles in its type {:#x}", flags.bits()))
}
