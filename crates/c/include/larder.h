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

// Creates an empty subvolume. It is durable when this returns.
int larder_subvolume_create(struct larder_fs *fs, const char *path);

// Deletes a subvolume or snapshot with all that is in it.
int larder_subvolume_delete(struct larder_fs *fs, const char *path);

// Takes a snapshot of the subvolume at `from`, named `to`. It shares all data, and is durable when
// this returns.
int larder_snapshot(struct larder_fs *fs, const char *from, const char *to, bool read_only);

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
