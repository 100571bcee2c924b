/*
 * btrfs in user space: file systems in image files and on devices, without kernel btrfs and without
 * root.
 *
 * Functions that return an int return 0 or a negative errno, functions that return a pointer NULL
 * with errno set, and functions that return a length -1 with errno set. larder_last_error() has the
 * text. All threads may use one file system and its files at once, and one thread at a
 * time a directory that is being listed.
 *
 * Paths start at the root of the default subvolume, with or without a slash. They are bytes, of any
 * encoding. Pointers must be valid; strings end with a zero.
 */

#ifndef LARDER_H
#define LARDER_H

/* Generated from the sources of larder-c: change those. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

// For larder_open(): for writing too. No other program can have the file system open for writing
// meanwhile.
#define LARDER_OPEN_WRITE 1

// For larder_open(): also if devices are missing, as long as the others are enough to read all.
#define LARDER_OPEN_DEGRADED 2

// For larder_setxattr(): the attribute must not exist. It is XATTR_CREATE of Linux.
#define LARDER_XATTR_CREATE 1

// For larder_setxattr(): the attribute must exist. It is XATTR_REPLACE of Linux.
#define LARDER_XATTR_REPLACE 2

// Bytes of the name of a kind of job, with the zero at its end.
#define LARDER_JOB_KIND_BYTES 16

// For larder_resize_device(): all of the device.
#define LARDER_SIZE_MAX UINT64_MAX

// For larder_resize_device(): as little as possible.
#define LARDER_SIZE_MIN 0

// For larder_check(): also read all data that has checksums.
#define LARDER_CHECK_DATA 1

// A directory that is being listed.
struct larder_dir;

// An open file.
struct larder_file;

// An open file system.
struct larder_fs;

// An entry of a directory.
struct larder_dirent {
    // The name. It stays as it is until the next call with this directory.
    const char *name;
    // The number of the inode.
    uint64_t inode;
    // The type: one of S_IFREG, S_IFDIR and so on.
    mode_t type;
};

// A subvolume or snapshot. The path is there only during the call.
struct larder_subvolume {
    // The path from the top level, with a slash before it, which need not be where the paths of
    // other functions start.
    const char *path;
    // Its id.
    uint64_t id;
    // The id of the subvolume that has its name.
    uint64_t parent_id;
    // The transaction that last changed it.
    uint64_t generation;
    // When it was created, in seconds since 1970.
    int64_t created;
    // Its UUID.
    uint8_t uuid[16];
    // The UUID of the subvolume that it is a snapshot of; zeros if it is none.
    uint8_t parent_uuid[16];
    // The UUID of the subvolume that it was received from; zeros if it was not received.
    uint8_t received_uuid[16];
    // Whether it is read-only.
    bool read_only;
    // Whether it was made as a snapshot.
    bool snapshot;
};

// Gets the subvolumes of larder_subvolume_list(), one by one. Returns true to go on.
typedef bool (*larder_subvolume_callback)(const struct larder_subvolume *subvolume, void *context);

// Long work on a file system, and how far it is.
struct larder_job {
    // "scrub", "balance", "replace", "remove", "resize", "convert", "complete" or "add".
    char kind[LARDER_JOB_KIND_BYTES];
    // Id of the device that it is about, or 0.
    uint64_t device;
    // Bytes that are done.
    uint64_t done_bytes;
    // Bytes to do, as far as it is known.
    uint64_t total_bytes;
    // Bytes in a second.
    uint64_t rate;
    // For how long it has run, in milliseconds.
    uint64_t duration_ms;
    // Whether it pauses.
    bool is_paused;
};

// Is told now and then how far long work is, in the thread that called for it. Work goes on while it
// returns true, and ends soon after it returned false: the call fails with EINTR then.
typedef bool (*larder_progress_callback)(const struct larder_job *job, void *context);

// Something that is wrong with a file system. The strings are there only during the call.
struct larder_finding {
    // The stable name of the kind: "link-count".
    const char *kind;
    // Where it is.
    const char *location;
    // What was found, and what was expected.
    const char *message;
    // Whether data is lost, or will be when the file system is written.
    bool is_error;
};

// Gets the findings of larder_check(), one by one.
typedef void (*larder_finding_callback)(const struct larder_finding *finding, void *context);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the text of the last error of the calling thread, in UTF-8. It stays as it is until the
// next error of this thread.
const char *larder_last_error(void);

// Opens the file system on `count` image files or block devices, in any order. `flags` are of
// LARDER_OPEN_*.
struct larder_fs *larder_open(const char *const *images, size_t count, unsigned int flags);

// Makes all changes durable, by a commit.
int larder_sync(struct larder_fs *fs);

// Makes all changes durable and frees the file system, also if that fails. Files and directories
// that are open must be closed before. NULL is ignored.
int larder_close(struct larder_fs *fs);

// The attributes of what is at `path`. `st_dev` is the id of the subvolume: with `st_ino` it is
// unique in the file system.
int larder_stat(struct larder_fs *fs, const char *path, struct stat *found);

// As larder_stat(), but a symbolic link at the end is not followed.
int larder_lstat(struct larder_fs *fs, const char *path, struct stat *found);

// Creates an empty directory. No umask applies to `mode`.
int larder_mkdir(struct larder_fs *fs, const char *path, mode_t mode);

// Removes an empty directory, which may be a subvolume.
int larder_rmdir(struct larder_fs *fs, const char *path);

// Removes a name that is not that of a directory.
int larder_unlink(struct larder_fs *fs, const char *path);

// Renames `from` to `to`, and replaces what is there: a file, or an empty directory.
int larder_rename(struct larder_fs *fs, const char *from, const char *to);

// Gives the file `from` the further name `to`.
int larder_link(struct larder_fs *fs, const char *from, const char *to);

// Creates a symbolic link to `target` at `path`.
int larder_symlink(struct larder_fs *fs, const char *target, const char *path);

// Copies the target of the symbolic link at `path` to `buffer`, without a zero after it, and as
// much of it as fits into `count` bytes. Returns how many were copied, as readlink(2).
ssize_t larder_readlink(struct larder_fs *fs, const char *path, char *buffer, size_t count);

// Changes the permissions of what is at `path`, as chmod(2). An ACL follows.
int larder_chmod(struct larder_fs *fs, const char *path, mode_t mode);

// Changes the owner and group of what is at `path`, as chown(2): an id of -1 stays. `flags` is 0,
// or AT_SYMLINK_NOFOLLOW. A file loses its set-user-ID bit and capabilities.
int larder_chown(struct larder_fs *fs, const char *path, uid_t uid, gid_t gid, int flags);

// Sets the times of last access, `times[0]`, and last modification, `times[1]`, of what is at
// `path`, as utimensat(2): `tv_nsec` may be UTIME_NOW or UTIME_OMIT, and if `times` is NULL both
// are now. `flags` is 0, or AT_SYMLINK_NOFOLLOW.
int larder_utimens(struct larder_fs *fs, const char *path, const struct timespec *times, int flags);

// Makes the file at `path` `size` bytes long, as truncate(2).
int larder_truncate(struct larder_fs *fs, const char *path, uint64_t size);

// Stores the flags of what is at `path` in `flags`: those of chattr(1), as FS_IOC_GETFLAGS of
// <linux/fs.h> has them.
int larder_get_flags(struct larder_fs *fs, const char *path, uint32_t *flags);

// Gives what is at `path` exactly these flags, as FS_IOC_SETFLAGS of <linux/fs.h>: FS_NOCOW_FL,
// FS_COMPR_FL and so on. Fails with EOPNOTSUPP for flags that cannot be changed, and with EINVAL
// for flags that exclude each other.
int larder_set_flags(struct larder_fs *fs, const char *path, uint32_t flags);

// Copies the value of the extended attribute `name` of what is at `path` to `value`, which has room
// for `size` bytes, as getxattr(2). Returns its length in bytes; with a `size` of 0 that is all.
// `flags` is 0, or AT_SYMLINK_NOFOLLOW. Fails with ENODATA if there is no such attribute, and with
// ERANGE if `size` is too small.
ssize_t larder_getxattr(struct larder_fs *fs,
                        const char *path,
                        const char *name,
                        void *value,
                        size_t size,
                        int flags);

// Copies the names of all extended attributes of what is at `path` to `list`, which has room for
// `size` bytes, with a zero after each, as listxattr(2). Returns their length in bytes; with a
// `size` of 0 that is all. `flags` is 0, or AT_SYMLINK_NOFOLLOW. Fails with ERANGE if `size` is too
// small.
ssize_t larder_listxattr(struct larder_fs *fs,
                         const char *path,
                         char *list,
                         size_t size,
                         int flags);

// Gives what is at `path` the extended attribute `name`, whose value is `size` bytes at `value`, as
// setxattr(2). The name has its namespace: "user.comment". `mode` is 0, LARDER_XATTR_CREATE or
// LARDER_XATTR_REPLACE, and `flags` 0 or AT_SYMLINK_NOFOLLOW. Fails with EEXIST or ENODATA as
// `mode` says, with ENOSPC if the value is too large, and with EOPNOTSUPP for an unknown namespace.
int larder_setxattr(struct larder_fs *fs,
                    const char *path,
                    const char *name,
                    const void *value,
                    size_t size,
                    int mode,
                    int flags);

// Removes the extended attribute `name` of what is at `path`. `flags` is 0, or AT_SYMLINK_NOFOLLOW.
// Fails with ENODATA if there is no such attribute.
int larder_removexattr(struct larder_fs *fs, const char *path, const char *name, int flags);

// Opens a file with the flags of open(2): O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL,
// O_TRUNC and O_APPEND. A new file gets the permissions `mode`; no umask applies.
struct larder_file *larder_file_open(struct larder_fs *fs,
                                     const char *path,
                                     int flags,
                                     mode_t mode);

// Reads up to `count` bytes from `offset` on. Returns how many: fewer only at the end.
ssize_t larder_pread(struct larder_file *file, void *buffer, size_t count, uint64_t offset);

// Writes all of `count` bytes at `offset`, or at the end of a file that was opened with O_APPEND.
// Returns `count`. It is durable after a sync.
ssize_t larder_pwrite(struct larder_file *file, const void *buffer, size_t count, uint64_t offset);

// Makes the file `size` bytes long.
int larder_ftruncate(struct larder_file *file, uint64_t size);

// Makes `count` bytes of `target` from `target_offset` on share the data of `source` from
// `source_offset` on: a reflink, as FICLONERANGE. A `count` of 0 means up to the end of `source`.
// Offsets and `count` are in bytes, and whole blocks, except for a range that ends with `source`.
// Both files are of one file system, and may be the same one. Fails with EXDEV for another file
// system, with EINVAL for other ranges, and with EBADF unless `source` is open for reading and
// `target` for writing and not for appending only.
int larder_clone_range(struct larder_file *source,
                       uint64_t source_offset,
                       struct larder_file *target,
                       uint64_t target_offset,
                       uint64_t count);

// Makes the file durable: far less work than larder_sync().
int larder_fsync(struct larder_file *file);

// The attributes of an open file, as larder_stat() has them.
int larder_fstat(struct larder_file *file, struct stat *found);

// Closes a file. NULL is ignored.
int larder_file_close(struct larder_file *file);

// Opens a directory for listing.
struct larder_dir *larder_opendir(struct larder_fs *fs, const char *path);

// Reads the next entry, in the order in which they were made, without "." and "..". Returns 1, 0
// if there are no more, or a negative errno for an entry that cannot be read: the next call goes
// on after it.
int larder_readdir(struct larder_dir *dir, struct larder_dirent *entry);

// Ends a listing. NULL is ignored.
int larder_closedir(struct larder_dir *dir);

// Creates an empty subvolume. It is durable when this returns.
int larder_subvolume_create(struct larder_fs *fs, const char *path);

// Deletes a subvolume or snapshot with all that is in it.
int larder_subvolume_delete(struct larder_fs *fs, const char *path);

// Takes a snapshot of the subvolume at `from`, named `to`. It shares all data, and is durable when
// this returns.
int larder_snapshot(struct larder_fs *fs, const char *from, const char *to, bool read_only);

// Makes a subvolume read-only, or not. It is durable when this returns.
int larder_subvolume_set_read_only(struct larder_fs *fs, const char *path, bool read_only);

// Calls `found` with each subvolume and `context`, in the order of their ids, without the top level
// and those that are being deleted, until it returns false. Returns how many it was called with.
int larder_subvolume_list(struct larder_fs *fs, larder_subvolume_callback found, void *context);

// Writes the read-only snapshot at `path` to the file descriptor `fd`, in the format of `btrfs
// send`: whole, or as the difference from the read-only snapshot at `parent` unless that is NULL.
// `fd` stays open. After an error, the beginning of a stream was written, which receivers
// recognize. A pipe without a reader raises SIGPIPE, as with write(2).
int larder_send(struct larder_fs *fs, const char *path, const char *parent, int fd);

// Reads streams of `btrfs send` from the file descriptor `fd` up to its end, and makes their
// snapshots in the directory at `path`. `fd` stays open. Returns how many there are. Each is
// read-only, and durable once it is complete; after an error, the unfinished one stays as a
// subvolume that can be changed.
int larder_receive(struct larder_fs *fs, const char *path, int fd);

// Fills `jobs` with the jobs that go on, at most `count` of them. Returns how many there are.
int larder_jobs(struct larder_fs *fs, struct larder_job *jobs, size_t count);

// Asks the jobs of this kind, or of all kinds if it is NULL, to end: those that are about the device
// of this id, or all if it is 0. Returns how many there were.
int larder_cancel_jobs(struct larder_fs *fs,
                       const char *kind,
                       uint64_t device);

// Verifies every copy of everything on all devices, and repairs bad ones from good ones unless
// `read_only`. Returns how many sectors have no good copy.
int larder_scrub(struct larder_fs *fs,
                 bool read_only,
                 larder_progress_callback progress,
                 void *context);

// Moves block groups: those of data, metadata and the chunk tree that the filters let pass, or all
// if all three are NULL. Filters are those of btrfs balance start: "usage=50,limit=2"; "" lets all
// of its kind pass. With `force` metadata may become less safe. Returns how many block groups found
// no room, and stayed.
int larder_balance(struct larder_fs *fs,
                   const char *data,
                   const char *metadata,
                   const char *system,
                   bool force,
                   larder_progress_callback progress,
                   void *context);

// Goes on with a balance that was paused or interrupted, also one of the kernel; as
// larder_balance(). ENOTCONN if there is none.
int larder_resume_balance(struct larder_fs *fs, larder_progress_callback progress, void *context);

// Ends the balance that goes on, so that it can be resumed. Returns 1, or 0 if there was none.
int larder_pause_balance(struct larder_fs *fs);

// Ends a balance, whether it goes on or pauses. Returns 1, or 0 if there was none.
int larder_cancel_balance(struct larder_fs *fs);

// Adds the block device or image at `device`, whose content is lost. An image that is not there is
// created, `size` bytes long. With `force`, existing content is overwritten. Returns its id.
int larder_add_device(struct larder_fs *fs, const char *device, uint64_t size, bool force);

// Moves everything on the device of this id to the others, and removes it; also if it is missing.
int larder_remove_device(struct larder_fs *fs,
                         uint64_t id,
                         larder_progress_callback progress,
                         void *context);

// Sets how many bytes of the device of this id the file system uses, or one of LARDER_SIZE_*. An
// image keeps its length.
int larder_resize_device(struct larder_fs *fs,
                         uint64_t id,
                         uint64_t size,
                         larder_progress_callback progress,
                         void *context);

// Copies everything on the device of this id to the one at `target`, which takes its place; `size`
// and `force` are those of larder_add_device(). With `avoid_source` the device is read only where no
// other copy is good. After an interruption larder_resume_replace() goes on.
int larder_replace_device(struct larder_fs *fs,
                          uint64_t id,
                          const char *target,
                          uint64_t size,
                          bool force,
                          bool avoid_source,
                          larder_progress_callback progress,
                          void *context);

// Goes on with a replace that was interrupted. The target is one of the devices that were opened.
int larder_resume_replace(struct larder_fs *fs, larder_progress_callback progress, void *context);

// Gives up a replace that goes on or was interrupted. Returns 1, or 0 if there was none.
int larder_cancel_replace(struct larder_fs *fs);

// Makes a file system on `count` image files or block devices. An image that is not there is
// created, `size` bytes long; with 0 devices are used whole. `label` may be NULL. With `force`,
// existing content is overwritten.
int larder_mkfs(const char *const *images,
                size_t count,
                uint64_t size,
                const char *label,
                bool force);

// Checks the file system on `count` images, which must not change meanwhile. `flags` are of
// LARDER_CHECK_*. Calls `found`, unless it is NULL, with each finding and `context`. Returns how
// many there are: 0 for a sound file system.
int larder_check(const char *const *images,
                 size_t count,
                 unsigned int flags,
                 larder_finding_callback found,
                 void *context);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LARDER_H */
