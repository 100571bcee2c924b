//! Archives that GNU tar made.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::Command;

use larder::copy::CopyOptions;
use larder_testkit::manifest::{Body, assert_copied};
use larder_testkit::{KernelImage, Manifest, Scratch};

use super::{kernel_view, new_image, open, original};

/// GNU tar takes preallocated space for data: such files are in no archive here.
fn without_preallocated(manifest: &Manifest) -> Manifest {
    let mut manifest = manifest.clone();
    manifest.entries.retain(|path, _| {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        !name.starts_with(b"prealloc") && name != b"zeroed"
    });
    manifest
}

/// An archive of what the kernel shows, made with these options.
fn archive(original: &KernelImage, scratch: &Scratch, options: &[&str]) -> PathBuf {
    let mount = original.mount("ro,noatime");
    let path = scratch.path().join("archive.tar");
    let mut tar = Command::new("tar");
    tar.args(["--create", "--sparse", "--numeric-owner"]).args(options);
    tar.args(["--exclude=prealloc*", "--exclude=zeroed"]);
    let made = tar.arg("--file").arg(&path).arg("--directory").arg(mount.path()).arg(".").status();
    // Sockets are left out with a warning.
    assert!(made.expect("tar starts").code().is_some());
    path
}

#[test]
fn archives_of_gnu_tar_are_unpacked_as_the_kernel_shows_them() {
    let original = original();
    let posix = ["--xattrs", "--xattrs-include=*", "--acls", "--format=posix"];
    let posix_old = [&posix[..], &["--sparse-version=0.1"]].concat();
    for (options, has_xattrs) in
        [(&posix[..], true), (&posix_old, true), (&["--format=gnu"], false)]
    {
        let scratch = Scratch::new();
        let path = archive(&original, &scratch, options);
        let len_bytes = path.metadata().unwrap().len();
        let image = new_image(&scratch);
        let fs = open(&image);
        let root = fs.subvolume("/").unwrap();
        root.create_directory("copy", 0o755).unwrap();
        let input = BufReader::new(File::open(&path).unwrap());
        let copied = CopyOptions::new().unpack(input, &root, "copy").unwrap();
        assert!(copied.bytes > 0 && copied.bytes <= len_bytes, "{copied:?} of {len_bytes}");
        drop(root);
        fs.close().unwrap();
        let mut expected = without_preallocated(original.manifest());
        expected.entries.retain(|_, entry| entry.body != Body::Socket);
        for entry in expected.entries.values_mut().filter(|_| !has_xattrs) {
            entry.mtime.nanoseconds = 0;
            entry.xattrs.clear();
        }
        let mount = kernel_view(&image);
        assert_copied(expected, &mount.path().join("copy"));
    }
}

#[test]
fn a_pipe_is_an_archive_too() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path().join("bread"), "butter").unwrap();
    let image = new_image(&scratch);
    let fs = open(&image);
    let root = fs.subvolume("/").unwrap();
    let mut tar = Command::new("tar");
    tar.args(["-c", "bread"]).current_dir(scratch.path()).stdout(std::process::Stdio::piped());
    let mut tar = tar.spawn().unwrap();
    let input = BufReader::new(tar.stdout.take().unwrap());
    CopyOptions::new().unpack(input, &root, "/").unwrap();
    assert!(tar.wait().unwrap().success());
    assert_eq!(root.read("bread").unwrap(), b"butter");
    fs.close().unwrap();
}
