//! Everyday work on a file system: programs in seconds, and single calls in microseconds.

mod calls;
mod programs;
mod table;

use std::path::PathBuf;

use clap::Args;
use larder_testkit::Scratch;

use self::table::Table;
use crate::mounts::{Side, shell};

/// Run everyday programs on all mounts: tar, cp, rsync, find, ls, du, grep, rm, git, sqlite, fio
///
/// Prints seconds for programs and microseconds for single calls, and for each of Larder's mounts
/// the ratio to the kernel's time. Each side works on a new file system of 8 GiB in a file on
/// tmpfs.
///
/// Example: larder-bench everyday --only tar,rm
#[derive(Debug, Args)]
pub struct Everyday {
    /// Directories to copy, pack and search
    #[arg(long, value_delimiter = ',', default_values = ["/usr/include", "/usr/share/doc", "/usr/lib/python3"])]
    source: Vec<PathBuf>,
    /// Directories of 1,000 empty files each
    #[arg(long, default_value_t = 200)]
    directories: usize,
    /// Files of 3 kB for single calls
    #[arg(long, default_value_t = 4000)]
    files: usize,
    /// Print only rows whose names contain one of these words (other programs run only as far as
    /// these need them)
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Options for Larder's mounts, as for larder mount -o
    #[arg(long)]
    options: Option<String>,
    /// Runs of each side; the best of each counts
    #[arg(long, default_value_t = 1)]
    repeats: usize,
}

impl Everyday {
    pub fn run(self) -> anyhow::Result<()> {
        let material = Scratch::new();
        self.make_material(&material)?;
        let mut table = Table::default();
        for _ in 0..self.repeats {
            for side in Side::ALL {
                side.on_new_mount(self.options.as_deref(), |root| {
                    programs::run(root, side, material.path(), |row, time| {
                        table.add(row, side, time);
                    })
                })?;
                side.on_new_mount(self.options.as_deref(), |root| {
                    calls::run(root, self.files, |row, time| table.add(row, side, time))
                })?;
            }
        }
        table.print(|row| self.only.is_empty() || self.only.iter().any(|word| row.contains(word)));
        Ok(())
    }

    /// The trees and archives that programs read, outside of all measured file systems.
    fn make_material(&self, material: &Scratch) -> anyhow::Result<()> {
        let sources: Vec<_> = self.source.iter().map(|path| path.display().to_string()).collect();
        let (sources, directories) = (sources.join(" "), self.directories);
        shell(
            material.path(),
            &format!(
                "mkdir tree empty; cp -a {sources} tree; tar -cf tree.tar tree; \
                 for d in $(seq {directories}); do mkdir empty/d$d; (cd empty/d$d; seq 1000 | xargs touch); done; \
                 tar -cf empty.tar empty; rm -r empty; \
                 find tree -type f -printf '%s\\n' | awk '{{n++; s+=$1}} END {{print n \" files of \" s/1e6 \" MB\"}}' >&2"
            ),
        )?;
        Ok(())
    }
}
