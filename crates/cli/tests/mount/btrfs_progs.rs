//! The `btrfs` program does and prints the same on a mount of larder as on the kernel's.
//!
//! It refuses a file system that `statfs` does not call a btrfs, and takes only inodes with the
//! number 256 for subvolumes; the kernel lets no FUSE server say either. Here a library that is
//! loaded before the C library says both, so that only the ioctls are compared.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_testkit::content::Content;
use larder_testkit::{ImageSpec, KernelImage, KernelMount, Scratch};

use crate::support::{Mounted, succeed};

const SHIM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>
static int of_btrfs(int done, struct statfs *s) {
    if (!done && s->f_type == 0x65735546) s->f_type = 0x9123683E;
    return done;
}
int statfs(const char *p, struct statfs *s) { return of_btrfs(syscall(SYS_statfs, p, s), s); }
int fstatfs(int f, struct statfs *s) { return of_btrfs(syscall(SYS_fstatfs, f, s), s); }
static int of_subvolume(int done, struct stat *s) {
    if (!done && (s->st_ino & 0xFFFFFFul) == 256) s->st_ino = 256;
    return done;
}
int fstatat(int f, const char *p, struct stat *s, int flags) {
    return of_subvolume(syscall(SYS_newfstatat, f, p, s, flags), s);
}
int stat(const char *p, struct stat *s) { return fstatat(AT_FDCWD, p, s, 0); }
int fstat(int f, struct stat *s) { return fstatat(f, "", s, AT_EMPTY_PATH); }
"#;

/// The program, and where it runs.
struct Side<'a> {
    place: &'a Path,
    shim: Option<&'a Path>,
}

impl Side<'_> {
    /// Runs `btrfs` with these words, in which `@` stands for the place. Returns whether it
    /// succeeded, and its output without the place.
    fn run(&self, words: &str) -> (bool, String) {
        let place = self.place.display().to_string();
        let mut command = Command::new("btrfs");
        command.args(words.split(' ').map(|word| word.replace('@', &place)));
        if let Some(shim) = self.shim {
            command.env("LD_PRELOAD", shim);
        }
        let output = command.output().expect("btrfs starts");
        let said = String::from_utf8_lossy(&output.stdout).replace(&place, "@");
        (output.status.success(), said)
    }
}

pub(crate) fn shim(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("shim.c"), folder.join("shim.so"));
    fs::write(&source, SHIM).unwrap();
    succeed(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source));
    library
}

/// An image with subvolumes of all kinds.
fn image() -> KernelImage {
    KernelImage::build(&ImageSpec::new("ioctls"), &Content::new(7))
}

/// The same image mounted by the kernel and by larder.
fn both(image: &KernelImage, options: &str, ask: impl Fn(&Side<'_>, &Side<'_>)) -> Mounted {
    let mut ours = Mounted::unmounted();
    fs::copy(&image.devices()[0], ours.image()).unwrap();
    ours.mount(&["-o", options]);
    let tools = Scratch::new();
    let shim = shim(tools.path());
    let theirs = KernelMount::open(image.devices(), options);
    let point = ours.path();
    ask(&Side { place: theirs.path(), shim: None }, &Side { place: &point, shim: Some(&shim) });
    ours
}

#[test]
fn it_prints_the_same() {
    let image = image();
    let ours = both(&image, "ro,subvolid=5", |theirs, ours| {
        let subvolumes = "@/subvolumes";
        for words in [
            "subvolume list @",
            "subvolume find-new @ 0",
            &format!("subvolume find-new {subvolumes}/first 9"),
            "inspect-internal min-dev-size @",
            "subvolume list -pcuqR @",
            "subvolume list -a @/subvolumes/first",
            "subvolume list -o @/subvolumes/first",
            "subvolume list -s -r @",
            "subvolume list -t --sort=-gen,path @",
            "subvolume show @",
            &format!("subvolume show {subvolumes}/first"),
            &format!("subvolume show {subvolumes}/read-only"),
            &format!("subvolume show {subvolumes}/received/read-only"),
            &format!("subvolume show {subvolumes}"),
            "subvolume show -r 256 @",
            "subvolume get-default @",
            "subvolume find-new @/subvolumes/first 1",
            "subvolume find-new @/subvolumes/writable 8",
            "property get @/subvolumes/first",
            "property get @/subvolumes/read-only ro",
            "property get @",
            "property list @/subvolumes/first",
            "filesystem label @",
            "inspect-internal rootid @/subvolumes/first/plain",
            "inspect-internal rootid @",
            "inspect-internal subvolid-resolve 256 @",
            "inspect-internal subvolid-resolve 259 @",
            "inspect-internal subvolid-resolve 999 @",
        ] {
            let (expected, answer) = (theirs.run(words), ours.run(words));
            assert_eq!(answer, expected, "{words}");
        }
    });
    drop(ours);
}

#[test]
fn it_does_the_same() {
    let image = image();
    let mut ours = both(&image, "subvolid=5", |theirs, ours| {
        for words in [
            "subvolume create @/new",
            "subvolume create @/new",
            "subvolume create @/new/inner",
            "subvolume create @/missing/inner",
            "subvolume delete @/new",
            "subvolume delete @/new/inner",
            "subvolume delete @/subvolumes",
            "subvolume delete @/subvolumes/of-read-only",
            "subvolume delete -i 259 @",
            "subvolume delete -i 999 @",
            "subvolume set-default 256 @",
            "subvolume get-default @",
            "subvolume delete @/subvolumes/first",
            "subvolume set-default 5 @",
            "subvolume set-default 999 @",
            "property set @/subvolumes/writable ro true",
            "property set @/subvolumes/writable ro true",
            "property get @/subvolumes/writable ro",
            "property set @/subvolumes/received/read-only ro false",
            "property set -f @/subvolumes/received/read-only ro false",
            "filesystem label @ a-label",
            "filesystem label @",
            "filesystem sync @",
            "subvolume sync @",
        ] {
            let (expected, answer) = (theirs.run(words), ours.run(words));
            // Generations are those of commits, which happen at other times.
            let without = |(done, said): (bool, String)| {
                let kept = said.split(' ').filter(|word| word.parse::<u64>().is_err());
                (done, kept.collect::<Vec<_>>().join(" "))
            };
            assert_eq!(without(answer), without(expected), "{words}");
        }
        let names = |side: &Side<'_>| {
            let (_, listed) = side.run("subvolume list -r @");
            let paths = listed.lines().map(|line| line.split(" path ").nth(1).map(str::to_owned));
            paths.collect::<Vec<_>>()
        };
        assert_eq!(names(ours), names(theirs));
    });
    ours.unmount();
    ours.check();
}
