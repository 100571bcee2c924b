//! Programs that were written for btrfs and its own tools, as Debian packages them. They call
//! `btrfs` and `mkfs.btrfs` by name, and find larder there. `docs/clients.md` has the results.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::slice::from_ref;

use larder_testkit::{ImageSpec, KernelImage, KernelMount, Scratch};

use crate::support::{Mounted, larder, python, shell, succeed};

/// A folder of programs that stand before those of the system: larder under all its names.
struct Programs {
    folder: Scratch,
}

impl Programs {
    fn new() -> Self {
        let folder = Scratch::new();
        succeed(larder().arg("install-links").arg(folder.path()));
        Self { folder }
    }

    /// Adds a script.
    fn add(&self, name: &str, script: &str) {
        let path = self.folder.path().join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs a line in a shell in `place`; it must succeed.
    #[track_caller]
    fn shell(&self, place: &Path, line: &str) -> String {
        let path = env::var("PATH").expect("there is one");
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", line]).current_dir(place);
        succeed(bash.env("PATH", format!("{}:{path}", self.folder.path().display())))
    }
}

/// Backs up subvolumes of `from` to `to` and to files in `raw`, as `btrbk run` in a cron job does,
/// and restores from the files.
fn back_up(programs: &Programs, from: &Path, to: &Path, raw: &Path) {
    let run = |line: &str| programs.shell(from, line);
    let (shown, config) = (raw.display(), raw.join("btrbk.conf"));
    fs::write(
        &config,
        format!(
            "timestamp_format long-iso\nsnapshot_preserve_min latest\nsnapshot_preserve no\n\
             target_preserve_min latest\ntarget_preserve no\nvolume {}\n snapshot_dir snaps\n \
             subvolume home\n  target {}/backups\n  target raw {shown}\n   target_preserve_min all\n",
            from.display(),
            to.display(),
        ),
    )
    .unwrap();
    let btrbk = |command: &str| run(&format!("btrbk -c {} {command}", config.display()));
    run("btrfs subvolume create home; mkdir snaps; cp -r /usr/share/perl/5*.*.*/unicore home/tree");
    fs::create_dir(to.join("backups")).unwrap();
    let said = btrbk("run");
    assert!(said.matches("\n*** ").count() == 2, "{said}");
    // Names have the second of their snapshot, or a number after it. The last snapshot that both
    // sides have stays for the next increment, so the first one is deleted after three.
    for change in [
        "echo x > home/new; rm -r home/tree/To",
        "mv home/tree home/moved; cp home/new home/copy",
        "ln home/copy home/linked; chmod 600 home/new",
    ] {
        run(change);
        let said = btrbk("run");
        let count = |mark: &str| said.matches(&format!("\n{mark} ")).count();
        assert_eq!((count("+++"), count(">>>"), count("***")), (1, 2, 0), "increments: {said}");
    }
    let count = |place: &Path| fs::read_dir(place).unwrap().count();
    assert!(count(&from.join("snaps")) <= 2 && count(&to.join("backups")) <= 2, "old ones go");
    let latest = |pattern: &str| format!("$(ls -d {pattern} | tail -1)");
    let (snapshot, backup) =
        (latest("snaps/home.*"), latest(&format!("{}/backups/home.*", to.display())));
    run(&format!("diff -r --no-dereference home {snapshot}; diff -r home {backup}"));
    let listed = btrbk("list latest");
    assert!(listed.contains("/backups/home.") && listed.contains("/snaps/home."), "{listed}");
    let stats = btrbk("stats");
    assert!(stats.contains("correlated"), "{stats}");
    let usage = btrbk("usage");
    assert!(usage.contains("MiB"), "{usage}");
    run("btrfs subvolume snapshot -r home older; echo much > home/found; sync -f .");
    run("btrfs subvolume snapshot -r home newer");
    let changed = run("btrbk diff older newer");
    assert!(changed.contains("found") && !changed.contains("copy"), "{changed}");
    // In the order in which they were made.
    run(&format!(
        "mkdir {0}/restored; cd {shown}; \
         for stream in $(ls -rt *.btrfs); do btrfs receive -q {0}/restored < $stream; done",
        to.display()
    ));
    let restored = to.join("restored").display().to_string();
    run(&format!("diff -r {backup} {}", latest(&format!("{restored}/home.*"))));
    assert_eq!(fs::read_dir(restored).unwrap().count(), 4);
}

/// It looks for the type `btrfs` in the table of mounts, and reads that with cat(1).
const SHOWS_BTRFS: &str = "#!/bin/sh
[ \"$*\" = /proc/self/mountinfo ] || exec /bin/cat \"$@\"
exec sed 's/ - fuse\\(blk\\)\\?\\.larder / - btrfs /' /proc/self/mountinfo
";

#[test]
fn btrbk() {
    let programs = Programs::new();
    programs.add("cat", SHOWS_BTRFS);
    let (from, to, raw) = (Mounted::new(), Mounted::new(), Scratch::new());
    back_up(&programs, &from.path(), &to.path(), raw.path());
    from.finish();
    to.finish();
}

#[test]
fn btrbk_on_the_kernels_mounts() {
    let programs = Programs::new();
    let image = |name: &str| KernelImage::empty(&ImageSpec::new(name));
    let (from, to, raw) = (image("from"), image("to"), Scratch::new());
    let (from, to) = (from.mount("subvolid=5"), to.mount("subvolid=5"));
    back_up(&programs, from.path(), to.path(), raw.path());
}

#[test]
fn postgresql() {
    let mut mounted = Mounted::unmounted();
    fs::set_permissions(mounted.folder(), Permissions::from_mode(0o755)).unwrap();
    mounted.mount(&["-o", "allow_other", "--create", "2G"]);
    let place = mounted.join("postgresql");
    fs::create_dir(&place).unwrap();
    let id =
        |flag: &str| succeed(Command::new("id").args([flag, "postgres"])).trim().parse().unwrap();
    chown(&place, Some(id("-u")), Some(id("-g"))).unwrap();
    let script = r#"
        PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
        export PGHOST=$PWD PGDATABASE=postgres
        start() { pg_ctl -D data -w -s -l log -o "-k $PWD -c listen_addresses=''" start; }
        initdb -D data -A trust -k > /dev/null
        start
        trap 'pg_ctl -D data -w -s -m immediate stop' EXIT
        pgbench -i -q -s 1 2> /dev/null
        pgbench -c 4 -t 150 -n > /dev/null
        sums="SELECT (SELECT sum(abalance) FROM pgbench_accounts),
                     (SELECT sum(bbalance) FROM pgbench_branches),
                     (SELECT sum(delta) FROM pgbench_history), (SELECT count(*) FROM pgbench_history)"
        before=$(psql -tAc "$sums")
        # It ends without a checkpoint, and reads its log.
        pg_ctl -D data -w -s -m immediate stop
        start
        test "$(psql -tAc "$sums")" = "$before"
        psql -qc 'VACUUM FULL'
        test "$(psql -tAc "$sums")" = "$before"
        trap - EXIT
        pg_ctl -D data -w -s stop
        pg_checksums --check -D data > /dev/null
        echo "$before"
    "#;
    let mut postgres = Command::new("setpriv");
    postgres.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "--"]);
    postgres.args(["bash", "-euo", "pipefail", "-c", script]).current_dir(&place);
    let sums = succeed(&mut postgres);
    let sums: Vec<&str> = sums.trim().split('|').collect();
    assert!(sums[0] == sums[1] && sums[0] == sums[2] && sums[3] == "600", "{sums:?}");
    mounted.finish();
}

