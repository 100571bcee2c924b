// Every function: its results, its errors, and what it does with nonsense. calls IMAGE

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/fs.h>

#include <larder.h>

#define FAILS(call, number) assert((call) == -(number) && errno == (number) && *larder_last_error())
#define IS_NULL(call, number) assert(!(call) && errno == (number) && *larder_last_error())
#define THREADS 4
#define LINES 5000

static const char *images[1];

static void opening(void)
{
    const char *none[] = {"/nonexistent/disk.img"};

    IS_NULL(larder_open(none, 1, 0), ENOENT);
    assert(strstr(larder_last_error(), "/nonexistent/disk.img"));
    IS_NULL(larder_open(NULL, 1, 0), EFAULT);
    IS_NULL(larder_open(images, 0, 0), EINVAL);
    IS_NULL(larder_open(images, 1, 1u << 31), EINVAL);
    FAILS(larder_mkfs(none, 1, 256 << 20, NULL, false), ENOENT);
    FAILS(larder_mkfs(images, 1, 256 << 20, "\xff", true), EINVAL);
    assert(larder_mkfs(images, 1, 256 << 20, NULL, false) == 0);
    FAILS(larder_mkfs(images, 1, 0, NULL, false), EEXIST);

    struct larder_fs *fs = larder_open(images, 1, LARDER_OPEN_WRITE);
    assert(fs);
    IS_NULL(larder_open(images, 1, LARDER_OPEN_WRITE), EBUSY);
    assert(larder_close(fs) == 0 && larder_close(NULL) == 0);

    fs = larder_open(images, 1, 0);
    assert(fs);
    FAILS(larder_mkdir(fs, "/x", 0755), EROFS);
    FAILS(larder_snapshot(fs, "/", "/x", true), EROFS);
    assert(larder_sync(fs) == 0 && larder_close(fs) == 0);
    FAILS(larder_sync(NULL), EFAULT);
}

static void names(struct larder_fs *fs)
{
    struct stat found;
    char target[8];

    assert(larder_mkdir(fs, "/a", 0750) == 0);
    FAILS(larder_mkdir(fs, "/a", 0750), EEXIST);
    FAILS(larder_mkdir(fs, NULL, 0750), EFAULT);
    FAILS(larder_mkdir(fs, "/none/a", 0750), ENOENT);
    assert(larder_stat(fs, "a", &found) == 0 && found.st_mode == (S_IFDIR | 0750));
    FAILS(larder_stat(fs, "/none", &found), ENOENT);
    FAILS(larder_stat(fs, "/a", NULL), EFAULT);
    assert(larder_symlink(fs, "nowhere", "/a/link") == 0);
    FAILS(larder_stat(fs, "/a/link", &found), ENOENT);
    assert(larder_lstat(fs, "/a/link", &found) == 0 && S_ISLNK(found.st_mode));
    assert(larder_readlink(fs, "/a/link", target, 4) == 4 && !memcmp(target, "nowh", 4));
    assert(larder_readlink(fs, "/a/link", target, 8) == 7);
    assert(larder_readlink(fs, "/a", target, 8) == -1 && errno == EINVAL);
    assert(larder_link(fs, "/a/link", "/a/again") == 0);
    assert(larder_rename(fs, "/a/again", "/a/moved") == 0);
    FAILS(larder_rename(fs, "/a/again", "/a/moved"), ENOENT);
    FAILS(larder_unlink(fs, "/a"), EISDIR);
    FAILS(larder_rmdir(fs, "/a"), ENOTEMPTY);
    assert(larder_unlink(fs, "/a/moved") == 0 && larder_unlink(fs, "/a/link") == 0);
    assert(larder_rmdir(fs, "/a") == 0);
}

