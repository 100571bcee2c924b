//! What the server believes of its callers: capabilities, read-only views, and tokens. Containers
//! are mount namespaces in which a process of root sees one directory, with few capabilities.

use std::fs::{self, File, Permissions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::ops::ControlFlow;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::process::{self, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use larder::commands::{Command, Original};
use larder::{ChangeEvent, MountedChanges, MountedWalk, WalkOptions};
use larder_ioctl::channel::{Authority, Channel, Kind, Request, SendRequest, frame, token};
use larder_testkit::{ImageSpec, KernelImage, Scratch};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use crate::support::{
    Mounted, as_nobody, assert_same_lines, larder, larder_in, shell, succeed, wait_until,
};

/// What setpriv(1) leaves to a caller.
const CALLERS: [&str; 9] = [
    "--inh-caps=-all --bounding-set=-all",
    "--inh-caps=-all --bounding-set=-all,+sys_admin",
    "--inh-caps=-all --bounding-set=-all,+dac_override",
    "--inh-caps=-all --bounding-set=-all,+dac_read_search",
    "--inh-caps=-all --bounding-set=-all,+fowner",
    // What containers have.
    "--inh-caps=-all --bounding-set=-all,+chown,+dac_override,+fowner,+fsetid,+setuid,+setgid,+mknod",
    "--bounding-set=+all",
    "--reuid=1001 --regid=1001 --clear-groups",
    "--reuid=1002 --regid=1002 --clear-groups --ambient-caps=+sys_admin --inh-caps=+sys_admin",
];

/// How every privileged call ends for every caller, through a writable and a read-only view.
fn endings(top: &Path, kind: &str) -> String {
    fs::set_permissions(top, Permissions::from_mode(0o755)).unwrap();
    let make = |path: &str| {
        succeed(larder().args(["subvolume", "create"]).arg(top.join(path)));
        succeed(larder().args(["inspect", "rootid"]).arg(top.join(path))).trim().to_owned()
    };
    shell(
        top,
        "mkdir -m 755 c c/empty c/acl c/narrow; mkdir -m 700 c/theirs host; setfacl -d -m u::rwx,g::rwx,o::rwx c/acl; setfacl -d -m u::rwx,g::rx,o::- c/narrow; echo secret > host/f; chown 1001 c/theirs",
    );
    make("c/own");
    make("c/another");
    shell(top, "chown 1001 c/another; sync -f .");
    let scratch = Scratch::new();
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o755)).unwrap();
    let mut all = Vec::new();
    for caller in CALLERS {
        for view in ["rw", "ro"] {
            for user_namespace in ["", "unshare --user --map-root-user"] {
                if !user_namespace.is_empty() && (view == "ro" || !caller.contains("+all")) {
                    continue;
                }
                let (inside, outside) = (make("c/inside"), make("outside"));
                let script = include_str!("callers.py");
                let line = format!(
                    "mount --bind {top}/c {folder}; mount -o remount,bind,{view} {folder}; cd {folder}; \
                     umask 022; exec {user_namespace} setpriv {caller} \
                     /usr/bin/python3 -c \"$1\" {kind} {outside} 257 {inside} 1099511627776",
                    top = top.display(),
                    folder = scratch.path().display(),
                );
                let mut container = process::Command::new("unshare");
                container.args(["-m", "bash", "-euc", &line, "bash", script]);
                let said = succeed(&mut container);
                all.push(format!("{caller} {view} {user_namespace}\n{said}"));
                let left = ["inside", "of-own", "of-another", "made", "theirs/made"];
                let umasks = ["", "empty/", "acl/", "narrow/"].map(|at| format!("{at}with-umask"));
                let names = left.into_iter().chain(umasks.iter().map(String::as_str));
                let left = names.map(|name| top.join("c").join(name)).chain([top.join("outside")]);
                for path in left {
                    // The kernel knows the name of what was deleted by its number for a moment.
                    wait_until("it is gone", || {
                        let mut delete = larder();
                        delete.args(["subvolume", "delete"]).arg(&path);
                        !path.exists() || delete.output().unwrap().status.success()
                    });
                }
            }
        }
    }
    all.concat()
}