const CONTAINER: &str = r#"FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "sh", "-c", "/bin/busybox mkdir /data; echo bread > /data/b"]
RUN ["/bin/busybox", "ln", "/data/b", "/data/c"]
CMD ["/bin/busybox", "cat", "/data/c"]
"#;

/// A container image is built, run, committed, saved and loaded, all of it on a mount.
#[test]
fn podman() {
    let (mounted, running) = (Mounted::new(), Scratch::new());
    fs::create_dir(mounted.join("context")).unwrap();
    fs::write(mounted.join("context/Containerfile"), CONTAINER).unwrap();
    let script = format!(
        r#"
        # Containers copy the table of mounts, and would hold up those of other tests.
        {{ findmnt -rno TARGET | grep /larder-testkit- | grep -vx "$PWD" | xargs -r umount -l; }} || true
        podman() {{
            command podman --root $PWD/graph --runroot {running} --storage-driver vfs \
                --cgroup-manager cgroupfs --events-backend file --runtime runc "$@"
        }}
        run() {{ podman run --network none --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 "$@"; }}
        cp "$(command -v busybox)" context/busybox
        podman build -q --isolation chroot -t pantry context > /dev/null
        run --rm localhost/pantry
        run --name jam localhost/pantry /bin/busybox sh -c 'echo jam > /data/j'
        podman diff jam | grep /data
        podman commit -q jam jam > /dev/null
        podman rm jam > /dev/null
        podman save -q -o saved.tar localhost/jam
        podman rmi -a -f > /dev/null
        podman load -q -i saved.tar > /dev/null
        run --rm localhost/jam /bin/busybox cat /data/c /data/j
        podman rmi -a -f > /dev/null
        "#,
        running = running.path().display(),
    );
    let path = running.path().join("script");
    fs::write(&path, script).unwrap();
    let said = mounted.shell(&format!("unshare --mount bash -euo pipefail {}", path.display()));
    assert_eq!(said, "bread\nC /data\nA /data/j\nbread\njam\n");
    mounted.finish();
}