static void files(struct larder_fs *fs)
{
    struct stat found;
    char data[16];
    struct larder_file *file = larder_file_open(fs, "/file", O_RDWR | O_CREAT | O_EXCL, 0600);

    assert(file);
    assert(larder_pwrite(file, "0123456789", 10, 5) == 10);
    assert(larder_pread(file, data, 16, 3) == 12 && !memcmp(data, "\0\0" "012", 5));
    assert(larder_pread(file, data, 16, UINT64_MAX) == 0);
    assert(larder_pread(file, NULL, 16, 0) == -1 && errno == EFAULT);
    assert(larder_pread(file, NULL, 0, 0) == 0);
    assert(larder_pwrite(file, "x", 1, UINT64_MAX) == -1 && errno == EFBIG);
    assert(larder_ftruncate(file, 7) == 0 && larder_fsync(file) == 0);
    FAILS(larder_ftruncate(file, UINT64_MAX), EFBIG);
    assert(larder_fstat(file, &found) == 0 && found.st_size == 7);
    assert(found.st_mode == (S_IFREG | 0600) && found.st_nlink == 1 && found.st_mtime > 1700000000);
    assert(larder_file_close(file) == 0 && larder_file_close(NULL) == 0);

    IS_NULL(larder_file_open(fs, "/file", O_RDWR | O_CREAT | O_EXCL, 0600), EEXIST);
    IS_NULL(larder_file_open(fs, "/none", O_RDWR, 0), ENOENT);
    IS_NULL(larder_file_open(fs, "/", O_RDONLY, 0), EISDIR);
    IS_NULL(larder_file_open(fs, "/file", O_RDONLY | O_DIRECTORY, 0), EINVAL);

    file = larder_file_open(fs, "/file", O_WRONLY | O_APPEND, 0);
    assert(file && larder_pwrite(file, "end", 3, 0) == 3);
    assert(larder_pread(file, data, 16, 0) == -1 && errno == EBADF);
    larder_file_close(file);
    file = larder_file_open(fs, "/file", O_RDONLY, 0);
    assert(file && larder_pread(file, data, 16, 7) == 3 && !memcmp(data, "end", 3));
    assert(larder_pwrite(file, "x", 1, 0) == -1 && errno == EBADF);
    larder_file_close(file);
    file = larder_file_open(fs, "/file", O_WRONLY | O_TRUNC, 0);
    assert(file && larder_fstat(file, &found) == 0 && found.st_size == 0);
    larder_file_close(file);
}

static void attributes(struct larder_fs *fs)
{
    struct timespec times[2] = {{-5, 7}, {0, UTIME_OMIT}};
    struct stat before, found;
    uint32_t flags;

    larder_file_close(larder_file_open(fs, "/attributes", O_RDWR | O_CREAT, 0644));
    assert(larder_symlink(fs, "attributes", "/to-attributes") == 0);
    assert(larder_chmod(fs, "/to-attributes", 04751) == 0);
    assert(larder_stat(fs, "/attributes", &before) == 0 && before.st_mode == (S_IFREG | 04751));
    FAILS(larder_chmod(fs, "/none", 0), ENOENT);
    assert(larder_chown(fs, "/attributes", 7, -1, 0) == 0);
    assert(larder_chown(fs, "/to-attributes", -1, 8, AT_SYMLINK_NOFOLLOW) == 0);
    assert(larder_stat(fs, "/attributes", &found) == 0);
    assert(found.st_uid == 7 && found.st_gid == before.st_gid && found.st_mode == (S_IFREG | 0751));
    assert(larder_lstat(fs, "/to-attributes", &found) == 0);
    assert(found.st_uid == before.st_uid && found.st_gid == 8);
    FAILS(larder_chown(fs, "/attributes", 7, 7, 1), EINVAL);

    assert(larder_utimens(fs, "/attributes", times, 0) == 0);
    assert(larder_stat(fs, "/attributes", &found) == 0);
    assert(found.st_atim.tv_sec == -5 && found.st_atim.tv_nsec == 7);
    assert(found.st_mtim.tv_sec == before.st_mtim.tv_sec);
    assert(larder_utimens(fs, "/attributes", NULL, 0) == 0);
    assert(larder_stat(fs, "/attributes", &found) == 0 && found.st_atim.tv_sec > 1700000000);
    times[0].tv_nsec = 1000000000;
    FAILS(larder_utimens(fs, "/attributes", times, 0), EINVAL);

    assert(larder_truncate(fs, "/to-attributes", 5000) == 0);
    assert(larder_stat(fs, "/attributes", &found) == 0 && found.st_size == 5000);
    FAILS(larder_truncate(fs, "/", 0), EISDIR);
    FAILS(larder_truncate(fs, "/attributes", UINT64_MAX), EFBIG);

    assert(larder_get_flags(fs, "/attributes", &flags) == 0 && flags == 0);
    assert(larder_set_flags(fs, "/attributes", FS_NODUMP_FL | FS_IMMUTABLE_FL) == 0);
    assert(larder_get_flags(fs, "/attributes", &flags) == 0);
    assert(flags == (FS_NODUMP_FL | FS_IMMUTABLE_FL));
    FAILS(larder_chmod(fs, "/attributes", 0644), EPERM);
    assert(larder_set_flags(fs, "/attributes", FS_NODUMP_FL) == 0);
    FAILS(larder_set_flags(fs, "/attributes", FS_ENCRYPT_FL), EOPNOTSUPP);
    FAILS(larder_set_flags(fs, "/attributes", FS_COMPR_FL | FS_NOCOW_FL), EINVAL);
    FAILS(larder_get_flags(fs, "/attributes", NULL), EFAULT);
}

