//! The commands as a user runs them: the files that they write to the host, their output and exit
//! codes.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::slice::from_ref;

use larder_testkit::content::Content;
use larder_testkit::manifest::{self, Body, Entry, Manifest};
use larder_testkit::{ImageSpec, KernelImage, KernelMount, Profile, Scratch, damage, oracle};

use crate::support::{larder, succeed};

/// Standard output of a command that must succeed.
fn stdout(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn small_image() -> KernelImage {
    KernelImage::build(&ImageSpec::new("commands"), &Content::new(1))
}

/// Compares a copy with the original, except what [`manifest::assert_copied`] leaves out and paths
/// in `without`.
fn assert_copied(image: &KernelImage, copy: &Path, without: impl Fn(&Entry) -> bool) {
    assert_copied_manifest(image.manifest().clone(), copy, without);
}

fn assert_copied_manifest(mut original: Manifest, copy: &Path, without: impl Fn(&Entry) -> bool) {
    original.entries.retain(|_, entry| !without(entry));
    manifest::assert_copied(original, copy);
}

#[test]
fn cp_archive_copies_everything_that_the_kernel_shows() {
    let image = small_image();
    let scratch = Scratch::new();
    let copy = scratch.path().join("copy");
    let source = format!("{}:/", image.devices()[0].display());
    stdout(&larder([OsStr::new("cp"), OsStr::new("-a"), OsStr::new(&source), copy.as_os_str()]));
    assert_copied(&image, &copy, |_| false);
}

#[test]
fn tar_unpacks_to_everything_that_the_kernel_shows() {
    let image = small_image();
    let scratch = Scratch::new();
    let unpacked = scratch.path().join("unpacked");
    fs::create_dir(&unpacked).expect("a new directory");
    let mut larder = Command::new(env!("CARGO_BIN_EXE_larder"))
        .arg("tar")
        .arg(&image.devices()[0])
        .stdout(Stdio::piped())
        .spawn()
        .expect("larder starts");
    let archive = larder.stdout.take().expect("it is piped");
    let tar = Command::new("tar")
        .args(["--extract", "--preserve-permissions", "--same-owner", "--numeric-owner"])
        .args(["--xattrs", "--xattrs-include=*", "--directory"])
        .arg(&unpacked)
        .stdin(archive)
        .status()
        .expect("tar starts");
    assert!(larder.wait().expect("it ends").success());
    assert!(tar.success());
    assert_copied(&image, &unpacked, |entry| entry.body == Body::Socket);
}

#[test]
fn an_archive_of_one_file_has_its_name() {
    let scratch = Scratch::new();
    let image = scratch.path().join("image");
    let image = image.display();
    succeed(&format!("mkfs -q -b 128M {image}"));
    for command in ["mkdir", "touch"] {
        succeed(&format!("{command} {image}:/{command}"));
    }
    for (path, expected) in [("touch", "./touch\n"), ("mkdir", "./\n")] {
        let archive = scratch.path().join("archive");
        let made = larder([OsStr::new("tar"), OsStr::new(&format!("{image}:/{path}"))]);
        fs::write(&archive, made.stdout).expect("there is space");
        let listed = Command::new("tar").arg("-tf").arg(&archive).output().expect("tar starts");
        assert_eq!(String::from_utf8_lossy(&listed.stdout), expected);
    }
}

/// The lines of `text` except those that start with one of `words`.
fn lines_without(text: &str, words: &[&str]) -> Vec<String> {
    let drop = |line: &&str| words.iter().any(|word| line.trim_start().starts_with(word));
    text.lines().filter(|line| !drop(line)).map(str::to_owned).collect()
}

#[test]
fn space_is_shown_as_btrfs_progs_shows_it() {
    let two = [256 << 20; 2];
    for spec in [
        ImageSpec::new("one"),
        ImageSpec::new("raid").devices(&two).profiles(Profile::Raid0, Profile::Raid1),
        ImageSpec::new("raid10").devices(&[256 << 20; 4]).profiles(Profile::Raid10, Profile::Raid1),
    ] {
        let image = KernelImage::build(&spec, &Content::new(1));
        let (first, others) = image.devices().split_first().expect("a device");
        let with_group = |group: &str, command: &str| {
            let mut arguments: Vec<OsString> = vec![group.into(), command.into(), "--raw".into()];
            for path in others {
                arguments.extend(["--device".into(), path.into()]);
            }
            arguments.push(first.into());
            arguments
        };
        let with = |command: &str| with_group("filesystem", command);
        let mount = image.mount("ro");
        let df = oracle::filesystem_df(&mount).expect("btrfs filesystem df");
        let usage = oracle::filesystem_usage(&mount).expect("btrfs filesystem usage");
        let btrfs = |words: &str| {
            let mut btrfs = Command::new("btrfs");
            btrfs.args(words.split(' ')).arg(mount.path());
            stdout(&btrfs.output().expect("btrfs starts"))
        };
        let json = btrfs("--format json filesystem df");
        let device_usage = btrfs("device usage --raw");
        let devices: Vec<String> = mount.devices().map(|path| path.display().to_string()).collect();
        drop(mount);
        let on_devices = |mut said: String| {
            for (device, path) in devices.iter().zip(image.devices()) {
                said = said.replace(&path.display().to_string(), device);
            }
            said
        };
        // Only a mount has a reserve, and leaves it out of what is free.
        let unknown = ["GlobalReserve", "Global reserve", "Free (statfs"];

        let ours = stdout(&larder(with("df")));
        assert_eq!(lines_without(&ours, &[]), lines_without(&df, &unknown));

        let ours = stdout(&larder(
            [OsString::from("--format"), "json".into()].into_iter().chain(with("df")),
        ));
        let (before, reserve) = json
            .split_once(",\n    {\n      \"bg-type\": \"GlobalReserve\"")
            .expect("a mount has one");
        let after = reserve.split_once('}').expect("it ends").1;
        assert_eq!(ours, [before, after].concat());

        let ours = on_devices(stdout(&larder(with("usage"))));
        assert_eq!(lines_without(&ours, &unknown), lines_without(&usage, &unknown));

        let ours = on_devices(stdout(&larder(with_group("device", "usage"))));
        assert_eq!(ours, device_usage);
    }
}

#[test]
fn superblocks_are_chosen_as_btrfs_progs_chooses_them() {
    let image = small_image();
    let image = image.devices()[0].display().to_string();
    for words in [
        "",
        "-f",
        "-a",
        "-a -f",
        "-s 0",
        "-s 1",
        "--super 1",
        "-i 1",
        "-s 65536",
        "--bytenr 67108864",
        "-s 1048576",
        "-F -s 1",
        "-s 0 -s 1",
    ] {
        let arguments = || words.split_whitespace().chain([&*image]);
        let btrfs = Command::new("btrfs")
            .args(["inspect-internal", "dump-super"])
            .args(arguments())
            .output()
            .expect("btrfs starts");
        let ours = larder(["inspect", "dump-super"].into_iter().chain(arguments()));
        assert_eq!(ours.status.success(), btrfs.status.success(), "{words}");
        let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text(&ours), text(&btrfs), "{words}");
    }
}