#[test]
fn copies_with_acls_and_attributes() {
    let mounted = Mounted::new();
    mounted.shell(
        "mkdir -p from/d from/closed to un; cd from; echo x > f; echo y > d/g; ln f hard; ln -s f l;
         setfacl -m u:nobody:rw,g:daemon:r f; setfacl -d -m u:nobody:rwx,m:rwx d; mkdir d/inherits;
         setfattr -n user.long -v $(head -c 3000 /dev/zero | tr '\\0' v) f;
         setfattr -n trusted.t -v 1 f; setfattr -n security.s -v 1 d; setfattr -n user.d -v 1 d;
         mkfifo pipe; mknod null c 1 3; chmod 6755 d/g; chmod 3770 closed; chown -h 1:2 l f;
         touch -d '1969-12-31 23:00:00.123456789 UTC' old; touch -hd '2400-01-01 UTC' l;
         truncate -s 200M sparse; echo z | dd of=sparse bs=1 seek=100M conv=notrunc status=none",
    );
    mounted.shell("rsync -aHAXS from/ to/");
    mounted.shell(
        "tar -C from --acls --xattrs --xattrs-include='*' --sparse -cf - . |
         tar -C un --acls --xattrs --xattrs-include='*' -xpf - 2> /dev/null",
    );
    mounted.shell("cp -a --sparse=always from copy");
    for copy in ["to", "un", "copy"] {
        let differs = mounted.shell(&format!("rsync -aHAXni --delete from/ {copy}/"));
        assert_eq!(differs, "", "{copy}");
        mounted.shell(&format!("acls() {{ cd $1; find . ! -type l | sort | getfacl -n -; }}; diff <(acls from) <(acls {copy})"));
        let blocks = mounted.shell(&format!("stat -c %b {copy}/sparse"));
        assert!(blocks.trim().parse::<u64>().unwrap() < 64, "{copy}: {blocks}");
    }
    mounted.shell("rm */sparse");
    mounted.finish();
}

/// An image of larder's with compressed, shared and equal data, and a snapshot.
fn filled() -> Mounted {
    let mut mounted = Mounted::unmounted();
    mounted.mount(&["--create", "1G", "-o", "compress=zstd"]);
    let at = |path: &str| mounted.join(path).display().to_string();
    succeed(larder().args(["subvolume", "create", &at("home")]));
    mounted.shell(
        "head -c 2M /dev/urandom > home/one; cat home/one > home/two; head -c 2M <(yes) > home/text",
    );
    succeed(larder().args(["reflink", &at("home/text"), &at("home/shared")]));
    succeed(larder().args(["subvolume", "snapshot", "-r", &at("home"), &at("snapshot")]));
    mounted.unmount();
    mounted
}