#[test]
fn ioctls_ask_for_the_capabilities_that_the_kernels_btrfs_asks_for() {
    let kernel = KernelImage::empty(&ImageSpec::new("callers"));
    let mount = kernel.mount("");
    let expected = endings(mount.path(), "kernel");
    let mut ours = Mounted::unmounted();
    fs::set_permissions(ours.folder(), Permissions::from_mode(0o755)).unwrap();
    ours.mount(&["-o", "allow_other", "--create", "1G"]);
    let seen = endings(&ours.path(), "larder");
    assert_same_lines(&seen, &expected);
    assert!(seen.contains(": allowed") && seen.contains("EPERM") && seen.contains("EROFS"));
    ours.finish();
}

/// Runs `work` in a thread of root with these capabilities and no others.
pub(crate) fn with_capabilities<T: Send>(
    left: CapabilitySet,
    work: impl FnOnce() -> T + Send,
) -> T {
    thread::scope(|scope| {
        let limited = scope.spawn(move || {
            let none = CapabilitySet::empty();
            let sets = CapabilitySets { effective: left, permitted: left, inheritable: none };
            set_capabilities(None, sets).unwrap();
            work()
        });
        limited.join().expect("it does not panic")
    })
}

/// Makes changes below `directory`, and returns what the server reported.
pub(crate) fn change(
    directory: &Path,
    make: impl FnOnce(&mut MountedChanges) -> io::Result<()>,
) -> io::Result<Vec<String>> {
    let reports = Arc::new(Mutex::new(Vec::new()));
    let seen = reports.clone();
    let observe = move |event: ChangeEvent<'_>| {
        if let ChangeEvent::Failed(reason) = event {
            seen.lock().unwrap().push(reason.to_owned());
        }
        ControlFlow::Continue(())
    };
    let below = MountedChanges::below(File::open(directory)?, observe)?;
    let mut below = below.expect("it is a mount of larder");
    make(&mut below)?;
    below.finish()?;
    Ok(Arc::try_unwrap(reports).expect("the server has ended").into_inner().unwrap())
}

#[test]
fn a_client_without_capabilities_has_the_rights_of_its_user() {
    let mounted = Mounted::new();
    mounted.shell("mkdir c; mkdir -m 700 theirs; echo keep > theirs/f; chown -R 1001 theirs");
    let unlink = |changes: &mut MountedChanges| {
        changes.make(&Command::Unlink { path: b"theirs/f" })?;
        changes.make(&Command::Rmdir { path: b"theirs" })
    };
    let read = |path: &str| fs::read_to_string(mounted.join(path)).unwrap();
    let (top, none) = (mounted.path(), CapabilitySet::empty());
    let reports = with_capabilities(none, || change(&top, unlink)).unwrap();
    assert!(reports[0].contains("Permission denied"), "{reports:?}");
    assert_eq!(read("theirs/f"), "keep\n");
    mounted.shell("setfattr -n user.a -v secret theirs; setfacl -m u:7:r theirs");
    let walk = |options: WalkOptions| {
        let mut walk = MountedWalk::begin(File::open(&top).unwrap(), "".as_ref(), options).unwrap();
        let mut walked = Vec::new();
        while let Some(met) = walk.as_mut().expect("it is a mount of larder").next().unwrap() {
            walked.push(format!("{met:?}"));
        }
        walked.concat()
    };
    let below = WalkOptions { below: true, ..WalkOptions::default() };
    let [data, xattrs] = [(true, false), (false, true)].map(|(data, xattrs)| {
        with_capabilities(none, || walk(WalkOptions { data, xattrs, ..below }))
    });
    assert!(data.contains("Permission denied") && !data.contains("\"f\""), "{data}");
    assert!(xattrs.contains("posix_acl_access") && !xattrs.contains("user.a"), "{xattrs}");
    // With one capability it is allowed.
    let reports = with_capabilities(CapabilitySet::DAC_OVERRIDE, || change(&top, unlink));
    assert_eq!(reports.unwrap(), [""; 0]);
    assert!(!mounted.join("theirs").exists());
    mounted.finish();
}

