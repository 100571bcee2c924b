//! Single calls of one thread, which waits for each.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::measure::drop_caches;

/// The content of small files.
const CONTENT: [u8; 3000] = [b'x'; 3000];

/// Creates and changes `files` files below `root`, and reports the average time of each kind of
/// call.
pub fn run(
    root: &Path,
    files: usize,
    mut took: impl FnMut(&'static str, Duration),
) -> anyhow::Result<()> {
    let [names, others]: [Vec<PathBuf>; 2] = ["f", "g"]
        .map(|kind| (0..files).map(|number| root.join(format!("{kind}{number}"))).collect());
    let mut each =
        |row, call: &mut dyn FnMut(usize) -> std::io::Result<()>| -> anyhow::Result<()> {
            let start = Instant::now();
            for number in 0..files {
                call(number)?;
            }
            took(row, start.elapsed() / files as u32);
            Ok(())
        };
    let new = |path: &Path| OpenOptions::new().write(true).create_new(true).open(path);

    let mut open: Vec<File> = Vec::new();
    each("call: open(O_CREAT, O_EXCL)", &mut |n| new(&names[n]).map(|file| open.push(file)))?;
    each("call: fchmod", &mut |n| open[n].set_permissions(Permissions::from_mode(0o600)))?;
    drop(open);
    each("call: create, write, close", &mut |n| new(&others[n])?.write_all(&CONTENT))?;
    drop_caches()?;
    each("call: lstat, fresh", &mut |n| fs::symlink_metadata(&others[n]).map(drop))?;
    each("call: lstat, again", &mut |n| fs::symlink_metadata(&others[n]).map(drop))?;
    each("call: open, read, close", &mut |n| fs::read(&others[n]).map(drop))?;
    each("call: link", &mut |n| fs::hard_link(&others[n], others[n].with_extension("l")))?;
    each("call: rename", &mut |n| fs::rename(&names[n], names[n].with_extension("r")))?;
    each("call: unlink", &mut |n| fs::remove_file(names[n].with_extension("r")))?;
    each("call: mkdir", &mut |n| fs::create_dir(&names[n]))?;
    each("call: rmdir", &mut |n| fs::remove_dir(&names[n]))
}
