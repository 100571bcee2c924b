//! Listings with attributes: they are true, they do not become stale, and their entries work like
//! anything that was looked up.

use std::process::Command;

use crate::support::{Mounted, larder, python, succeed};

/// Files grow, change modes, are renamed and deleted, while other programs list them.
const CHANGE_WHILE_LISTED: &str = r"
import os, stat, threading

FILES, ROUNDS = 300, 6
os.mkdir('d')
for number in range(FILES):
    open(f'd/{number}', 'w').close()
    os.mkdir(f'd/dir{number}')
done = [0] * FILES
failed, is_over = [], threading.Event()
def change(part):
    for step in range(1, ROUNDS + 1):
        for number in range(part, FILES, 2):
            # Names come and go beside it.
            with open(f'd/new{number}', 'w') as new:
                new.write('x' * step)
            os.rename(f'd/new{number}', f'd/other{number}')
            with open(f'd/{number}', 'r+b') as file:
                file.truncate(step * 5000)
            os.chmod(f'd/{number}', step)
            os.unlink(f'd/other{number}')
            done[number] = step
def look():
    while not is_over.is_set():
        before = list(done)
        seen = set()
        with os.scandir('d') as entries:
            for entry in entries:
                assert entry.name not in seen, entry.name
                seen.add(entry.name)
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    assert entry.name.startswith(('new', 'other')), entry.name
                    continue
                if entry.name.isdigit():
                    number = int(entry.name)
                    step, mode = divmod(found.st_size, 5000)[0], stat.S_IMODE(found.st_mode)
                    if step == 1 and before[number] == 0:
                        continue
                    assert step >= before[number], (entry.name, step, before[number])
                    assert mode >= before[number] or before[number] == 0, (entry.name, mode)
        assert {str(number) for number in range(FILES)} <= seen
def run(work, *arguments):
    try:
        work(*arguments)
    except BaseException as error:
        failed.append(error)
        is_over.set()
changers = [threading.Thread(target=run, args=(change, part)) for part in range(2)]
others = [threading.Thread(target=run, args=(look,)) for _ in range(3)]
[thread.start() for thread in changers + others]
[thread.join() for thread in changers]
is_over.set()
[thread.join() for thread in others]
assert not failed, failed
for number in range(FILES):
    found = os.lstat(f'd/{number}')
    assert (found.st_size, stat.S_IMODE(found.st_mode)) == (ROUNDS * 5000, ROUNDS)
";

#[test]
pub(crate) fn attributes_are_true_while_files_change() {
    let mounted = Mounted::new();
    python(&mounted.path(), CHANGE_WHILE_LISTED, &[]);
    mounted.finish();
}

/// A file that was listed and never opened is used after it has lost its name, by a program that
/// refers to it.
#[test]
pub(crate) fn listed_files_outlive_their_names() {
    let mut mounted = Mounted::new();
    mounted.shell("mkdir d; for n in a b c; do echo $n > d/$n; done; echo new > d/new");
    mounted.unmount();
    mounted.mount(&[]);
    python(
        &mounted.path(),
        r"
import os

os.listdir('d')
files = {name: os.open(f'd/{name}', os.O_PATH) for name in 'abc'}
os.unlink('d/a')
os.rename('d/new', 'd/b')
for name, fd in files.items():
    found = os.fstat(fd)
    assert found.st_nlink == (1 if name == 'c' else 0), (name, found)
    with open(f'/proc/self/fd/{fd}') as file:
        assert file.read() == f'{name}\n', name
",
        &[],
    );
    mounted.finish();
}

/// Attributes that came with a listing follow changes by another name, through another mount, by an
/// ioctl.
#[test]
pub(crate) fn listed_attributes_follow_changes() {
    let mut mounted = Mounted::new();
    mounted.shell("mkdir d; for n in a b c; do echo $n > d/$n; done; ln d/a second");
    mounted.unmount();
    mounted.mount(&[]);
    let further = mounted.folder().join("further");
    std::fs::create_dir(&further).unwrap();
    succeed(larder().arg("mount").arg(mounted.image()).arg(&further));
    let script = r"
import os, subprocess, sys

further = sys.argv[1]
for place in ('.', further):
    for entry in os.scandir(f'{place}/d'):
        assert entry.stat().st_size == 2
os.truncate('second', 100000)
assert os.stat('d/a').st_size == os.stat(f'{further}/d/a').st_size == 100000
os.chmod(f'{further}/d/b', 0o400)
assert os.stat('d/b').st_mode & 0o777 == 0o400
with open(f'{further}/second', 'ab') as file:
    file.write(b'x' * 5000)
assert os.stat('d/a').st_size == 105000
assert os.stat('d/a').st_blocks * 512 == 12288
before = os.stat('d/c').st_ctime_ns
subprocess.check_call(['chattr', '+d', f'{further}/d/c'])
assert os.stat('d/c').st_ctime_ns > before
";
    python(&mounted.path(), script, &[further.to_str().unwrap()]);
    succeed(Command::new("umount").arg(&further));
    mounted.finish();
}
