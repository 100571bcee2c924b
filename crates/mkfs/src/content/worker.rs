//! A thread's part in copying: jobs in, outputs out.

use larder_format::compression::{
    Algorithm, Compressor, ExtentKind, MAX_UNCOMPRESSED_BYTES, is_worth_trying,
};
use larder_format::item::{
    FileExtentHeader, FileExtentItem, FileExtentKind, InodeFlags, RegularExtent,
};
use larder_format::{ItemType, Key};
use zerocopy::{FromZeros, IntoBytes};

use super::directory::directory_size;
use super::job::{Job, file_parts};
use super::names::{add_references, root_reference};
use super::ranges::Part;
use super::{
    Attributes, Context, OpenFile, Opener, Output, Piece, Record, XattrReader, XattrSource,
};
use crate::MkfsError;
use crate::settings::{GENERATION, MAX_INLINE_BYTES};
use crate::source::Kind;

/// The state that a thread reuses from job to job.
pub(crate) struct Worker<'a> {
    context: Context<'a>,
    opener: Opener<'a>,
    xattrs: XattrReader,
    compressor: Option<Compressor>,
    /// Data before compression, and inline data.
    raw: Vec<u8>,
    packed: Vec<u8>,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(context: Context<'a>) -> Self {
        Self {
            context,
            opener: Opener::new(context),
            xattrs: XattrReader::new(),
            compressor: context.settings.compression.map(Compressor::new),
            raw: vec![0; MAX_UNCOMPRESSED_BYTES],
            packed: vec![0; context.settings.sector_size],
        }
    }

    pub(crate) fn run(&mut self, job: Job<'_>) -> Result<Output, MkfsError> {
        let mut output = Output::default();
        match job {
            Job::Nodes(nodes) => {
                for at in nodes {
                    if self.context.subvolume.is_first_name(at) {
                        self.node(at, &mut output)?;
                    }
                }
            }
            Job::LargeFile(file) => self.file_items(&file, file.allocated_bytes(), &mut output)?,
            Job::Parts(file, parts) => {
                for part in parts {
                    self.part(&file, part, &mut output)?;
                }
            }
            Job::Failed(error) => return Err(error),
        }
        Ok(output)
    }

    fn node(&mut self, at: u32, output: &mut Output) -> Result<(), MkfsError> {
        match self.context.subvolume.node(at).kind {
            Kind::File => self.small_file(at, output),
            Kind::Directory if at == 0 => self.root_directory(output),
            Kind::Directory => self.directory(at, output),
            Kind::Symlink => self.symlink(at, output),
            Kind::Special(_) => self.special(at, output),
            Kind::Subvolume(_) => Ok(()),
        }
    }

    fn inode_item(
        &self,
        at: u32,
        attributes: &Attributes,
        size: u64,
        nbytes: u64,
        output: &mut Output,
    ) {
        let nlink = self.context.subvolume.names_of(&at).len() as u32;
        let node = self.context.subvolume.node(at);
        let (inode, flags) = (node.inode, node.flags);
        let item = attributes.inode_item(nlink, size, nbytes, flags);
        output.item(Key::new(inode, ItemType::INODE_ITEM, 0), &[item.as_bytes()]);
    }

    fn add_xattrs(
        &mut self,
        at: u32,
        source: &XattrSource<'_>,
        output: &mut Output,
    ) -> Result<(), MkfsError> {
        let Context { settings, subvolume, .. } = self.context;
        let inode = subvolume.node(at).inode;
        self.xattrs.add_xattrs(source, || subvolume.path(at), inode, settings, output)
    }

    fn root_directory(&mut self, output: &mut Output) -> Result<(), MkfsError> {
        let Context { settings, subvolume, .. } = self.context;
        let root = subvolume.node(0);
        let opened = subvolume.root_path().map(|_| self.opener.open_directory(0)).transpose()?;
        let attributes = match &opened {
            Some((_, status)) => Attributes::of_source(status, settings),
            None => Attributes::of_new_directory(settings),
        };
        self.inode_item(0, &attributes, directory_size(subvolume, root), 0, output);
        let (key, reference) = root_reference(root.inode);
        output.item(key, &[&reference]);
        if let Some((directory, _)) = &opened {
            self.add_xattrs(0, &XattrSource::Open(directory), output)?;
        }
        output.records.push(Record::Entries { node: 0 });
        Ok(())
    }

    fn directory(&mut self, at: u32, output: &mut Output) -> Result<(), MkfsError> {
        let Context { settings, subvolume, .. } = self.context;
        let (directory, status) = self.opener.open_directory(at)?;
        let attributes = Attributes::of_source(&status, settings);
        self.inode_item(at, &attributes, directory_size(subvolume, subvolume.node(at)), 0, output);
        add_references(&self.context, at, output)?;
        self.add_xattrs(at, &XattrSource::Open(&directory), output)?;
        output.records.push(Record::Entries { node: at });
        Ok(())
    }

    fn symlink(&mut self, at: u32, output: &mut Output) -> Result<(), MkfsError> {
        let Context { settings, subvolume, .. } = self.context;
        let (link, status) = self.opener.pin(at)?;
        let target = self.opener.read_link(at, &link)?;
        let most = settings.max_item_size() - size_of::<FileExtentHeader>();
        if target.len() > most.min(settings.sector_size - 1) {
            let problem = "the target of the symbolic link does not fit a leaf".into();
            return Err(MkfsError::Unsupported { path: subvolume.path(at), problem });
        }
        let attributes = Attributes::of_source(&status, settings);
        self.inode_item(at, &attributes, target.len() as u64, target.len() as u64, output);
        add_references(&self.context, at, output)?;
        self.add_xattrs(at, &XattrSource::Path(&link.path()), output)?;
        self.inline_extent(at, target.len() as u64, &target, None, output);
        Ok(())
    }

    fn special(&mut self, at: u32, output: &mut Output) -> Result<(), MkfsError> {
        let settings = self.context.settings;
        let (pinned, status) = self.opener.pin(at)?;
        self.inode_item(at, &Attributes::of_source(&status, settings), 0, 0, output);
        add_references(&self.context, at, output)?;
        self.add_xattrs(at, &XattrSource::Path(&pinned.path()), output)
    }

    fn small_file(&mut self, at: u32, output: &mut Output) -> Result<(), MkfsError> {
        let file = self.opener.open_file(at)?;
        if let Some((stored_len, compression)) = self.read_inline(&file)? {
            self.file_items(&file, file.size, output)?;
            let stored = if compression.is_some() { &self.packed } else { &self.raw };
            self.inline_extent(at, file.size, &stored[..stored_len], compression, output);
            return Ok(());
        }
        self.file_items(&file, file.allocated_bytes(), output)?;
        for part in file_parts(&file, self.context) {
            self.part(&file, part, output)?;
        }
        Ok(())
    }

    /// The items before a file's data.
    fn file_items(
        &mut self,
        file: &OpenFile<'_>,
        nbytes: u64,
        output: &mut Output,
    ) -> Result<(), MkfsError> {
        let attributes = Attributes::of_source(&file.status, self.context.settings);
        self.inode_item(file.at, &attributes, file.size, nbytes, output);
        add_references(&self.context, file.at, output)?;
        self.add_xattrs(file.at, &XattrSource::Open(&file.opened), output)
    }

    /// Reads a file that is small enough for an inline extent, into `packed` if it is compressed,
    /// otherwise into `raw`. Returns the stored length, or `None` if it is too large.
    fn read_inline(
        &mut self,
        file: &OpenFile<'_>,
    ) -> Result<Option<(usize, Option<Algorithm>)>, MkfsError> {
        let settings = self.context.settings;
        let sector_size = settings.sector_size;
        let compresses = self.compresses(file.at);
        let possible = if compresses { sector_size } else { MAX_INLINE_BYTES };
        if file.ranges.is_empty() || file.size > possible as u64 {
            return Ok(None);
        }
        let size = file.size as usize;
        file.read(&mut self.raw[..size], 0)?;
        if let Some(compressor) = self.compressor.as_mut().filter(|_| compresses) {
            let input = &self.raw[..size];
            let room = &mut self.packed[..MAX_INLINE_BYTES];
            let packed = compressor.compress(input, room, sector_size as u32, ExtentKind::Inline);
            if let Some(len) = packed.expect("at most a sector of valid size") {
                return Ok(Some((len, Some(compressor.compression().algorithm()))));
            }
        }
        Ok((size <= MAX_INLINE_BYTES).then_some((size, None)))
    }

    /// Whether a file is compressed: one without checksums or written in place is not.
    fn compresses(&self, at: u32) -> bool {
        self.compressor.is_some() && self.context.subvolume.node(at).flags.is_empty()
    }

    fn inline_extent(
        &self,
        at: u32,
        size: u64,
        stored: &[u8],
        compression: Option<Algorithm>,
        output: &mut Output,
    ) {
        let header = FileExtentHeader {
            generation: GENERATION.into(),
            ram_bytes: size.into(),
            compression: compression.map_or(0, Algorithm::to_disk),
            kind: FileExtentKind::Inline as u8,
            ..FileExtentHeader::new_zeroed()
        };
        let inode = self.context.subvolume.node(at).inode;
        output.compression_used |= compression.is_some();
        output.item(Key::new(inode, ItemType::EXTENT_DATA, 0), &[header.as_bytes(), stored]);
    }

    fn part(
        &mut self,
        file: &OpenFile<'_>,
        part: Part,
        output: &mut Output,
    ) -> Result<(), MkfsError> {
        let inode = self.context.subvolume.node(file.at).inode;
        match part {
            Part::Hole(hole) => {
                let len = hole.end - hole.start;
                let item = hole_item(len);
                let key = Key::new(inode, ItemType::EXTENT_DATA, hole.start);
                output.item(key, &[item.as_bytes()]);
                Ok(())
            }
            Part::Data(range) if self.compresses(file.at) => {
                for start in range.clone().step_by(MAX_UNCOMPRESSED_BYTES) {
                    let end = range.end.min(start + MAX_UNCOMPRESSED_BYTES as u64);
                    self.compressed_data(file, start, (end - start) as usize, output)?;
                }
                Ok(())
            }
            Part::Data(range) => {
                let len = (range.end - range.start) as usize;
                file.read(&mut output.data_room(self.context.buffers)[..len], range.start)?;
                self.add_extent(file.at, range.start, len, len, None, output);
                Ok(())
            }
        }
    }

    /// Adds at most [`MAX_UNCOMPRESSED_BYTES`], compressed if that saves a sector.
    fn compressed_data(
        &mut self,
        file: &OpenFile<'_>,
        start: u64,
        len: usize,
        output: &mut Output,
    ) -> Result<(), MkfsError> {
        let sector_size = self.context.settings.sector_size;
        let compressor = self.compressor.as_mut().expect("only called with a compressor");
        let raw = &mut self.raw[..len];
        file.read(raw, start)?;
        let in_file = &raw[..len.min((file.size - start) as usize)];
        let room = &mut output.data_room(self.context.buffers)[..len];
        let packed = if is_worth_trying(in_file) {
            let packed =
                compressor.compress(in_file, room, sector_size as u32, ExtentKind::Regular);
            packed.expect("at most the longest extent")
        } else {
            None
        };
        let (disk_len, compression) = if let Some(packed) = packed {
            let disk_len = packed.next_multiple_of(sector_size);
            room[packed..disk_len].fill(0);
            (disk_len, Some(compressor.compression().algorithm()))
        } else {
            room.copy_from_slice(raw);
            (len, None)
        };
        self.add_extent(file.at, start, len, disk_len, compression, output);
        Ok(())
    }

    /// Adds the data at the start of the output's unused space.
    fn add_extent(
        &self,
        at: u32,
        file_offset: u64,
        len: usize,
        disk_len: usize,
        compression: Option<Algorithm>,
        output: &mut Output,
    ) {
        let settings = self.context.settings;
        let node = self.context.subvolume.node(at);
        let is_summed = !node.flags.contains(InodeFlags::NODATASUM);
        let data = &output.data[output.data_len..output.data_len + disk_len];
        let sectors = data.chunks_exact(settings.sector_size);
        if is_summed {
            for sector in sectors {
                output.checksums.extend_from_slice(settings.checksum.compute(sector).as_bytes());
            }
        } else {
            let len = output.checksums.len() + sectors.len() * settings.checksum.size();
            output.checksums.resize(len, 0);
        }
        output.data_len += disk_len;
        output.compression_used |= compression.is_some();
        let (num_bytes, disk_bytes) = (len as u64, disk_len as u64);
        let piece = Piece { file_offset, num_bytes, disk_bytes, compression };
        output.extent(node.inode, piece, is_summed);
    }
}

fn hole_item(len: u64) -> FileExtentItem {
    FileExtentItem {
        header: FileExtentHeader {
            generation: GENERATION.into(),
            ram_bytes: len.into(),
            kind: FileExtentKind::Regular as u8,
            ..FileExtentHeader::new_zeroed()
        },
        extent: RegularExtent { num_bytes: len.into(), ..RegularExtent::new_zeroed() },
    }
}