#[test]
fn lists_hide_names_with_a_dot_unless_all_are_asked_for() {
    let scratch = Scratch::new();
    let source = scratch.path().join("source");
    fs::create_dir(&source).expect("a new directory");
    fs::write(source.join(".hidden"), b"and butter").expect("a new file");
    fs::File::create(source.join("big")).and_then(|f| f.set_len(3 << 19)).expect("a new file");
    let image = scratch.path().join("image");
    let image = image.to_str().expect("ASCII");
    let source = source.to_str().expect("ASCII");

    stdout(&larder(["mkfs", "-q", "-b", "256m", "--rootdir", source, image]));
    assert_eq!(stdout(&larder(["ls", image])), "big\n");
    assert_eq!(stdout(&larder(["ls", "-a", image])), ".\n..\n.hidden\nbig\n");
    assert!(stdout(&larder(["ls", "-lh", image])).contains(" 1.50MiB "));
    assert!(stdout(&larder(["ls", "-l", image])).contains(" 1572864 "));
    let numbered = stdout(&larder(["ls", "-i", image]));
    let stat = stdout(&larder(["stat", &format!("{image}:/big")]));
    let number = numbered.split_whitespace().next().expect("a number");
    assert!(stat.contains(&format!("Inode: {number}")), "{numbered} {stat}");
}