static void xattrs(struct larder_fs *fs)
{
    const char *path = "/attributes", *link = "/to-attributes";
    char value[8], list[32];

    assert(larder_setxattr(fs, link, "user.a", "bread", 5, LARDER_XATTR_CREATE, 0) == 0);
    FAILS(larder_setxattr(fs, path, "user.a", "x", 1, LARDER_XATTR_CREATE, 0), EEXIST);
    FAILS(larder_setxattr(fs, path, "user.b", "x", 1, LARDER_XATTR_REPLACE, 0), ENODATA);
    FAILS(larder_setxattr(fs, path, "user.b", "x", 1, 3, 0), EINVAL);
    FAILS(larder_setxattr(fs, path, "strange.b", "x", 1, 0, 0), EOPNOTSUPP);
    FAILS(larder_setxattr(fs, path, "user.b", NULL, 1, 0, 0), EFAULT);
    assert(larder_setxattr(fs, path, "user.empty", NULL, 0, 0, 0) == 0);
    assert(larder_getxattr(fs, path, "user.a", NULL, 0, 0) == 5);
    assert(larder_getxattr(fs, link, "user.a", value, sizeof value, 0) == 5);
    assert(!memcmp(value, "bread", 5));
    assert(larder_getxattr(fs, path, "user.a", value, 4, 0) == -1 && errno == ERANGE);
    assert(larder_getxattr(fs, path, "user.b", value, 4, 0) == -1 && errno == ENODATA);
    assert(larder_getxattr(fs, link, "user.a", value, 8, AT_SYMLINK_NOFOLLOW) == -1);
    assert(errno == ENODATA);
    assert(larder_getxattr(fs, path, "user.empty", value, 8, 0) == 0);

    assert(larder_listxattr(fs, path, NULL, 0, 0) == 18);
    assert(larder_listxattr(fs, path, list, sizeof list, 0) == 18);
    assert(!strcmp(list, "user.a") || !strcmp(list, "user.empty"));
    assert(larder_listxattr(fs, path, list, 17, 0) == -1 && errno == ERANGE);
    assert(larder_removexattr(fs, path, "user.empty", 0) == 0);
    FAILS(larder_removexattr(fs, path, "user.empty", 0), ENODATA);
    FAILS(larder_removexattr(fs, NULL, "user.a", 0), EFAULT);
}

static void clones(struct larder_fs *fs)
{
    char data[8192], found[8192];
    struct larder_file *from = larder_file_open(fs, "/from", O_RDWR | O_CREAT, 0644);
    struct larder_file *to = larder_file_open(fs, "/to", O_RDWR | O_CREAT, 0644);
    struct larder_file *log = larder_file_open(fs, "/cannot", O_WRONLY | O_CREAT | O_APPEND, 0644);

    memset(data, 'c', sizeof data);
    assert(larder_pwrite(from, data, sizeof data, 0) == sizeof data);
    assert(larder_clone_range(from, 0, to, 4096, 0) == 0);
    assert(larder_pread(to, found, sizeof found, 4096) == sizeof found);
    assert(!memcmp(data, found, sizeof data));
    FAILS(larder_clone_range(from, 0, to, 1, 4096), EINVAL);
    FAILS(larder_clone_range(from, 0, to, 0, 1 << 20), EINVAL);
    FAILS(larder_clone_range(from, 0, log, 0, 0), EBADF);
    FAILS(larder_clone_range(log, 0, to, 0, 0), EBADF);
    FAILS(larder_clone_range(NULL, 0, to, 0, 0), EFAULT);
    assert(!larder_file_close(from) && !larder_file_close(to) && !larder_file_close(log));
    from = larder_file_open(fs, "/from", O_RDONLY, 0);
    FAILS(larder_clone_range(from, 0, from, 8192, 0), EBADF);
    larder_file_close(from);
}