#[test]
fn files_are_copied_from_where_the_client_could_open_them() {
    let mounted = Mounted::new();
    mounted.shell(
        "mkdir c; mkdir -m 700 host; mkdir from from/d; echo secret > host/f; \
                   echo bread > from/d/f; chmod 644 host/f; sync -f .",
    );
    let id = |path: &str| {
        let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(mounted.join(path)).unwrap());
        Original { subvolume: 5, inode }
    };
    let copies = |original: Original| {
        change(&mounted.join("c"), |changes| {
            let beside = changes.directory_beside(File::open(mounted.join("from"))?)?;
            assert!(beside.is_some(), "it is the same mount");
            changes.make(&Command::Mkfile { path: b"copy", ino: 0 })?;
            changes.copy(b"copy", original)
        })
    };
    let read = |path: &str| fs::read_to_string(mounted.join(path)).unwrap();
    let none = CapabilitySet::empty();
    let (inside, outside) = (id("from/d/f"), id("host/f"));
    let reports = with_capabilities(none, || copies(outside)).unwrap();
    assert!(reports[0].contains("Permission denied"), "{reports:?}");
    assert_eq!(read("c/copy"), "");
    mounted.shell("rm c/copy");
    assert_eq!(with_capabilities(none, || copies(inside)).unwrap(), [""; 0]);
    assert_eq!(read("c/copy"), "bread\n");
    mounted.shell("rm c/copy");
    // As for open_by_handle_at(2).
    let reads = CapabilitySet::DAC_READ_SEARCH;
    assert_eq!(with_capabilities(reads, || copies(outside)).unwrap(), [""; 0]);
    mounted.finish();
}

/// What the server sends to a connection that shows `authority`, and then asks for changes.
fn answer(name: &[u8], show: impl FnOnce(&UnixStream) -> io::Result<()>) -> Option<Kind> {
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let socket = UnixStream::connect_addr(&address).unwrap();
    // The server may have closed it.
    let _ = show(&socket);
    let _ = frame::write(&socket, Kind::Change, &[])
        .and_then(|()| frame::write(&socket, Kind::End, &[]));
    frame::read(&socket, &mut Vec::new()).ok().flatten()
}

/// The abstract name of the socket of the server of `mounted`, as any process sees it.
fn socket_of(mounted: &Mounted) -> Vec<u8> {
    let prefix = format!("@larder-{}-", mounted.server_pid().as_raw_pid());
    let mut name = None;
    wait_until("it listens", || {
        let table = fs::read_to_string("/proc/net/unix").unwrap();
        let mut names = table.lines().filter_map(|line| line.rsplit(' ').next());
        name =
            names.find(|name| name.starts_with(&prefix)).map(|name| name.as_bytes()[1..].to_vec());
        name.is_some()
    });
    name.expect("it was found")
}

#[test]
fn a_connection_has_no_authority_of_its_own() {
    let mounted = Mounted::in_foreground();
    let name = socket_of(&mounted);
    assert_eq!(answer(&name, |_| Ok(())), None);
    let nothing = larder_ioctl::channel::Token { words: [0; 2] };
    let shows = |token| answer(&name, move |socket| Authority::Token(token).show(socket));
    assert_eq!(shows(nothing), Some(Kind::Failed));
    let held = token(File::open(mounted.path()).unwrap()).unwrap();
    assert_eq!(shows(held), Some(Kind::Done));
    assert_eq!(shows(held), Some(Kind::Failed), "it was redeemed");
    mounted.finish();
}