#[test]
fn tools_on_the_kernels_mounts_of_larders_images() {
    let (programs, mounted, results) = (Programs::new(), filled(), Scratch::new());
    let kernel = KernelMount::open(&[mounted.image()], "subvolid=5");
    let run = |line: &str| programs.shell(kernel.path(), line);
    let compressed = run("compsize -b home snapshot");
    // The text takes 4 KiB in each 128 KiB, and four files refer to it.
    assert!(compressed.lines().any(|line| line.starts_with("zstd ")), "{compressed}");
    assert!(compressed.contains(" 65536 ") && compressed.contains(" 8388608"), "{compressed}");
    let hashes = results.path().join("hashes").display().to_string();
    run(&format!("duperemove -rdq --hashfile={hashes} home > /dev/null; cmp home/one home/two"));
    let extents = |file: &str| run(&format!("sync -f .; filefrag -v {file} | grep -v {file}"));
    assert_eq!(extents("home/one"), extents("home/two"), "they share data now");

    let examples = "/usr/share/doc/python3-btrfs/examples";
    for (example, expected) in [
        ("show_subvolumes", "path /snapshot"),
        ("show_default_subvolid", "5"),
        ("fs_info", "num_devices 1"),
        ("btrfs-fi-df", "Metadata, DUP"),
        ("show_metadata_tree_sizes", "EXTENT_TREE"),
        ("show_free_space_fragmentation", "fragmentation"),
        ("show_orphaned_subvols", "[]"),
    ] {
        let said = run(&format!("/usr/bin/python3 {examples}/{example}.py ."));
        assert!(said.contains(expected), "{example}: {said}");
    }
    run("btrfs-usage-report . > /dev/null; btrfs-search-metadata chunks . > /dev/null");
    let picture = results.path().join("heat.png");
    run(&format!("btrfs-heatmap -o {} . > /dev/null", picture.display()));
    assert!(fs::metadata(picture).unwrap().len() > 100);
    drop(kernel);
    mounted.check();
}