static void directories(struct larder_fs *fs)
{
    struct larder_dirent entry;
    struct larder_dir *dir;
    char name[16];

    assert(larder_mkdir(fs, "/dir", 0755) == 0);
    for (int n = 0; n < 300; n++) {
        snprintf(name, sizeof name, "/dir/%d", n);
        assert(larder_mkdir(fs, name, 0755) == 0);
    }
    dir = larder_opendir(fs, "/dir");
    assert(dir);
    for (int n = 0; n < 300; n++) {
        assert(larder_readdir(dir, &entry) == 1 && atoi(entry.name) == n);
        assert(entry.inode > 256 && S_ISDIR(entry.type));
    }
    assert(larder_readdir(dir, &entry) == 0 && larder_readdir(dir, &entry) == 0);
    FAILS(larder_readdir(dir, NULL), EFAULT);
    assert(larder_closedir(dir) == 0 && larder_closedir(NULL) == 0);
    IS_NULL(larder_opendir(fs, "/file"), ENOTDIR);
}

static void subvolumes(struct larder_fs *fs)
{
    assert(larder_subvolume_create(fs, "/sub") == 0);
    assert(larder_snapshot(fs, "/sub", "/snapshot", true) == 0);
    FAILS(larder_mkdir(fs, "/snapshot/x", 0755), EROFS);
    FAILS(larder_snapshot(fs, "/dir", "/other", true), EINVAL);
    assert(larder_snapshot(fs, "/snapshot", "/other", false) == 0);
    assert(larder_mkdir(fs, "/other/x", 0755) == 0);
    assert(larder_subvolume_delete(fs, "/other") == 0);
    FAILS(larder_subvolume_delete(fs, "/dir"), EINVAL);
}

static bool list(const struct larder_subvolume *found, void *context)
{
    char *names = context;

    strcat(names, found->path);
    assert(found->id >= 256 && found->parent_id == 5 && found->created > 1700000000);
    assert(found->read_only == found->snapshot && found->generation > 0);
    assert(memcmp(found->uuid, (char[16]){0}, 16) != 0);
    assert((memcmp(found->parent_uuid, (char[16]){0}, 16) != 0) == found->snapshot);
    return strlen(names) < 10;
}

static void listing(struct larder_fs *fs)
{
    char names[64] = "";

    assert(larder_subvolume_list(fs, list, names) == 2 && !strcmp(names, "/sub/snapshot"));
    assert(larder_subvolume_list(fs, list, names) == 1);
    FAILS(larder_subvolume_list(fs, NULL, NULL), EFAULT);
    assert(larder_subvolume_set_read_only(fs, "/snapshot", false) == 0);
    assert(larder_mkdir(fs, "/snapshot/x", 0755) == 0);
    assert(larder_subvolume_set_read_only(fs, "/snapshot", true) == 0);
    FAILS(larder_subvolume_set_read_only(fs, "/dir", true), EINVAL);
}

static void streams(struct larder_fs *fs)
{
    struct stat found;
    FILE *stream = tmpfile();
    int fd = fileno(stream);

    assert(larder_mkdir(fs, "/sub/first", 0755) == 0);
    assert(larder_snapshot(fs, "/sub", "/one", true) == 0);
    assert(larder_mkdir(fs, "/sub/second", 0755) == 0);
    assert(larder_snapshot(fs, "/sub", "/two", true) == 0);
    FAILS(larder_send(fs, "/sub", NULL, fd), EPERM);
    FAILS(larder_send(fs, "/none", NULL, fd), ENOENT);
    FAILS(larder_send(fs, "/one", NULL, -1), EBADF);
    FAILS(larder_send(fs, "/one", NULL, 9999), EBADF);
    assert(larder_send(fs, "/one", NULL, fd) == 0);
    assert(larder_send(fs, "/two", "/one", fd) == 0);
    assert(lseek(fd, 0, SEEK_SET) == 0);
    assert(larder_mkdir(fs, "/received", 0755) == 0);
    assert(larder_receive(fs, "/received", fd) == 2);
    assert(larder_stat(fs, "/received/two/second", &found) == 0);
    FAILS(larder_mkdir(fs, "/received/two/third", 0755), EROFS);
    FAILS(larder_receive(fs, "/received", fd), EINVAL);
    FAILS(larder_receive(fs, "/none", fd), ENOENT);
    fclose(stream);
}

struct job {
    struct larder_fs *fs;
    int number;
};