#[test]
fn strangers_hold_up_no_client() {
    let mounted = Mounted::in_foreground();
    let name = socket_of(&mounted);
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let connect = || UnixStream::connect_addr(&address).unwrap();
    let mut strangers: Vec<_> = (0..100).map(|_| connect()).collect();
    let (mut channel, _) = Channel::of(File::open(mounted.path()).unwrap()).unwrap().unwrap();
    let refused = channel.call(&Request::Remount("nonsense".into()), &mut |_, _| Ok(()));
    assert_ne!(refused.unwrap_err().kind(), ErrorKind::UnexpectedEof, "it was heard");
    assert_eq!(strangers[0].read(&mut [0]).unwrap_or(0), 0, "the oldest had to go");
    drop((strangers, channel));
    mounted.finish();
}

/// Root of a container may have the uid of root, and a directory of the mount.
#[test]
fn root_of_a_container_keeps_no_administrator_out() {
    let mounted = Mounted::in_foreground();
    let name = socket_of(&mounted);
    let top = || File::open(mounted.path()).unwrap();
    let held = token(top()).unwrap();
    let none = CapabilitySet::empty();
    let clients = with_capabilities(none, || {
        (0..200).for_each(|_| assert!(token(top()).is_ok()));
        let client = |_| {
            let (mut channel, _) = Channel::of(top()).ok()??;
            channel.call(&Request::Commit, &mut |_, _| Ok(())).ok().map(|_| channel)
        };
        (0..20).filter_map(client).collect::<Vec<_>>()
    });
    assert!(!clients.is_empty());
    let shown = answer(&name, move |socket| Authority::Token(held).show(socket));
    assert_eq!(shown, Some(Kind::Done), "the token is valid, and there is room");
    drop(clients);
    mounted.finish();
}

/// A token of a read-only view, and requests that only some may make.
#[test]
fn a_token_says_what_its_caller_may() {
    let mounted = Mounted::new();
    let (top, image) = (mounted.path(), mounted.image());
    let none = CapabilitySet::empty();
    let call = |request: Request| {
        let (mut channel, _) = Channel::of(File::open(&top)?)?.expect("it is a mount of larder");
        channel.call(&request, &mut |_, _| Ok(()))
    };
    for request in [
        Request::State,
        Request::Remount("ro".into()),
        Request::Mount(String::new()),
        Request::Send(SendRequest::default()),
    ] {
        let refused = with_capabilities(none, || call(request)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{refused}");
    }
    let line = format!(
        "mount --bind {top} {top}; mount -o remount,bind,ro {top}; cp -r /etc/hostname {top} && exit 9; \
         {larder} cp /etc/hostname {top}/ && exit 9; {larder} mkdir {top}/d && exit 9; \
         {larder} subvolume create {top}/s && exit 9; true",
        top = top.display(),
        larder = env!("CARGO_BIN_EXE_larder"),
    );
    succeed(process::Command::new("unshare").args(["-m", "bash", "-uc", &line]));
    assert_eq!(mounted.shell("ls"), "");
    // An image that is open is needed for a further mount, whatever sockets there are.
    fs::set_permissions(&image, Permissions::from_mode(0o600)).unwrap();
    let further = mounted.folder().join("further");
    fs::create_dir(&further).unwrap();
    succeed(larder().arg("mount").arg(&image).arg(&further));
    succeed(larder().arg("umount").arg(&further));
    mounted.finish();
}

/// Root of a user namespace is any user, and is told so.
#[test]
fn root_of_a_user_namespace_learns_that_it_is_not_served() {
    let mut mounted = Mounted::unmounted();
    fs::set_permissions(mounted.folder(), Permissions::from_mode(0o755)).unwrap();
    mounted.mount(&["-o", "allow_other", "--create", "200M"]);
    mounted.shell("mkdir -m 777 d");
    let mut remove = as_nobody("unshare");
    let program = larder_in(mounted.folder());
    remove
        .args(["--user", "--map-root-user"])
        .arg(program)
        .args(["rm", "-r"])
        .arg(mounted.join("d"));
    let output = remove.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("also in a user namespace"), "{error}");
    mounted.finish();
}

