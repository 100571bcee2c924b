//! Copies within a mount and out of it, which its server reads: the results are those of cp.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use larder_testkit::Scratch;
use rustix::process::{Pid, Signal, kill_process};

use crate::on_mount::{fails, listing, make_tree};
use crate::support::{
    Mounted, as_nobody, assert_same_lines, larder, larder_in, python, shell, succeed, wait_until,
};

/// A tree with one of everything, and files whose data btrfs keeps in every way.
fn make_originals(mounted: &Mounted) {
    mounted.shell("mkdir from");
    make_tree(&mounted.join("from"));
    let program = larder().get_program().display().to_string();
    let line = format!(
        "cd from; mkdir nocow compressed; chattr +C nocow; chattr +c compressed
        head -c 700000 /dev/urandom > nocow/data; head -c 100 /dev/urandom > nocow/short
        truncate -s 3M nocow/sparse; echo x | dd of=nocow/sparse bs=1 seek=2000000 conv=notrunc status=none
        head -c 900000 /dev/zero > compressed/data; head -c 900 /dev/zero > compressed/inline
        fallocate -l 1M prealloc; echo begin | dd of=prealloc conv=notrunc status=none
        cp /bin/true able; setcap cap_net_raw+ep able; chown 5 able; setcap cap_net_raw+ep able
        {program} subvolume create sub; mkdir sub/d; head -c 300000 /dev/urandom > sub/d/file
        for n in $(seq 40); do head -c $((n * 4096)) /dev/urandom >> pieces; truncate -s +64K pieces; done
        touch a/b/c/$'new\\nline'; echo 1 > a/$'not\\xfftext'; touch -a -d 2001-01-01 a/6; sync -f ."
    );
    mounted.shell(&line);
}

/// Extents and flags of all files.
fn storage(tree: &Path) -> String {
    shell(tree, "lsattr -R . 2>/dev/null | sort; find . -type f -printf '%P %b\\n' | sort")
}