static void *work(void *argument)
{
    struct job *job = argument;
    char name[16], data[4096], found[4096];

    memset(data, 'a' + job->number, sizeof data);
    snprintf(name, sizeof name, "/job%d", job->number);
    struct larder_file *file = larder_file_open(job->fs, name, O_RDWR | O_CREAT, 0644);
    assert(file);
    for (int n = 0; n < 100; n++) {
        assert(larder_pwrite(file, data, sizeof data, n * sizeof data) == sizeof data);
        assert(larder_pread(file, found, sizeof found, n * sizeof data) == sizeof found);
        assert(!memcmp(data, found, sizeof data));
    }
    larder_file_close(file);
    FAILS(larder_mkdir(job->fs, name, 0755), EEXIST);
    assert(strstr(larder_last_error(), name));
    return NULL;
}

static void threads(struct larder_fs *fs)
{
    pthread_t thread[THREADS];
    struct job jobs[THREADS];

    for (int n = 0; n < THREADS; n++) {
        jobs[n] = (struct job){fs, n};
        assert(pthread_create(&thread[n], NULL, work, &jobs[n]) == 0);
    }
    for (int n = 0; n < THREADS; n++)
        assert(pthread_join(thread[n], NULL) == 0);
}

static void count(const struct larder_finding *finding, void *context)
{
    assert(*finding->kind && *finding->location && *finding->message && finding->is_error);
    ++*(int *)context;
}

static void *append(void *argument)
{
    struct job *job = argument;
    char line[32];
    struct larder_file *file = larder_file_open(job->fs, "/log", O_WRONLY | O_CREAT | O_APPEND, 0644);

    assert(file);
    for (int n = 0; n < LINES; n++) {
        snprintf(line, sizeof line, "%d %05d\n", job->number, n);
        assert(larder_pwrite(file, line, 8, 0) == 8);
    }
    assert(larder_file_close(file) == 0);
    return NULL;
}

// Threads append one after the other: no line is lost.
static void appending(struct larder_fs *fs)
{
    pthread_t thread[THREADS];
    struct job jobs[THREADS];
    struct stat found;

    for (int n = 0; n < THREADS; n++) {
        jobs[n] = (struct job){fs, n};
        assert(pthread_create(&thread[n], NULL, append, &jobs[n]) == 0);
    }
    for (int n = 0; n < THREADS; n++)
        assert(pthread_join(thread[n], NULL) == 0);
    assert(larder_stat(fs, "/log", &found) == 0 && found.st_size == THREADS * LINES * 8);
}

// A full file system refuses data, and has what it had.
static void filling(struct larder_fs *fs)
{
    static char data[1 << 20];
    char start[4];
    struct larder_file *file = larder_file_open(fs, "/filling", O_RDWR | O_CREAT, 0644);
    uint64_t size = 0;

    assert(file);
    memset(data, 'f', sizeof data);
    while (larder_pwrite(file, data, sizeof data, size) == sizeof data)
        size += sizeof data;
    assert(errno == ENOSPC && strstr(larder_last_error(), "space"));
    assert(size > 100 << 20 && larder_sync(fs) == 0);
    assert(larder_pread(file, start, 4, 0) == 4 && !memcmp(start, "ffff", 4));
    assert(larder_file_close(file) == 0 && larder_unlink(fs, "/filling") == 0);
    assert(larder_sync(fs) == 0 && larder_mkdir(fs, "/after", 0755) == 0);
}

// Counts calls, and ends the work at the first one.
static bool enough(const struct larder_job *job, void *context)
{
    assert(*job->kind && !job->is_paused);
    ++*(int *)context;
    return false;
}

static bool more(const struct larder_job *job, void *context)
{
    assert(!strcmp(job->kind, context) && job->done_bytes < 1 << 30);
    return true;
}