/// The user who mounts may do what root may, and so may no container of that user.
#[test]
fn a_rootless_container_is_any_user() {
    let scratch = Scratch::new();
    larder_in(scratch.path());
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o777)).unwrap();
    let line = "umask 022; mkdir mnt view; ./larder mount --create 1G disk.img mnt; \
         ./larder subvolume create mnt/s; ./larder subvolume snapshot -r mnt/s mnt/r; \
         inside() { unshare --user --map-root-user --mount bash -uc \
             \"mount --bind mnt/s view && cd view && $1\"; }; \
         ./larder subvolume list mnt; ./larder send mnt/r > stream; ./larder filesystem label mnt own; \
         for command in 'subvolume list .' 'filesystem label . other' 'check .' 'report . -o out'; do \
             ! inside \"../larder $command\" || exit 9; done; \
         inside 'touch f && ../larder cp f g && ../larder rm g && ../larder subvolume create n'; \
         ls -A mnt/s; ./larder filesystem label mnt; ./larder umount mnt";
    let said = succeed(as_nobody("bash").args(["-euc", line]).current_dir(scratch.path()));
    assert!(said.ends_with("f\nn\nown\n"), "{said}");
}

/// A directory that was moved out of a tree keeps what is in it, however far its removal has come,
/// and what moves meanwhile is no damage.
#[test]
fn a_removal_leaves_alone_what_was_moved_away() {
    let mounted = Mounted::new();
    mounted.shell("mkdir safe");
    let names = |path: &Path| {
        let entries = fs::read_dir(path).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    for round in 0..12 {
        mounted.shell(
            "mkdir -p tree/outer/inner; for d in $(seq 30); do mkdir tree/d$d; \
             (cd tree/d$d && touch $(seq 60)); done; \
             (cd tree/outer/inner && touch $(seq 150)); (cd tree/outer && touch $(seq 70))",
        );
        let (from, to) = (mounted.join("tree/outer"), mounted.join("safe").join(round.to_string()));
        let mut removal = larder();
        removal.args(["rm", "-r"]).arg(mounted.join("tree")).stderr(Stdio::piped());
        let removal = removal.spawn().unwrap();
        // Other programs move directories around in the tree.
        for step in 0..round * 20 {
            let one = mounted.join(format!("tree/d{}", step % 30 + 1));
            let _ = fs::rename(&one, mounted.join("tree/d1/moved"));
            let _ = fs::rename(mounted.join("tree/d1/moved"), &one);
        }
        let moved = fs::rename(&from, &to).is_ok();
        let inner = || to.join("inner").exists().then(|| names(&to.join("inner")));
        let left = moved.then(|| (names(&to), inner()));
        let output = removal.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("cleaning") && !said.contains("damage"), "{said}");
        if let Some(left) = left {
            assert_eq!((names(&to), inner()), left, "round {round}");
        }
        mounted.shell("rm -rf tree");
    }
    mounted.finish();
}

/// A user renames in directories that are theirs, also while root changes what is in them.
#[test]
fn changes_of_a_tree_concern_the_files_that_were_listed() {
    let mounted = Mounted::new();
    mounted.shell(
        "mkdir -p tree/first tree/second; cd tree/first; touch $(seq 12000); cd ../second; \
         touch own; echo secret > secret; chmod 6777 own; chmod 700 secret; \
         chown -R 1001:1001 ../first own",
    );
    let own = |name: &str| mounted.join("tree/second").join(name);
    let secret = fs::metadata(own("secret")).unwrap().ino();
    let first = mounted.join("tree/first/1");
    for command in [["chown", "-R", ":1002"], ["chmod", "-R", "g+w"]] {
        let seen = || fs::metadata(&first).map(|found| (found.gid(), found.mode())).unwrap();
        let before = seen();
        let mut change = larder();
        change.args(command).arg(mounted.join("tree")).stderr(Stdio::null());
        let mut change = change.spawn().unwrap();
        // The first files were changed, so that the last ones were listed.
        while seen() == before && change.try_wait().unwrap().is_none() {}
        let exchange = RenameFlags::EXCHANGE;
        renameat_with(CWD, own("own"), CWD, own("secret"), exchange).unwrap();
        change.wait().unwrap();
        let all = [own("own"), own("secret")].map(|path| fs::metadata(path).unwrap());
        let found = all.iter().find(|found| found.ino() == secret).expect("it is still there");
        assert_eq!((found.uid(), found.mode() & 0o6007), (0, 0), "{command:?}");
    }
    mounted.finish();
}

