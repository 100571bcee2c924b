//! Reading tar archives: ustar, GNU and PAX.
//!
//! The crate `tar`, whose headers these are, splits PAX records at line ends, which values of
//! extended attributes may contain.
//!
//! # Invariants
//! - An archive makes us hold at most [`MOST_RECORD_BYTES`] of names and records, and
//!   [`MOST_RANGES`] ranges.
//! - No reader gets more of a member's data than the member has; the rest is skipped.

use std::io::{self, BufRead, Read};

use anyhow::{Context, bail, ensure};
use tar::{EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};

use super::sparse::{MOST_RANGES, Ranges};

const BLOCK_BYTES: u64 = 512;
/// Bytes of long names and PAX records of one member.
const MOST_RECORD_BYTES: u64 = 4 << 20;

/// A PAX record: its key and value.
pub(super) type Record = (Vec<u8>, Vec<u8>);

/// A member of an archive, without its data.
pub(super) struct Member {
    /// Its header.
    pub header: Header,
    /// Its name, as the archive has it.
    pub name: Vec<u8>,
    /// The target of a link.
    pub link: Vec<u8>,
    /// Bytes of data in the archive.
    pub len_bytes: u64,
    /// The records before it.
    pub records: Vec<Record>,
    /// For a sparse file in GNU's old format, its length and the ranges of its data.
    pub sparse: Option<(u64, Ranges)>,
}

/// Headers before a member that belong to it.
#[derive(Default)]
struct Before {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    records: Vec<Record>,
}

/// Reads an archive from its start. Reading from it reads the data of the current member.
pub(super) struct TarReader<R> {
    input: Counted<R>,
    /// The rest of that member's data, and of the padding after it.
    data_bytes: u64,
    padding_bytes: u64,
}

/// An input, and how many bytes of it were read.
struct Counted<R> {
    input: R,
    bytes: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.input.read(buf)?;
        self.bytes += len as u64;
        Ok(len)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, len: usize) {
        self.input.consume(len);
        self.bytes += len as u64;
    }
}

impl<R: BufRead> TarReader<R> {
    /// The archive that `input` holds.
    pub(super) fn new(input: R) -> Self {
        Self { input: Counted { input, bytes: 0 }, data_bytes: 0, padding_bytes: 0 }
    }

    /// Bytes of the archive that were read.
    pub(super) fn position(&self) -> u64 {
        self.input.bytes
    }

    /// The next member; `None` at the end.
    pub(super) fn next_member(&mut self) -> anyhow::Result<Option<Member>> {
        let mut before = Before::default();
        while let Some(header) = self.next_header()? {
            let len_bytes = header.entry_size()?;
            self.enter(len_bytes);
            match header.entry_type() {
                EntryType::GNULongName => before.name = Some(self.long_name()?),
                EntryType::GNULongLink => before.link = Some(self.long_name()?),
                EntryType::XHeader => before.records = parse_records(&self.whole()?)?,
                EntryType::XGlobalHeader => {}
                _ => return self.member(header, before).map(Some),
            }
        }
        Ok(None)
    }

    fn member(&mut self, header: Header, mut before: Before) -> anyhow::Result<Member> {
        let mut take = |key: &[u8]| {
            let at = before.records.iter().rposition(|(known, _)| known == key)?;
            Some(before.records.swap_remove(at).1)
        };
        let path = take(b"path");
        let link = take(b"linkpath");
        if let Some(size) = take(b"size") {
            let size = std::str::from_utf8(&size)?.parse().context("a size is no number")?;
            self.enter(size);
        }
        let sparse = match header.entry_type() {
            EntryType::GNUSparse => Some(self.old_sparse(&header)?),
            _ => None,
        };
        Ok(Member {
            name: path.or(before.name).unwrap_or_else(|| header.path_bytes().into_owned()),
            link: link
                .or(before.link)
                .or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned))
                .unwrap_or_default(),
            len_bytes: self.data_bytes,
            records: before.records,
            sparse,
            header,
        })
    }

    /// The next header, after the data of the last member.
    fn next_header(&mut self) -> anyhow::Result<Option<Header>> {
        let skip = self.data_bytes.checked_add(self.padding_bytes).context("a size cannot be")?;
        let skipped = io::copy(&mut (&mut self.input).take(skip), &mut io::sink())?;
        ensure!(skipped == skip, "the archive ends in the middle of a file");
        self.enter(0);
        let mut header = Header::new_old();
        if !read_block(&mut self.input, header.as_mut_bytes())? {
            return Ok(None);
        }
        if header.as_bytes().iter().all(|byte| *byte == 0) {
            // The program that writes the archive must not fail because its end is not read.
            io::copy(&mut self.input, &mut io::sink())?;
            return Ok(None);
        }
        let sum = header.cksum().context("this is no tar archive")?;
        ensure!(sum == checksum(&header), "this is no tar archive, or it is damaged");
        Ok(Some(header))
    }

    fn enter(&mut self, len_bytes: u64) {
        self.data_bytes = len_bytes;
        self.padding_bytes = len_bytes.wrapping_neg() % BLOCK_BYTES;
    }

    /// All data of the current member, which is no file.
    fn whole(&mut self) -> anyhow::Result<Vec<u8>> {
        ensure!(self.data_bytes <= MOST_RECORD_BYTES, "names or records are too long");
        let mut data = Vec::new();
        self.read_to_end(&mut data)?;
        ensure!(self.data_bytes == 0, "the archive ends in the middle of a name or record");
        Ok(data)
    }

    fn long_name(&mut self) -> anyhow::Result<Vec<u8>> {
        let mut name = self.whole()?;
        name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
        Ok(name)
    }

    /// The length of a file in GNU's old sparse format, and the ranges of its data: from the
    /// header, and from blocks after it that do not count as data.
    fn old_sparse(&mut self, header: &Header) -> anyhow::Result<(u64, Ranges)> {
        let gnu = header.as_gnu().context("a sparse file without a map")?;
        let mut numbers = Vec::new();
        add_numbers(&mut numbers, &gnu.sparse)?;
        let mut is_extended = gnu.is_extended();
        while is_extended {
            let mut more = GnuExtSparseHeader::new();
            ensure!(read_block(&mut self.input, more.as_mut_bytes())?, "the map ends too early");
            add_numbers(&mut numbers, &more.sparse)?;
            ensure!(numbers.len() <= 2 * MOST_RANGES, "the map is too long");
            is_extended = more.is_extended();
        }
        Ok((gnu.real_size()?, Ranges::of_numbers(&numbers)?))
    }
}