#[test]
fn new_images_are_clean_and_damaged_ones_are_not() {
    let scratch = Scratch::new();
    let source = scratch.path().join("source");
    fs::create_dir(&source).expect("a new directory");
    fs::write(source.join("bread"), b"and butter").expect("a new file");
    let image = scratch.path().join("image");
    let image_text = image.to_str().expect("ASCII");
    let source_text = source.to_str().expect("ASCII");

    stdout(&larder(["mkfs", "-q", "-b", "256m", "--rootdir", source_text, image_text]));
    assert_eq!(stdout(&larder(["cat", &format!("{image_text}:/bread")])), "and butter");
    assert_eq!(stdout(&larder(["ls", image_text])), "bread\n");
    assert!(stdout(&larder(["check", image_text])).contains("no findings"));

    let again = larder(["mkfs", "-q", image_text]);
    assert_eq!(again.status.code(), Some(1), "it overwrites a file system only with --force");
    assert!(String::from_utf8_lossy(&again.stderr).contains("with -f"), "it says the way out");

    // The first superblock's generation, whose checksum is then wrong; the copy is sound.
    fs::OpenOptions::new()
        .write(true)
        .open(&image)
        .and_then(|file| file.write_all_at(&[0xff], 65536 + 72))
        .expect("the image can be damaged");
    let found = larder(["check", "--format", "json", image_text]);
    assert_eq!(found.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&found.stdout).expect("JSON");
    let finding = &report["kinds"][0]["findings"][0];
    let place = serde_json::json!({ "device": image_text, "devid": 1, "offset": 65536 });
    assert_eq!(finding["devices"], serde_json::json!([place]), "{report}");

    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let unread = Command::new(env!("CARGO_BIN_EXE_larder"))
        .args(["check", "-q", image_text])
        .stdout(writer)
        .status();
    assert_eq!(unread.expect("runs").code(), Some(1), "also if nobody reads what was found");
}

/// As `btrfs check` has them: a copy of the superblock to start at, and modes.
#[test]
fn a_check_starts_where_it_is_told() {
    let image = small_image();
    let path = &image.devices()[0];
    let check = |option: &str| larder([OsStr::new("check"), option.as_ref(), path.as_os_str()]);
    for option in ["--mode=lowmem", "--mode=original", "-s1", "--super=0"] {
        stdout(&check(option));
    }
    for option in ["--mode=fast", "-s3", "-sfirst"] {
        assert_eq!(check(option).status.code(), Some(2), "{option}");
    }
    damage::zero_superblock(path, 0).expect("it is zeroed");
    assert_eq!(check("-s0").status.code(), Some(2), "nothing is there");
    let of_copy = check("-s1");
    assert_eq!(of_copy.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&of_copy.stdout).contains("superblock"));
}

#[test]
fn exit_codes_tell_the_error() {
    let scratch = Scratch::new();
    let nothing = scratch.sparse_file("nothing", 1 << 20);
    let nothing = nothing.to_str().expect("ASCII");
    let code = |arguments: &[&str]| larder(arguments).status.code();
    assert_eq!(code(&["check", nothing]), Some(2), "it cannot be checked");
    assert_eq!(code(&["ls", nothing]), Some(1), "it is no file system");
    assert_eq!(code(&["ls", "/nowhere/at/all"]), Some(1));
    assert_eq!(code(&["ls"]), Some(2), "the command line is wrong");
    assert_eq!(code(&["filesystem", "unheard-of"]), Some(2));
    // Aliases and unambiguous prefixes of btrfs-progs.
    assert_eq!(code(&["inspect-internal", "dump-s", "--help"]), Some(0));
    assert_eq!(code(&["fi", "us", "--help"]), Some(0));
}

