//! `larder version`.

use std::io::Write;
use std::process::ExitCode;

use serde::Serialize;

use crate::global::Global;
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::print::{OUTPUT_VERSION, write_json};
use crate::program::Program;

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
        writeln!(out, "{} {}", program.display_name(), program.version())?;
    }
    Ok(ExitCode::SUCCESS)
}