#[test]
fn snapper_on_the_kernels_mounts_of_larders_images() {
    let (programs, mounted, settings) = (Programs::new(), filled(), Scratch::new());
    let kernel = KernelMount::open(&[mounted.image()], "subvolid=5");
    // Its settings are those of the system: this test has some of its own.
    let (home, settings) = (kernel.path().join("home"), settings.path().display().to_string());
    let script = format!(
        "mkdir -p {settings}/etc/configs; cp /etc/default/snapper {settings}/default;
         mount --bind {settings}/etc /etc/snapper; mount --bind {settings}/default /etc/default/snapper
         snapper() {{ command snapper --no-dbus \"$@\"; }}
         snapper create-config {home}; snapper create -d one; echo new > {home}/new; rm {home}/text
         snapper create -d two; snapper status 1..2; snapper undochange 1..2; ls {home}
         btrfs subvolume list -o {home}/.snapshots; snapper delete 1; snapper list --columns number
         snapper delete-config",
        home = home.display(),
    );
    fs::write(format!("{settings}/script"), script).unwrap();
    let said = programs
        .shell(kernel.path(), &format!("unshare --mount bash -euo pipefail {settings}/script"));
    for expected in ["+..... ", "-..... ", "\ntext\n", ".snapshots/1/snapshot\n", "\n2 "] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert!(!said.contains("\nnew\n"), "{said}");
    drop(kernel);
    mounted.check();
}

#[test]
fn systemd_repart() {
    let (programs, scratch) = (Programs::new(), Scratch::new());
    let definitions = scratch.path().join("repart.d");
    fs::create_dir(&definitions).unwrap();
    let tree = scratch.path().join("tree");
    shell(
        scratch.path(),
        "mkdir tree; cp -r /usr/share/perl/5*.*.*/unicore tree; ln -s unicore tree/l",
    );
    let text = format!(
        "[Partition]\nType=root\nFormat=btrfs\nLabel=rootfs\nSizeMinBytes=300M\nSizeMaxBytes=300M\n\
         CopyFiles={}:/\nMakeDirectories=/var /home\n",
        tree.display()
    );
    fs::write(definitions.join("10-root.conf"), text).unwrap();
    let run = |line: &str| programs.shell(scratch.path(), line);
    run(
        "systemd-repart --empty=create --size=400M --definitions=repart.d --dry-run=no disk.raw 2>&1",
    );
    run("read start size < <(sfdisk --dump disk.raw |
             sed -n 's/.*start= *\\([0-9]*\\), size= *\\([0-9]*\\).*/\\1 \\2/p');
         dd if=disk.raw of=root.img skip=$start count=$size conv=sparse status=none");
    run("btrfs check --check-data-csum root.img");
    assert_eq!(run("btrfs filesystem label root.img"), "rootfs\n");
    let root = scratch.path().join("root.img");
    larder_testkit::oracle::check(from_ref(&root), true).unwrap_or_else(|error| panic!("{error}"));
    let kernel = KernelMount::open(&[root], "ro");
    shell(
        kernel.path(),
        &format!("test -d var -a -d home; diff -r {0}/unicore unicore", tree.display()),
    );
}

/// What mkosi asks of systemd-nspawn, where systemd is not running: a command in a directory.
const NSPAWN: &str = r#"#!/bin/bash
case " $* " in *" -- "*) ;; *) exec /usr/bin/systemd-nspawn "$@" ;; esac
while [ "$1" != -- ]; do
    case $1 in --directory=*) root=${1#*=} ;; esac
    shift
done
shift
exec chroot "$root" "$@" </dev/null"#;

#[test]
#[ignore = "downloads a distribution"]
fn mkosi() {
    let (programs, scratch) = (Programs::new(), Scratch::new());
    programs.add("systemd-nspawn", NSPAWN);
    programs.shell(
        scratch.path(),
        "mkosi --distribution debian --release bookworm --format gpt_btrfs --bootable no \
         --root-size 1G --output disk.raw --workspace-dir $PWD 2>&1",
    );
    let disk = scratch.path().join("disk.raw");
    succeed(larder().args(["check", "--check-data-csum"]).arg(&disk));
    let subvolumes = succeed(larder().args(["subvolume", "list"]).arg(&disk));
    let paths: Vec<_> = subvolumes.lines().filter_map(|line| line.split(" path ").nth(1)).collect();
    assert_eq!(paths, ["home", "srv", "var", "var/tmp", "var/lib/machines"]);
    let release = format!("{}:/usr/lib/os-release", disk.display());
    assert!(succeed(larder().args(["cat", &release])).contains("bookworm"));
}

/// Programs that make requests which FUSE does not carry say so, and change nothing.
#[test]
fn tools_that_fuse_cannot_serve_fail() {
    let mounted = filled();
    let mut mounted = mounted;
    mounted.mount(&[]);
    for (line, expected) in [
        ("compsize home", "SEARCH_V2 unsupported"),
        ("duperemove -rd home", "Can only dedupe files on btrfs"),
        ("snapper --no-dbus -c larder create-config home", "fstype 'fuse"),
        (
            "/usr/bin/python3 /usr/share/doc/python3-btrfs/examples/show_subvolumes.py .",
            "Inappropriate ioctl for device",
        ),
    ] {
        let said = mounted.shell(&format!("! {{ {line}; }} 2>&1"));
        assert!(said.contains(expected), "{line}: {said}");
    }
    // What needs no more than a request holds is served.
    let script = "import btrfs; fs = btrfs.FileSystem('.'); print(fs.fs_info(), fs.dev_info(1));
print(fs.dev_stats(1), len(list(btrfs.ioctl.search(fs.fd, 1))) > 10); fs.sync()";
    let said = python(&mounted.path(), script, &[]);
    assert!(said.contains("num_devices 1") && said.contains("True"), "{said}");
    mounted.finish();
}