/// Makes changes in `c` as root without capabilities, and `meanwhile` something else after the
/// server has read them, while it waits for more.
fn change_and_meanwhile(
    mounted: &Mounted,
    make: impl FnOnce(&mut MountedChanges) -> io::Result<()> + Send,
    meanwhile: impl FnOnce() + Send,
) -> Vec<String> {
    let reports = Arc::new(Mutex::new(Vec::new()));
    let seen = reports.clone();
    let observe = move |event: ChangeEvent<'_>| {
        if let ChangeEvent::Failed(reason) = event {
            seen.lock().unwrap().push(reason.to_owned());
        }
        ControlFlow::Continue(())
    };
    let directory = File::open(mounted.join("c")).unwrap();
    with_capabilities(CapabilitySet::empty(), || {
        let mut changes = MountedChanges::below(directory, observe).unwrap().expect("it is ours");
        make(&mut changes).unwrap();
        // It is refused, which is reported. The others fill a message, and wait.
        changes.make(&Command::Chmod { path: b"theirs", mode: 0o777 }).unwrap();
        let data = vec![1; 16 << 10];
        for _ in 0..20 {
            changes.make(&Command::Write { path: b"filler", offset: 0, data: &data }).unwrap();
        }
        wait_until("the server has them", || !reports.lock().unwrap().is_empty());
        meanwhile();
        changes.finish().unwrap();
    });
    let reports = reports.lock().unwrap();
    reports[1..].to_vec()
}

#[test]
fn what_a_client_may_change_is_what_changes() {
    let mounted = Mounted::new();
    let exchange = |one: &str, other: &str| {
        let [one, other] = [one, other].map(|name| mounted.join("c").join(name));
        renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
    };
    let seen = || mounted.shell("cd c; find theirs* own* -printf '%i %m %U %s %f\\n' | sort -n");
    mounted.shell(
        "mkdir c; cd c; touch filler own; mkdir own-dir theirs-dir; echo keep > theirs; \
         chmod 600 theirs; chmod 700 theirs-dir; chown 1001 theirs theirs-dir; chmod 755 own-dir",
    );
    let changes: [Command<'_>; 4] = [
        Command::Chmod { path: b"own", mode: 0o666 },
        Command::Write { path: b"own", offset: 0, data: b"other" },
        Command::Truncate { path: b"own", size: 0 },
        Command::SetXattr { path: b"own", name: b"user.a", data: b"b" },
    ];
    for command in changes {
        let before = seen();
        let reports = change_and_meanwhile(
            &mounted,
            |changes| changes.make(&command),
            || exchange("own", "theirs"),
        );
        exchange("own", "theirs");
        assert_eq!(seen(), before, "{command:?}");
        assert!(reports[0].contains("another file has taken its place"), "{reports:?}");
    }
    assert_eq!(mounted.shell("getfattr -d c/theirs"), "");
    let reports = change_and_meanwhile(
        &mounted,
        |changes| changes.make(&Command::Mkfile { path: b"own-dir/new", ino: 0 }),
        || exchange("own-dir", "theirs-dir"),
    );
    exchange("own-dir", "theirs-dir");
    assert_eq!(reports, [""; 0]);
    assert_eq!(mounted.shell("ls c/own-dir c/theirs-dir"), "c/own-dir:\nnew\n\nc/theirs-dir:\n");
    mounted.finish();
}

