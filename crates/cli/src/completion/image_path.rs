//! Paths in images. Images are only read, and what cannot be read has no candidates.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use clap_complete::CompletionCandidate;
use clap_complete::engine::{PathCompleter, ValueCompleter};
use larder::{FileType, OpenOptions};

use crate::target::is_image;

/// Nobody chooses among more; a shell that waited for them would seem to hang.
const MOST_ENTRIES: usize = 100_000;

/// Candidates for `word`, the beginning of an `IMAGE:/path` or of a path on the host.
pub fn candidates(word: &OsStr) -> Vec<CompletionCandidate> {
    let bytes = word.as_bytes();
    if let Some(colon) = bytes.windows(2).position(|pair| pair == b":/") {
        return in_image(bytes, colon).unwrap_or_default();
    }
    match bytes.strip_suffix(b":") {
        Some(image) if is_image_file(&on_host(OsStr::from_bytes(image))) => {
            vec![CompletionCandidate::new(joined(&[bytes, b"/"]))]
        }
        _ => PathCompleter::any().complete(word).into_iter().map(image_or_path).collect(),
    }
}

/// Opening anything but a file could wait for a writer.
fn is_image_file(path: &Path) -> bool {
    path.is_file() && is_image(path)
}

/// A path goes on in an image that it names.
fn image_or_path(candidate: CompletionCandidate) -> CompletionCandidate {
    if is_image_file(&on_host(candidate.get_value())) {
        let hidden = candidate.is_hide_set();
        return CompletionCandidate::new(joined(&[candidate.get_value().as_bytes(), b":/"]))
            .hide(hidden);
    }
    candidate
}

/// Candidates for `word`, the beginning of a path in the image before `colon`.
fn in_image(word: &[u8], colon: usize) -> Option<Vec<CompletionCandidate>> {
    let image = on_host(OsStr::from_bytes(&word[..colon]));
    let is_device = image.metadata().ok()?.file_type().is_block_device();
    let is_sure_to_open = is_image_file(&image) || (is_device && is_image(&image));
    if !is_sure_to_open {
        return None;
    }
    let filesystem = OpenOptions::new().degraded(true).open([&image]).ok()?;
    let name_start = word.iter().rposition(|&byte| byte == b'/')? + 1;
    let (before, beginning) = word.split_at(name_start);
    let start = filesystem.default_subvolume().ok()?;
    let directory = start.resolve(OsStr::from_bytes(&before[colon + 1..])).ok()?;
    let entries = directory.into_directory().ok()?.entries().ok()?;
    let mut candidates: Vec<CompletionCandidate> = entries
        .take(MOST_ENTRIES)
        .flatten()
        .filter(|entry| entry.name().as_bytes().starts_with(beginning))
        .map(|entry| {
            let name = entry.name().as_bytes();
            let is_directory = entry.file_type() == FileType::Directory;
            let end = if is_directory { &b"/"[..] } else { b"" };
            CompletionCandidate::new(joined(&[before, name, end])).hide(name.starts_with(b"."))
        })
        .collect();
    candidates.sort();
    Some(candidates)
}

fn joined(parts: &[&[u8]]) -> OsString {
    OsString::from_vec(parts.concat())
}

/// The path that a shell makes of `word`, whose tilde it has not replaced yet.
fn on_host(word: &OsStr) -> PathBuf {
    let path = Path::new(word);
    match (path.strip_prefix("~"), env::home_dir()) {
        (Ok(below), Some(home)) => home.join(below),
        _ => path.to_owned(),
    }
}
