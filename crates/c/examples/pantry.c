// Makes an image, puts a file on it, takes a snapshot, reads it, and copies it to another image:
// pantry IMAGE BACKUP
//
// cc pantry.c $(pkg-config --cflags --libs larder)

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <larder.h>

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, larder_last_error());
    exit(1);
}

static void write_file(struct larder_fs *fs, const char *path, const char *text)
{
    struct larder_file *file = larder_file_open(fs, path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (!file)
        fail(path);
    if (larder_pwrite(file, text, strlen(text), 0) < 0)
        fail(path);
    larder_file_close(file);
}

static void print_file(struct larder_fs *fs, const char *path)
{
    char start[64];
    struct larder_file *file = larder_file_open(fs, path, O_RDONLY, 0);
    if (!file)
        fail(path);
    ssize_t len = larder_pread(file, start, sizeof start, 0);
    if (len < 0)
        fail(path);
    printf("%s: %.*s\n", path, (int)len, start);
    larder_file_close(file);
}

// A backup elsewhere, as a stream that `btrfs receive` takes too.
static void back_up(struct larder_fs *fs, const char *snapshot, const char *image)
{
    const char *images[] = {image};
    FILE *stream = tmpfile();

    if (!stream || larder_send(fs, snapshot, NULL, fileno(stream)) < 0)
        fail(snapshot);
    rewind(stream);
    if (larder_mkfs(images, 1, 256 << 20, "backup", false) < 0)
        fail(image);
    struct larder_fs *backup = larder_open(images, 1, LARDER_OPEN_WRITE);
    if (!backup || larder_receive(backup, "/", fileno(stream)) < 0 || larder_close(backup) < 0)
        fail(image);
    fclose(stream);
}

static void list(struct larder_fs *fs, const char *path)
{
    struct larder_dirent entry;
    struct larder_dir *dir = larder_opendir(fs, path);
    int more;

    if (!dir)
        fail(path);
    while ((more = larder_readdir(dir, &entry)) > 0)
        printf("%s%s\n", entry.name, S_ISDIR(entry.type) ? "/" : "");
    if (more < 0)
        fail(path);
    larder_closedir(dir);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: pantry IMAGE BACKUP\n");
        return 2;
    }
    const char *images[] = {argv[1]};
    if (larder_mkfs(images, 1, 256 << 20, "pantry", false) < 0)
        fail("mkfs");
    struct larder_fs *fs = larder_open(images, 1, LARDER_OPEN_WRITE);
    if (!fs)
        fail(argv[1]);

    if (larder_mkdir(fs, "/notes", 0755) < 0)
        fail("/notes");
    write_file(fs, "/notes/today.txt", "bread, butter");
    if (larder_setxattr(fs, "/notes/today.txt", "user.shop", "corner", 6, 0, 0) < 0)
        fail("user.shop");
    // Shares all data, and takes milliseconds.
    if (larder_snapshot(fs, "/", "/monday", true) < 0)
        fail("/monday");
    write_file(fs, "/notes/today.txt", "jam");
    print_file(fs, "/notes/today.txt");
    print_file(fs, "/monday/notes/today.txt");
    list(fs, "/");
    back_up(fs, "/monday", argv[2]);

    if (larder_close(fs) < 0)
        fail("close");
    int findings = larder_check(images, 1, LARDER_CHECK_DATA, NULL, NULL);
    if (findings < 0)
        fail("check");
    printf("%d findings\n", findings);
    return findings > 0;
}