/// The kernel lets users take their own names out of a sticky directory, and knows at once when a
/// file of root has one.
#[test]
fn a_user_takes_no_file_that_root_put_in_the_place_of_theirs() {
    let mut mounted = Mounted::unmounted();
    fs::set_permissions(mounted.folder(), Permissions::from_mode(0o755)).unwrap();
    mounted.mount(&["-o", "allow_other", "--create", "200M"]);
    mounted.shell("mkdir -m 1777 tmp");
    let theirs = mounted.join("tmp/x");
    succeed(as_nobody("ln").args(["-s", "old"]).arg(&theirs));
    let (said, reported) = mpsc::channel();
    let observe = move |_: ChangeEvent<'_>| {
        let _ = said.send(());
        ControlFlow::Continue(())
    };
    let directory = File::open(mounted.join("tmp")).unwrap();
    let mut changes = MountedChanges::below(directory, observe).unwrap().expect("it is ours");
    let data = vec![1; 16 << 10];
    let write = Command::Write { path: b"filler", offset: 0, data: &data };
    for command in [
        Command::Mkfile { path: b"new", ino: 0 },
        Command::Rename { path: b"new", to: b"x" },
        Command::Write { path: b"x", offset: 0, data: b"new" },
    ] {
        changes.make(&command).unwrap();
    }
    // It fails, which is reported once the others are made.
    changes.copy(b"x", Original { subvolume: 5, inode: 1 << 40 }).unwrap();
    changes.make(&Command::Mkfile { path: b"filler", ino: 0 }).unwrap();
    (0..20).for_each(|_| changes.make(&write).unwrap());
    reported.recv().unwrap();
    let taken = as_nobody("rm").arg("-f").arg(&theirs).output().unwrap();
    assert!(String::from_utf8_lossy(&taken.stderr).contains("not permitted"), "{taken:?}");
    changes.finish().unwrap();
    assert!(fs::symlink_metadata(&theirs).unwrap().is_file());
    mounted.finish();
}

/// An ACL sets the mode, so that setgid stays for the same callers as with chmod(2).
#[test]
fn an_acl_keeps_setgid_for_members_of_the_group() {
    let mounted = Mounted::new();
    mounted.shell("mkdir c; cd c; touch own theirs; chgrp 1002 theirs; chmod 6771 own theirs");
    let acl = larder_testkit::acl(&[(1, 7, !0), (4, 5, !0), (32, 1, !0)]);
    let set = |changes: &mut MountedChanges| {
        for path in [b"own".as_slice(), b"theirs"] {
            let name = b"system.posix_acl_access";
            changes.make(&Command::SetXattr { path, name, data: &acl })?;
        }
        Ok(())
    };
    let capabilities = CapabilitySet::empty();
    let reports = with_capabilities(capabilities, || change(&mounted.join("c"), set)).unwrap();
    assert_eq!(reports, [""; 0]);
    let seen = mounted.shell("cd c; find own theirs -printf '%f %m\n'");
    assert_eq!(seen, "own 6751\ntheirs 4751\n");
    mounted.finish();
}

/// What a caller may do with a file depends on the changes before.
#[test]
fn a_new_owner_counts_at_once() {
    let mounted = Mounted::new();
    mounted.shell("mkdir c; cd c; touch old s u; chgrp 1002 old; chmod 2745 old");
    let give = |path, capabilities, mode| {
        let make = move |changes: &mut MountedChanges| {
            changes.make(&Command::Chown { path, uid: 1001, gid: 1001 })?;
            match mode {
                0 => Ok(()),
                mode => changes.make(&Command::Chmod { path, mode }),
            }
        };
        with_capabilities(capabilities, || change(&mounted.join("c"), make)).unwrap()
    };
    let (chown, fowner) = (CapabilitySet::CHOWN, CapabilitySet::FOWNER);
    assert_eq!(give(b"old", chown, 0), [""; 0]);
    // As chmod(2) of a file of another group.
    assert_eq!(give(b"s", chown | fowner, 0o2755), [""; 0]);
    let refused = give(b"u", chown, 0o4755);
    assert!(refused[0].contains("not permitted"), "{refused:?}");
    let seen = mounted.shell("cd c; find old s u -printf '%f %m %U\\n'");
    assert_eq!(seen, "old 745 1001\ns 755 1001\nu 644 1001\n");
    mounted.finish();
}