impl<R: BufRead> BufRead for TarReader<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let data = self.input.fill_buf()?;
        let len = usize::try_from(self.data_bytes).map_or(data.len(), |left| left.min(data.len()));
        Ok(&data[..len])
    }

    fn consume(&mut self, len: usize) {
        self.input.consume(len);
        self.data_bytes -= len as u64;
    }
}

impl<R: Read> Read for TarReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = (&mut self.input).take(self.data_bytes).read(buf)?;
        self.data_bytes -= len as u64;
        Ok(len)
    }
}

/// Reads a whole block. Returns false at the end of the archive.
fn read_block(input: &mut impl Read, block: &mut [u8]) -> anyhow::Result<bool> {
    let mut read = Vec::with_capacity(block.len());
    input.take(block.len() as u64).read_to_end(&mut read)?;
    if read.is_empty() {
        return Ok(false);
    }
    ensure!(read.len() == block.len(), "the archive ends in the middle of a block");
    block.copy_from_slice(&read);
    Ok(true)
}

/// The sum of a header's bytes, with blanks in place of the sum.
fn checksum(header: &Header) -> u32 {
    let field = 148..156;
    let bytes = header.as_bytes().iter().enumerate();
    bytes.map(|(at, byte)| if field.contains(&at) { 32 } else { u32::from(*byte) }).sum()
}

fn add_numbers(numbers: &mut Vec<u64>, ranges: &[GnuSparseHeader]) -> io::Result<()> {
    for range in ranges.iter().filter(|range| !range.is_empty()) {
        numbers.extend([range.offset()?, range.length()?]);
    }
    Ok(())
}

/// Reads PAX records: `LENGTH KEY=VALUE\n`, where the length counts all of it.
fn parse_records(mut data: &[u8]) -> anyhow::Result<Vec<Record>> {
    let mut records = Vec::new();
    while !data.is_empty() {
        let (record, rest) = split_record(data).context("a record cannot be read")?;
        let Some(equals) = record.iter().position(|byte| *byte == b'=') else {
            bail!("a record has no value");
        };
        records.push((record[..equals].to_vec(), record[equals + 1..].to_vec()));
        data = rest;
    }
    Ok(records)
}

/// The first record, between its length and its end, and the rest.
fn split_record(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let blank = data.iter().position(|byte| *byte == b' ')?;
    let len: usize = std::str::from_utf8(&data[..blank]).ok()?.parse().ok()?;
    let (record, rest) = data.split_at_checked(len)?;
    let record = record.get(blank + 1..)?.strip_suffix(b"\n")?;
    Some((record, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_records_may_have_any_bytes() {
        let data = b"8 a=\n\nx\n6 b=c\n7 d==\n\n";
        let records = parse_records(data).unwrap();
        let expected: [(&[u8], &[u8]); 3] = [(b"a", b"\n\nx"), (b"b", b"c"), (b"d", b"=\n")];
        assert_eq!(records.len(), expected.len());
        for ((key, value), (expected_key, expected_value)) in records.iter().zip(expected) {
            assert_eq!((&key[..], &value[..]), (expected_key, expected_value));
        }
        for bad in ["9 a=b\n", "5 a=b\n", "0 ", "x a=b\n", "4 a\n", "-1 a=b\n"] {
            assert!(parse_records(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn invalid_archives_are_refused() {
        for bytes in [vec![1; 512], vec![1; 511], [vec![b'a'; 100], vec![0; 412]].concat()] {
            assert!(TarReader::new(&bytes[..]).next_member().is_err());
        }
        assert!(TarReader::new(io::empty()).next_member().unwrap().is_none());
        assert!(TarReader::new(&[0; 2048][..]).next_member().unwrap().is_none());
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        let mut header = Header::new_gnu();
        header.set_path("file").unwrap();
        for entry_type in [EntryType::Regular, EntryType::XHeader, EntryType::GNULongName] {
            header.set_entry_type(entry_type);
            header.set_size(u64::MAX);
            header.set_cksum();
            let mut reader = TarReader::new(&header.as_bytes()[..]);
            let refused = match reader.next_member() {
                Ok(Some(_)) => reader.next_member().is_err(),
                other => other.is_err(),
            };
            assert!(refused, "{entry_type:?}");
        }
    }
}
