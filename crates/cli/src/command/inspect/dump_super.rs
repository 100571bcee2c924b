//! `larder inspect dump-super`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use larder_device::{Access, Device};
use larder_format::superblock::{MAGIC, OFFSETS, SUPERBLOCK_SIZE, Superblock};
use serde_json::json;
use zerocopy::FromBytes;

use crate::devices;
use crate::ending::wait_for_ending_servers;
use crate::global::Global;
use crate::operand::parse_number;
use crate::outcome::Outcome;
use crate::output::{Stdout, stdout};
use crate::place::{PlaceOptions, located};
use crate::print::superblock::put_superblock;
use crate::print::{JsonList, Name, Object, superblock_fields};

/// Show the superblock of a device
///
/// As JSON it is always shown in full.
///
/// Example: larder inspect dump-super -fa disk.img
#[derive(Debug, Args)]
pub struct DumpSuper {
    /// Show the system chunks and the backup roots too
    #[arg(short, long)]
    full: bool,
    /// Show every copy that the device has room for
    #[arg(short, long, conflicts_with_all = ["copy", "bytenr"])]
    all: bool,
    /// Show this copy: 0, 1 or 2. A greater number is taken for --bytenr
    #[arg(short = 's', visible_short_alias = 'i', long = "super", value_name = "COPY", value_parser = parse_number)]
    copy: Option<u64>,
    /// Show it even when its magic is wrong
    #[arg(short = 'F', long)]
    force: bool,
    /// Show what lies at this byte offset
    #[arg(long, value_name = "OFFSET", conflicts_with = "copy", value_parser = parse_number)]
    bytenr: Option<u64>,
    #[command(flatten)]
    place: PlaceOptions,
    /// Image files or block devices
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

impl DumpSuper {
    pub fn run(mut self, global: &Global) -> Outcome {
        self.devices = devices::named(&self.devices)?;
        let out = stdout();
        let json = global.is_json().then(|| JsonList::new("dump-super"));
        let mut shown = Shown { out, json };
        let mut code = ExitCode::SUCCESS;
        let place = self.place.place();
        wait_for_ending_servers(&located(&self.devices, place));
        for path in &self.devices {
            let device = larder_image::open(path, Access::ReadOnly, place)?;
            for offset in self.offsets() {
                if !self.show(&mut shown, device.as_ref(), path, offset)? {
                    code = ExitCode::FAILURE;
                }
            }
        }
        if let Some(json) = shown.json {
            json.end_with(&mut shown.out, &[])?;
        }
        Ok(code)
    }

    fn offsets(&self) -> Vec<u64> {
        match (self.all, self.copy, self.bytenr) {
            (true, ..) => OFFSETS.iter().map(|offset| offset.0).collect(),
            (_, Some(copy), _) => {
                let known = usize::try_from(copy).ok().and_then(|copy| OFFSETS.get(copy));
                vec![known.map_or(copy, |offset| offset.0)]
            }
            (_, _, Some(offset)) => vec![offset],
            _ => vec![OFFSETS[0].0],
        }
    }

    /// Shows one superblock; when all are shown, those after the end of the device are empty lines.
    /// Returns false if there is no superblock.
    fn show(
        &self,
        shown: &mut Shown,
        device: &dyn Device,
        path: &Path,
        offset: u64,
    ) -> anyhow::Result<bool> {
        let end = offset.saturating_add(SUPERBLOCK_SIZE as u64);
        if end > device.len_bytes() {
            if self.all {
                shown.none()?;
            } else {
                let len_bytes = device.len_bytes();
                let path = path.display();
                eprintln!("ERROR: {path}: ends at {len_bytes}, before the superblock at {offset}");
            }
            return Ok(self.all);
        }
        let mut bytes = [0; SUPERBLOCK_SIZE];
        device.read_at(&mut bytes, offset)?;
        let superblock = Superblock::ref_from_bytes(&bytes).expect("of a superblock's size");
        shown.begin(path, offset)?;
        if superblock.magic.get() != MAGIC && !self.force {
            eprintln!(
                "ERROR: bad magic on superblock on {} at {offset} (use --force to dump it anyway)",
                path.display()
            );
            return Ok(false);
        }
        shown.superblock(path, offset, superblock, self.full)?;
        Ok(true)
    }
}

/// Superblocks, as text or as JSON.
struct Shown {
    out: Stdout,
    json: Option<JsonList>,
}

impl Shown {
    /// A superblock after the end of the device.
    fn none(&mut self) -> io::Result<()> {
        if self.json.is_some() { Ok(()) } else { writeln!(self.out) }
    }

    /// What comes before a superblock, also before one that is none.
    fn begin(&mut self, path: &Path, offset: u64) -> io::Result<()> {
        if self.json.is_some() {
            return Ok(());
        }
        writeln!(self.out, "superblock: bytenr={offset}, device={}", path.display())?;
        writeln!(self.out, "---------------------------------------------------------")
    }

    fn superblock(
        &mut self,
        path: &Path,
        offset: u64,
        superblock: &Superblock,
        full: bool,
    ) -> io::Result<()> {
        if let Some(json) = &mut self.json {
            let place = [("device", json!(Name::from(path))), ("offset", json!(offset))];
            let fields: Vec<_> = place.into_iter().chain(superblock_fields(superblock)).collect();
            return json.push(&mut self.out, &Object(&fields));
        }
        let mut text = Vec::new();
        put_superblock(&mut text, superblock, full);
        self.out.write_all(&text)
    }
}
