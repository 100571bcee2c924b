//! The program that is measured.

use std::path::PathBuf;

/// The `larder` program of the same build.
pub fn larder_program() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("larder");
    anyhow::ensure!(program.exists(), "build larder-cli first: {} is not there", program.display());
    Ok(program)
}