/// A directory that gets another parent changes itself, as the kernel sees it.
#[test]
fn a_directory_is_moved_elsewhere_by_users_who_may_write_to_it() {
    let mounted = Mounted::new();
    mounted.shell("mkdir -p c/to c/theirs c/open; chown 1002 c/theirs c/open; chmod 777 c/open");
    const MOVES: [(&str, &str); 3] =
        [("theirs", "renamed"), ("renamed", "to/renamed"), ("open", "to/open")];
    let by_server = |changes: &mut MountedChanges| {
        MOVES.iter().try_for_each(|(path, to)| {
            changes.make(&Command::Rename { path: path.as_bytes(), to: to.as_bytes() })
        })
    };
    let top = mounted.join("c");
    let by_kernel = || {
        MOVES.map(|(path, to)| {
            renameat_with(CWD, top.join(path), CWD, top.join(to), RenameFlags::empty()).is_ok()
        })
    };
    let none = CapabilitySet::empty();
    let reports = with_capabilities(none, || change(&top, by_server)).unwrap();
    assert!(reports.len() == 1 && reports[0].contains("denied"), "{reports:?}");
    assert_eq!(mounted.shell("cd c; ls . to"), ".:\nrenamed\nto\n\nto:\nopen\n");
    mounted.shell("cd c; mv renamed theirs; mv to/open open");
    assert_eq!(with_capabilities(none, by_kernel), [true, false, true]);
    mounted.finish();
}

/// A process of another user that looks like the server of an image, and says so if it is shown the
/// image.
const FALSE_SERVER: &str = r"
import os, socket, sys
image = os.open(sys.argv[1], int(sys.argv[2], 8))
server = socket.socket(socket.AF_UNIX)
server.bind(f'\0larder-{os.getpid()}-0')
server.listen()
print('listens', flush=True)
while True:
    client, _ = server.accept()
    data = True
    while data:
        data, descriptors, _, _ = socket.recv_fds(client, 100, 1)
        if descriptors:
            print('shown', flush=True)
";

#[test]
fn an_image_is_shown_to_no_process_that_could_not_open_it() {
    const READ: &str = "0";
    /// `O_PATH`, which needs no permission.
    const ONLY_FIND: &str = "10000000";
    let mut mounted = Mounted::unmounted();
    mounted.mount(&["--create", "200M"]);
    mounted.unmount();
    fs::set_permissions(mounted.folder(), Permissions::from_mode(0o755)).unwrap();
    let (image, script) = (mounted.image(), mounted.folder().join("mount"));
    fs::write(&script, FALSE_SERVER).unwrap();
    for (mode, flags) in [(0o644, READ), (0o600, ONLY_FIND)] {
        fs::set_permissions(&image, Permissions::from_mode(mode)).unwrap();
        let mut server = as_nobody("bash");
        server.current_dir(mounted.folder());
        let line = "exec -a larder /usr/bin/python3 mount \"$@\"";
        server.args(["-c", line, "bash"]).arg(&image).arg(flags);
        let mut server = server.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(server.stdout.take().unwrap()).lines();
        assert_eq!(said.next().unwrap().unwrap(), "listens");
        mounted.mount(&[]);
        mounted.unmount();
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(said.next().is_none());
    }
}

#[test]
fn a_server_that_may_open_too_few_files_says_so() {
    let mut mounted = Mounted::unmounted();
    mounted.mount(&["--create", "200M"]);
    mounted.unmount();
    for most in [12, 63] {
        let line = format!("ulimit -n {most}; exec \"$@\"");
        let mut mount = process::Command::new("bash");
        mount.args(["-c", &line, "bash"]).arg(env!("CARGO_BIN_EXE_larder")).arg("mount");
        let output = mount.arg(mounted.image()).arg(mounted.path()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(&format!("only {most} files may be open")), "{error}");
        assert!(!output.status.success());
    }
    mounted.check();
}