#[test]
fn bad_copies_are_read_around_and_reported() {
    let spec = ImageSpec::new("mirror").devices(&[256 << 20; 2]);
    let spec = spec.profiles(Profile::Raid1, Profile::Raid1);
    let image = KernelImage::build(&spec, &Content::new(1).all_checksummed());
    let [first, second] = image.devices() else { panic!("two devices") };
    let tar = |device: &Path, other: &Path| {
        let arguments =
            ["tar".as_ref(), "--device".as_ref(), other.as_os_str(), device.as_os_str()];
        larder(arguments)
    };
    let sound = tar(first, second);
    stdout(&sound);
    // All of one mirror except the superblock, so that both devices are recognized.
    let noise: Vec<u8> = (0..1 << 20).map(|number: u32| ((number * 31) >> 3) as u8).collect();
    let file = fs::OpenOptions::new().write(true).open(second).expect("a device");
    for megabyte in 1..256_u64 {
        file.write_all_at(&noise, megabyte << 20).expect("room for noise");
    }
    let wounded = tar(first, second);
    stdout(&wounded);
    assert!(wounded.stdout == sound.stdout, "the archive is the same");
    let errors = String::from_utf8_lossy(&wounded.stderr);
    assert!(errors.contains("device 2: ") && errors.contains("corrupt copies"), "{errors}");
}

/// Runs `larder write` with `content` on its standard input.
fn write(target: &str, content: &[u8]) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_larder"))
        .args(["write", target])
        .stdin(Stdio::piped())
        .spawn()
        .expect("larder starts");
    child.stdin.take().expect("it is piped").write_all(content).expect("it reads");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn changed_images_are_mounted_by_the_kernel_and_sound_to_both_checkers() {
    let scratch = Scratch::new();
    let image = scratch.path().join("image");
    let at = |path: &str| format!("{}:{path}", image.display());
    let run = |arguments: &[&str]| stdout(&larder(arguments));
    run(&["mkfs", "-q", "-b", "512m", image.to_str().expect("ASCII")]);
    let content: Vec<u8> = (0..3_000_000_u32).map(|number| ((number * 7) >> 3) as u8).collect();

    run(&["mkdir", "-p", &at("/a/b/c"), &at("/a/b")]);
    write(&at("/a/b/small"), b"bread");
    write(&at("/a/b/small"), b"butter");
    write(&at("/a/large"), &content);
    run(&["ln", &at("/a/b/small"), &at("/a/hard")]);
    run(&["ln", "-s", "b/small", &at("/a/soft")]);
    run(&["subvolume", "create", &at("/home")]);
    write(&at("/home/note"), b"milk");
    run(&["subvolume", "snapshot", "-r", &at("/home"), &at("/kept")]);
    run(&["mv", &at("/a/large"), &at("/a/b")]);
    run(&["rm", "-r", &at("/a/b/c")]);
    run(&["subvolume", "delete", &at("/home")]);
    let refused = larder(["rm", "-r", &at("/kept")]);
    assert_eq!(refused.status.code(), Some(1), "a subvolume is no directory to rm");

    assert!(
        stdout(&larder(["check", "--check-data-csum", image.to_str().expect("ASCII")]))
            .contains("no findings")
    );
    oracle::check(from_ref(&image), true).expect("btrfs check finds nothing");
    let mount = KernelMount::open(from_ref(&image), "ro");
    let read = |path: &str| fs::read(mount.path().join(path)).expect("the kernel reads it");
    assert_eq!(read("a/soft"), b"butter");
    assert_eq!(read("a/hard"), b"butter");
    assert!(read("a/b/large") == content, "the kernel reads what was written");
    assert_eq!(read("kept/note"), b"milk");
    assert!(!mount.path().join("home").exists() && !mount.path().join("a/b/c").exists());
}