// Devices come and go, everything moves, and is as it was.
static void devices(void)
{
    static char data[1 << 20];
    struct larder_job jobs[1];
    struct stat found;
    char second[4096], target[4096];
    const char *both[] = {images[0], second}, *left[] = {target};
    int calls = 0;

    snprintf(second, sizeof second, "%s.second", images[0]);
    snprintf(target, sizeof target, "%s.target", images[0]);
    unlink(second);
    unlink(target);
    assert(larder_mkfs(images, 1, 256 << 20, NULL, true) == 0);
    struct larder_fs *fs = larder_open(images, 1, LARDER_OPEN_WRITE);
    assert(fs);
    struct larder_file *file = larder_file_open(fs, "/file", O_WRONLY | O_CREAT, 0644);
    memset(data, 'd', sizeof data);
    for (int n = 0; n < 40; n++)
        assert(larder_pwrite(file, data, sizeof data, (uint64_t)n << 20) == sizeof data);
    assert(larder_file_close(file) == 0 && larder_sync(fs) == 0);

    assert(larder_jobs(fs, jobs, 1) == 0 && larder_jobs(fs, NULL, 0) == 0);
    FAILS(larder_jobs(fs, NULL, 1), EFAULT);
    assert(larder_cancel_jobs(fs, NULL, 0) == 0 && larder_cancel_jobs(fs, "scrub", 1) == 0);
    assert(larder_scrub(fs, false, more, "scrub") == 0);
    // Work may be over before it is told of.
    int ended = 0;
    ended = larder_scrub(fs, true, enough, &calls);
    assert((ended == -EINTR && errno == EINTR) || ended == 0);
    ended = larder_balance(fs, "", "", NULL, false, enough, &calls);
    assert((ended == -EINTR && errno == EINTR) || ended == 0);
    assert(larder_balance(fs, "usage=90", NULL, NULL, false, more, "balance") == 0);
    FAILS(larder_balance(fs, "usage=900", NULL, NULL, false, NULL, NULL), EINVAL);
    FAILS(larder_resume_balance(fs, NULL, NULL), ENOTCONN);
    assert(larder_pause_balance(fs) == 0 && larder_cancel_balance(fs) == 0);

    FAILS(larder_add_device(fs, second, 0, false), ENOENT);
    assert(larder_add_device(fs, second, 300 << 20, false) == 2);
    assert(larder_balance(fs, "convert=raid1", "convert=raid1", NULL, false, NULL, NULL) == 0);
    assert(larder_balance(fs, "convert=single", "convert=dup", NULL, false, NULL, NULL) == 0);
    assert(larder_close(fs) == 0);
    fs = larder_open(both, 2, LARDER_OPEN_WRITE);
    assert(fs && larder_remove_device(fs, 1, more, "remove") == 0);
    assert(larder_remove_device(fs, 2, NULL, NULL) < 0 && strstr(larder_last_error(), "only"));
    FAILS(larder_resize_device(fs, 7, LARDER_SIZE_MAX, NULL, NULL), ENODEV);
    assert(larder_replace_device(fs, 2, target, 280 << 20, false, true, more, "replace") == 0);
    assert(larder_cancel_replace(fs) == 0 && larder_resume_replace(fs, NULL, NULL) < 0);
    assert(larder_resize_device(fs, 2, 270 << 20, NULL, NULL) == 0);
    assert(larder_resize_device(fs, 2, LARDER_SIZE_MIN, more, "resize") == 0);
    assert(larder_resize_device(fs, 2, LARDER_SIZE_MAX, NULL, NULL) == 0);
    assert(larder_stat(fs, "/file", &found) == 0 && found.st_size == 40 << 20);
    assert(larder_close(fs) == 0);
    assert(larder_check(left, 1, LARDER_CHECK_DATA, NULL, NULL) == 0);
    assert(unlink(second) == 0 && unlink(target) == 0);
}

static void checking(void)
{
    int found = 0;

    assert(larder_check(images, 1, LARDER_CHECK_DATA, count, &found) == 0 && found == 0);
    FAILS(larder_check(images, 1, 1u << 31, NULL, NULL), EINVAL);
    FAILS(larder_check(images, 0, 0, NULL, NULL), EINVAL);

    int image = open(images[0], O_RDWR);
    char junk[4096];
    memset(junk, 7, sizeof junk);
    // The second superblock.
    assert(pwrite(image, junk, sizeof junk, 64 << 20) == sizeof junk && close(image) == 0);
    assert(larder_check(images, 1, 0, count, &found) == 1 && found == 1);
    assert(larder_check(images, 1, 0, NULL, NULL) == 1);
}

int main(int argc, char **argv)
{
    assert(argc > 1);
    images[0] = argv[1];
    opening();
    struct larder_fs *fs = larder_open(images, 1, LARDER_OPEN_WRITE);
    assert(fs);
    names(fs);
    files(fs);
    attributes(fs);
    xattrs(fs);
    clones(fs);
    directories(fs);
    subvolumes(fs);
    listing(fs);
    streams(fs);
    threads(fs);
    appending(fs);
    filling(fs);
    assert(larder_sync(fs) == 0 && larder_close(fs) == 0);
    checking();
    devices();
    return 0;
}