fn exclusive_bytes(tree: &Path) -> u64 {
    let sums = succeed(larder().args(["filesystem", "du", "-s", "--raw"]).arg(tree));
    let line = sums.lines().last().unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
pub(crate) fn copies_within_a_mount_share_their_data() {
    let mounted = Mounted::new();
    make_originals(&mounted);
    let from = mounted.join("from");
    succeed(larder().args(["cp", "-a"]).args([&from, &mounted.join("ours")]));
    // The copy has the time of access that the original had before anything read it.
    let accessed = fs::metadata(mounted.join("ours/a/6")).unwrap().atime();
    assert_eq!(accessed, fs::metadata(from.join("a/6")).unwrap().atime());
    succeed(Command::new("cp").args(["-a", "--reflink=auto"]).args([&from, &mounted.join("cp")]));
    assert_same_lines(&listing(&mounted.join("ours")), &listing(&mounted.join("cp")));
    assert_same_lines(&storage(&mounted.join("ours")), &storage(&mounted.join("cp")));
    // Into a directory with other files: their data is shared too.
    let within = |name: &str| [from.join("a/b"), mounted.join(name)];
    mounted.shell(
        "mkdir deep deeper; mkdir -p deep/b/c; echo old > deep/b/medium1; ln -s x deep/b/medium2",
    );
    succeed(larder().args(["cp", "-a"]).args(within("deep")));
    succeed(larder().args(["cp", "-r"]).args(within("deeper")));
    for name in ["deep", "deeper"] {
        assert_eq!(mounted.shell(&format!("diff -r from/a/b {name}/b")), "");
    }
    mounted.shell("rm -r cp");
    succeed(larder().args(["filesystem", "sync"]).arg(mounted.path()));
    // What lies in the tree of the copy itself, and a file without checksums.
    let unshared = mounted.shell("du -sb from/nocow | cut -f1").trim().parse::<u64>().unwrap();
    let (ours, bound) = (exclusive_bytes(&mounted.join("ours")), unshared + (400 << 10));
    assert!(ours < bound, "{ours} of {bound}");
    assert_eq!(exclusive_bytes(&mounted.join("deep")), 0);
    // The kernel takes preallocated extents for data in a file that it cloned itself, too.
    mounted.shell("rm ours/prealloc");
    mounted.finish();
}

#[test]
fn copies_keep_or_lose_checksums_as_their_directory_says() {
    let mounted = Mounted::new();
    mounted.shell(
        "mkdir plain nocow; chattr +C nocow; head -c 3000000 /dev/urandom > plain/a
        head -c 3000000 /dev/urandom > nocow/b; truncate -s 9M nocow/b; setfattr -n user.x -v 1 nocow/b
        touch -d 2001-01-01 nocow/b plain/a; chmod 4750 nocow/b; chmod 755 plain/a; setcap cap_kill+ep plain/a",
    );
    for (from, to) in [("plain/a", "nocow/a"), ("nocow/b", "plain/b"), ("nocow/b", "nocow/c")] {
        succeed(larder().args(["cp", "-a"]).args([from, to].map(|name| mounted.join(name))));
    }
    let same = "cmp plain/a nocow/a; cmp nocow/b plain/b; cmp nocow/b nocow/c
        getfattr -d -m - --only-values plain/b; getcap nocow/a | cut -d' ' -f2
        stat -c '%a %Y %b' plain/b nocow/c nocow/a; lsattr nocow/a plain/b nocow/c | cut -c16";
    let seen = mounted.shell(same);
    let blocks = 3_000_000_u64.next_multiple_of(4096) / 512;
    let expected = format!(
        "1cap_kill=ep\n4750 978307200 {blocks}\n4750 978307200 {blocks}\n755 978307200 {blocks}\nC\n-\nC\n"
    );
    assert_same_lines(&seen, &expected);
    mounted.finish();
}

#[test]
pub(crate) fn copies_out_of_a_mount_are_those_of_cp() {
    let mounted = Mounted::new();
    make_originals(&mounted);
    let outside = Scratch::new();
    let from = mounted.join("from");
    let to = |name: &str| outside.path().join(name);
    for (options, names) in [("-a", ["ours", "cp"]), ("-r", ["our-r", "cp-r"])] {
        // As another name, into a directory, and again over what is there.
        succeed(larder().args(["cp", options]).args([&from, &to(names[0])]));
        succeed(Command::new("cp").args([options, "--sparse=auto"]).args([&from, &to(names[1])]));
        if options == "-r" {
            let times = "find our-r cp-r -exec touch -h -d 2001-01-01 {} +";
            shell(outside.path(), times);
        }
        assert_same_lines(&listing(&to(names[0])), &listing(&to(names[1])));
        let blocks = "find . -type f -size +100k -printf '%P %b\\n' | grep -v prealloc | sort";
        assert_same_lines(&shell(&to(names[0]), blocks), &shell(&to(names[1]), blocks));
    }
    fs::create_dir(to("into")).unwrap();
    for _ in 0..2 {
        succeed(larder().args(["cp", "-a"]).args([from.join("a"), from.join("able"), to("into")]));
    }
    let of_a = |name: &str| listing(&to(name)).replace("a/", "");
    assert!(of_a("into").len() > 10_000);
    assert_same_lines(&listing(&to("into/a")), &listing(&to("cp/a")));
    // The content of a directory into another.
    fs::create_dir(to("content")).unwrap();
    succeed(larder().args(["cp", "-a"]).args([from.join("."), to("content")]));
    assert_same_lines(&listing(&to("content")), &listing(&to("cp")));
    // A single file, and what a link leads to.
    succeed(larder().arg("cp").args([from.join("link"), to("one")]));
    assert_eq!(fs::read(to("one")).unwrap(), b"1\n");
    mounted.finish();
}

#[test]
fn nothing_is_copied_into_itself() {
    let mounted = Mounted::new();
    mounted.shell("mkdir -p a/b; echo 1 > a/f; ln a/f g; ln -s a s; mkdir bound");
    let at = |name: &str| mounted.join(name);
    let root = mounted.path().display().to_string();
    let refuses = |from: &str, to: &str, expected: &str| {
        let said = fails(larder().args(["cp", "-a"]).args([at(from), at(to)]));
        assert!(said.contains(&expected.replace('@', &root)), "{said}");
    };
    refuses("a", "a/b", "cannot copy a directory, '@/a', into itself, '@/a/b/a'");
    refuses("a", "a", "cannot copy a directory, '@/a', into itself, '@/a/a'");
    refuses("a", "s/b/c", "cannot copy a directory, '@/a', into itself, '@/s/b/c'");
    refuses("a/f", "a/f", "'@/a/f' and '@/a/f' are the same file");
    refuses("a/f", "g", "'@/a/f' and '@/g' are the same file");
    // The others are copied.
    mounted.shell("echo 2 > h");
    let said = fails(larder().args(["cp", "-a"]).args([at("a"), at("h"), at("a/b")]));
    assert!(said.contains("into itself") && said.lines().count() == 1, "{said}");
    assert_eq!(mounted.shell("find a | sort; cat a/b/h; rm a/b/h"), "a\na/b\na/b/h\na/f\n2\n");
    // By a path that does not tell.
    mounted.shell("mount --bind a/b bound");
    let said = fails(larder().args(["cp", "-a"]).args([at("a"), at("bound/copy")]));
    mounted.shell("umount bound");
    assert!(said.contains("itself"), "{said}");
    assert_eq!(mounted.shell("cd a/b; find . | sort"), ".\n./copy\n./copy/f\n");
    mounted.finish();
}

#[test]
fn copies_have_what_programs_have_just_written() {
    for options in ["writeback_cache", "noatime"] {
        let mut mounted = Mounted::unmounted();
        mounted.mount(&["--create", "4G", "-o", options]);
        let outside = Scratch::new();
        // The files stay open while they are copied, and one is mapped.
        let script = "
import mmap, os, subprocess, sys
larder, out = sys.argv[1:]
os.mkdir('d')
for turn in range(4):
    written = [open(f'd/{n}', 'w+b') for n in range(3)]
    for n, file in enumerate(written):
        for _ in range(40):
            file.write(bytes([turn * 16 + n]) * (1 << 20))
        file.flush()
    mapped = open('d/mapped', 'w+b')
    mapped.truncate(20 << 20)
    memory = mmap.mmap(mapped.fileno(), 20 << 20)
    memory[:] = bytes([turn + 1]) * (20 << 20)
    for place in ('copy', out + '/copy'):
        subprocess.run([larder, 'cp', '-r', 'd', place], check=True)
        for name in os.listdir('d'):
            original, copy = open('d/' + name, 'rb').read(), open(place + '/' + name, 'rb').read()
            assert original == copy, (turn, place, name, len(original), len(copy))
        subprocess.run(['rm', '-r', place], check=True)
    archive = subprocess.run([larder, 'tar', 'd'], check=True, capture_output=True).stdout
    assert len(archive) > 140 << 20 and archive.count(bytes([turn + 1]) * 4096) >= 5100, turn
";
        let program = larder().get_program().display().to_string();
        let out = outside.path().display().to_string();
        python(&mounted.path(), script, &[&program, &out]);
        mounted.finish();
    }
}

#[test]
fn files_that_the_caller_may_not_read_are_reported() {
    let scratch = Scratch::new();
    shell(scratch.path(), "chmod 777 .");
    let program = larder_in(scratch.path());
    let program = program.display();
    let line = |line: &str| {
        let mut command = as_nobody("bash");
        command.args(["-uc", line]).current_dir(scratch.path()).output().unwrap()
    };
    let done = |text: &str| {
        let output = line(text);
        assert!(output.status.success(), "{text}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    done(&format!(
        "mkdir m; {program} mount --create 500M i.img m && cd m && mkdir -p d/b d/shut d/z &&
        for n in a b/secret b/x shut/f z/last; do head -c 200000 /dev/urandom > d/$n; done &&
        echo short > d/b/short && chmod 0 d/b/secret d/shut && mkdir there"
    ));
    for to in ["m/there/d", "out"] {
        let output = line(&format!("{program} cp -a m/d {to}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(said.lines().count(), 2, "{said}");
        for name in ["b/secret", "shut"] {
            let is_named = |line: &str| line.contains(name) && line.contains("ermission denied");
            assert!(said.lines().any(is_named), "{said}");
        }
        let found = done(&format!(
            "cd {to}; for n in a b/x b/short z/last; do cmp $n ~-/m/d/$n && echo $n; done; stat -c %a shut; ls b"
        ));
        assert_eq!(found, "a\nb/x\nb/short\nz/last\n0\nshort\nx\n");
    }
    // The mount of another user: a copy out of it asks the kernel, which lets them read.
    done("chmod 700 m/d/shut m/d/b/secret");
    done(&format!("{program} umount m && {program} check i.img"));
    let mut shared = Mounted::unmounted();
    shell(shared.folder(), "chmod 755 .");
    shared.mount(&["-o", "allow_other", "--create", "1G"]);
    shared.shell("mkdir -m 755 d; echo 1 > d/f; echo 2 > d/secret; chmod 600 d/secret");
    let to = scratch.path().join("theirs");
    let mut command = as_nobody(larder_in(shared.folder()));
    let said = fails(command.args(["cp", "-a"]).args([shared.join("d"), to.clone()]));
    assert!(said.contains("secret") && said.lines().count() == 1, "{said}");
    assert_eq!(fs::read(to.join("f")).unwrap(), b"1\n");
    shared.finish();
}

#[test]
fn a_full_disk_ends_a_copy_with_a_reason() {
    let mounted = Mounted::with_size("400M");
    mounted.shell("mkdir nocow from; chattr +C nocow; head -c 220M /dev/urandom > from/big; echo 1 > from/small");
    // Within the mount: what is not shared needs space.
    let said =
        fails(larder().args(["cp", "-a"]).args([mounted.join("from"), mounted.join("nocow")]));
    assert!(said.contains("No space left") && said.lines().count() == 1, "{said}");
    assert_eq!(mounted.shell("cat nocow/from/small; rm -r nocow/from; echo more > there"), "1\n");
    // Outside.
    let outside = Scratch::new();
    shell(outside.path(), "mkdir t; mount -t tmpfs -o size=100M none t");
    let said =
        fails(larder().args(["cp", "-a"]).arg(mounted.join("from")).arg(outside.path().join("t")));
    let left = shell(outside.path(), "cat t/from/small; ls t/from; umount t");
    assert!(said.contains("No space left") && said.contains("from/big"), "{said}");
    assert_eq!((said.lines().count(), &*left), (1, "1\nsmall\n"), "{said}");
    mounted.finish();
}

#[test]
fn a_signal_ends_a_copy() {
    let mut mounted = Mounted::new();
    mounted.shell(
        "mkdir -p from/nocow nocow; chattr +C from/nocow nocow; head -c 300M /dev/zero > from/nocow/big
        for d in $(seq 40); do mkdir from/$d; (cd from/$d; seq 200 | xargs touch); done",
    );
    let outside = Scratch::new();
    for (to, signal) in [
        (mounted.join("copy"), Signal::INT),
        (mounted.join("killed"), Signal::KILL),
        (outside.path().join("copy"), Signal::INT),
        (outside.path().join("killed"), Signal::KILL),
    ] {
        let mut command = larder();
        command.args(["cp", "-a"]).args([&mounted.join("from"), &to]).stderr(Stdio::null());
        let mut copy = command.spawn().unwrap();
        wait_until("something is copied", || {
            fs::read_dir(&to).map_or(0, Iterator::count) > 5 || copy.try_wait().unwrap().is_some()
        });
        let _ = kill_process(Pid::from_child(&copy), signal);
        copy.wait().unwrap();
        wait_until("the server is done", || {
            larder().args(["rm", "-rf"]).arg(mounted.join("copy")).status().unwrap().success()
        });
    }
    // One file that is long: the server notices that nobody waits for it, and the mount ends.
    mounted.shell("mkdir plain");
    let mut command = larder();
    command.arg("cp").args([mounted.join("from/nocow/big"), mounted.join("plain/big")]);
    let mut copy = command.stderr(Stdio::null()).spawn().unwrap();
    wait_until("it is being copied", || mounted.join("plain/big").exists());
    kill_process(Pid::from_child(&copy), Signal::KILL).unwrap();
    copy.wait().unwrap();
    mounted.unmount();
    mounted.check();
}