#[test]
fn cp_into_an_image_keeps_everything_that_the_kernel_shows() {
    let original = small_image();
    let scratch = Scratch::new();
    let image = scratch.path().join("image");
    let image_text = image.to_str().expect("ASCII");
    stdout(&larder(["mkfs", "-q", "-b", "512m", image_text]));
    let copied = {
        let mount = original.mount("ro,noatime");
        let target = format!("{image_text}:/copy");
        let source = mount.path().as_os_str();
        larder([OsStr::new("cp"), OsStr::new("-a"), source, OsStr::new(&target)])
    };
    stdout(&copied);
    assert!(stdout(&larder(["check", "--check-data-csum", image_text])).contains("no findings"));
    oracle::check(from_ref(&image), true).expect("btrfs check finds nothing");
    let mount = KernelMount::open(from_ref(&image), "ro");
    assert_copied(&original, &mount.path().join("copy"), |_| false);
}

/// Archives of GNU tar in its two formats, and of `larder tar`, unpack to what the kernel shows.
#[test]
fn archives_are_unpacked_into_images() {
    let original = small_image();
    let scratch = Scratch::new();
    let archive = |name: &str, arguments: &[&str]| {
        let path = scratch.path().join(name);
        let mount = original.mount("ro,noatime");
        let made = Command::new("tar")
            .args(["--create", "--sparse", "--numeric-owner"])
            // GNU tar takes preallocated space for data.
            .args(["--exclude=prealloc*", "--exclude=zeroed", "--directory"])
            .arg(mount.path())
            .args(arguments)
            .arg(".")
            .stdout(fs::File::create(&path).expect("a new file"))
            .stderr(Stdio::null())
            .status();
        made.expect("tar starts");
        path
    };
    let everything = ["--xattrs", "--xattrs-include=*", "--format=posix"];
    let of_larder = scratch.path().join("larder");
    let out = fs::File::create(&of_larder).expect("a new file");
    let ours = Command::new(env!("CARGO_BIN_EXE_larder"))
        .arg("tar")
        .arg(&original.devices()[0])
        .stdout(out)
        .stderr(Stdio::null())
        .status();
    assert!(ours.expect("larder starts").success());
    let preallocated = |path: &[u8]| {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        name.starts_with(b"prealloc") || name == b"zeroed"
    };
    for (path, has_xattrs, has_preallocated) in [
        (archive("posix", &everything), true, false),
        (archive("posix-0.1", &[&everything[..], &["--sparse-version=0.1"]].concat()), true, false),
        (archive("gnu", &["--format=gnu"]), false, false),
        (of_larder, true, true),
    ] {
        let image = scratch.path().join("image");
        let image_text = image.to_str().expect("ASCII");
        stdout(&larder(["mkfs", "-q", "-f", "-b", "1g", image_text]));
        stdout(&larder(["mkdir", &format!("{image_text}:/copy")]));
        let unpacked = Command::new(env!("CARGO_BIN_EXE_larder"))
            .args(["cp", "-a", "-", &format!("{image_text}:/copy")])
            .stdin(fs::File::open(&path).expect("it was made"))
            .output()
            .expect("larder starts");
        stdout(&unpacked);
        assert!(stdout(&larder(["check", image_text])).contains("no findings"));
        let mount = KernelMount::open(from_ref(&image), "ro,noatime");
        let mut original = original.manifest().clone();
        original.entries.retain(|path, _| has_preallocated || !preallocated(path));
        if !has_xattrs {
            forget_what_gnu_archives_lack(&mut original);
        }
        assert_copied_manifest(original, &mount.path().join("copy"), |entry| {
            entry.body == Body::Socket
        });
    }
}

/// Its headers have whole seconds and no attributes.
fn forget_what_gnu_archives_lack(manifest: &mut Manifest) {
    for entry in manifest.entries.values_mut() {
        entry.mtime.nanoseconds = 0;
        entry.xattrs.clear();
    }
}

