//! Loop devices, mounts and scratch files that go away when a test ends, also when it fails.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Returns from the calling test, loudly, unless it runs as root.
macro_rules! require_root {
    () => {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED {}: needs root for loop devices and mounts", module_path!());
            return;
        }
    };
}
pub(crate) use require_root;

/// Runs a command that must succeed; returns what it printed, trimmed.
pub(crate) fn run<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {}: {stderr}", output.status);
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A directory for one test.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(tempfile::Builder::new().prefix("larder-device-").tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A sparse file.
    pub(crate) fn file(&self, name: &str, len_bytes: u64) -> PathBuf {
        let path = self.path(name);
        File::create(&path).unwrap().set_len(len_bytes).unwrap();
        path
    }

    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir(&path).unwrap();
        path
    }
}

/// An attached loop device.
pub(crate) struct Loop(pub(crate) PathBuf);

impl Loop {
    pub(crate) fn attach(backing: &Path) -> Self {
        Self::attach_with(&[], backing)
    }

    pub(crate) fn attach_with(options: &[&str], backing: &Path) -> Self {
        let mut arguments: Vec<&OsStr> = ["--find", "--show"].map(OsStr::new).to_vec();
        arguments.extend(options.iter().map(OsStr::new));
        arguments.push(backing.as_os_str());
        Self(run("losetup", &arguments).into())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// A mounted file system.
pub(crate) struct Mount(pub(crate) PathBuf);

impl Mount {
    /// Mounts `source` at the directory `at`.
    pub(crate) fn new(options: &[&str], source: impl AsRef<OsStr>, at: PathBuf) -> Self {
        let mut arguments: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
        arguments.extend([source.as_ref(), at.as_os_str()]);
        run("mount", &arguments);
        Self(at)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Undoes something by a command.
pub(crate) struct Undo(pub(crate) &'static str, pub Vec<String>);

impl Drop for Undo {
    fn drop(&mut self) {
        let _ = Command::new(self.0).args(&self.1).status();
    }
}
