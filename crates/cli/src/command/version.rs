//! `larder version`.

use std::io::Write;
use std::process::ExitCode;

use serde::Serialize;

use super::Outcome;
use crate::global::Global;
use crate::output::stdout;
use crate::print::{OUTPUT_VERSION, write_json};
use crate::program::Program;

/// What `--version` prints after the name.
pub const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit:      ",
    env!("LARDER_COMMIT"),
    "\ntarget:      ",
    env!("LARDER_TARGET"),
    "\nchecksums:   crc32c, xxhash, sha256, blake2",
    "\ncompression: zlib, lzo, zstd",
    "\nmount:       FUSE, over /dev/fuse or io_uring",
);

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Object {
    version: &'static str,
    /// The release of btrfs-progs whose output this program follows.
    output_of: &'static str,
    commit: &'static str,
    target: &'static str,
    checksums: [&'static str; 4],
    compression: [&'static str; 3],
}

pub fn run(global: &Global, program: Program) -> Outcome {
    let mut out = stdout();
    if global.is_json() {
        let object = Object {
            version: env!("CARGO_PKG_VERSION"),
            output_of: OUTPUT_VERSION,
            commit: env!("LARDER_COMMIT"),
            target: env!("LARDER_TARGET"),
            checksums: ["crc32c", "xxhash", "sha256", "blake2"],
            compression: ["zlib", "lzo", "zstd"],
        };
        write_json(&mut out, "version", &object)?;
    } else {
        write!(out, "{}", program.command().render_long_version())?;
    }
    Ok(ExitCode::SUCCESS)
}