#[test]
fn archives_do_not_lead_out_of_where_they_are_unpacked() {
    let scratch = Scratch::new();
    let image = scratch.path().join("image");
    let image_text = image.to_str().expect("ASCII");
    stdout(&larder(["mkfs", "-q", "-b", "256m", image_text]));
    let at = |path: &str| format!("{image_text}:{path}");
    stdout(&larder(["mkdir", "-p", &at("/here"), &at("/outside")]));
    write(&at("/outside/secret"), b"secret");
    let mut builder = tar::Builder::new(Vec::new());
    let mut add = |kind: tar::EntryType, name: &str, link: &str, data: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        // Past the builder's own checks of names.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(data.len() as u64);
        header.set_cksum();
        builder.append(&header, data).expect("memory is there");
    };
    use tar::EntryType::{Link, Regular, Symlink};
    add(Regular, "../up", "", b"x");
    add(Symlink, "link", "/outside", b"");
    add(Regular, "link/below", "", b"x");
    add(Link, "hard", "link/secret", b"");
    add(Link, "hard-up", "../outside/secret", b"");
    add(Regular, "/absolute/./good", "", b"good");
    let archive = builder.into_inner().expect("memory is there");
    let mut child = Command::new(env!("CARGO_BIN_EXE_larder"))
        .args(["cp", "-", &at("/here")])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("larder starts");
    child.stdin.take().expect("it is piped").write_all(&archive).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "what fails is told");
    assert_eq!(String::from_utf8_lossy(&output.stderr).matches("ERROR").count(), 4);
    assert_eq!(stdout(&larder(["ls", &at("/")])), "here\noutside\n");
    assert_eq!(stdout(&larder(["ls", &at("/outside")])), "secret\n");
    assert_eq!(stdout(&larder(["ls", &at("/here")])), "absolute\nlink\n");
    assert_eq!(stdout(&larder(["cat", &at("/here/absolute/good")])), "good");
    assert!(stdout(&larder(["check", image_text])).contains("no findings"));
}

/// A whole tree is copied from one image into another, and within one, where data is shared.
#[test]
fn cp_between_images_keeps_everything_that_the_kernel_shows() {
    let original = small_image();
    let source = format!("{}:/", original.devices()[0].display());
    let scratch = Scratch::new();
    let image = scratch.path().join("image");
    let image_text = image.to_str().expect("ASCII");
    let at = |path: &str| format!("{image_text}:{path}");
    stdout(&larder(["mkfs", "-q", "-b", "512m", image_text]));
    stdout(&larder(["cp", "-a", &source, &at("/copy")]));
    let used = || {
        let shown = stdout(&larder(["filesystem", "df", "--raw", image_text]));
        let data = shown.lines().find(|line| line.starts_with("Data")).expect("a line");
        data.rsplit('=').next().expect("a number").parse::<u64>().expect("a number")
    };
    let used_by_one = used();
    stdout(&larder(["cp", "-a", &at("/copy"), &at("/again")]));
    assert!(used() < used_by_one + (used_by_one >> 3), "data is shared");
    let inside = larder(["cp", "-a", &at("/copy"), &at("/copy/inside")]);
    assert_eq!(inside.status.code(), Some(1), "no copy lies in itself");
    stdout(&larder(["rm", "-r", &at("/copy/inside")]));
    stdout(&larder(["cp", &at("/copy/data/text-renamed"), &at("/plain")]));

    assert!(stdout(&larder(["check", "--check-data-csum", image_text])).contains("no findings"));
    oracle::check(from_ref(&image), true).expect("btrfs check finds nothing");
    let mount = KernelMount::open(from_ref(&image), "ro");
    assert_copied(&original, &mount.path().join("again"), |_| false);
    let read = |path: &str| fs::read(mount.path().join(path)).expect("the kernel reads it");
    assert!(read("plain") == read("again/data/text-renamed"));
}
