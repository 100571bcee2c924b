# Writes all pages of a file at once, asynchronously and around the kernel's cache, while two
# processes read them through it; and once more reads each when its write has ended.
import ctypes, mmap, os, signal, struct

PAGE, PAGES, ROUNDS = 4096, 16, 600
IO_SETUP, IO_GETEVENTS, IO_SUBMIT = 206, 208, 209
IOCB_CMD_PWRITE = 1
IOCB, EVENT = struct.Struct('=QIIHhIQQqQII'), struct.Struct('=QQqq')

c = ctypes.CDLL(None, use_errno=True)
context = ctypes.c_ulong(0)
assert c.syscall(IO_SETUP, PAGES, ctypes.byref(context)) == 0, ctypes.get_errno()
with open('f', 'wb') as file:
    file.write(bytes(PAGE * PAGES))
direct = os.open('f', os.O_RDWR | os.O_DIRECT)
cached = os.open('f', os.O_RDONLY)
buffer = mmap.mmap(-1, PAGE * PAGES)
address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
events = ctypes.create_string_buffer(EVENT.size * PAGES)


def submit(page):
    at = page * PAGE
    request = IOCB.pack(page, 0, 0, IOCB_CMD_PWRITE, 0, direct, address + at, PAGE, at, 0, 0, 0)
    request = ctypes.create_string_buffer(request)
    requests = (ctypes.c_void_p * 1)(ctypes.addressof(request))
    assert c.syscall(IO_SUBMIT, context, 1, requests) == 1, ctypes.get_errno()
    return request


def read_for_ever():
    while True:
        for page in range(PAGES):
            os.pread(cached, 1, page * PAGE)


readers = []
for _ in range(2):
    reader = os.fork()
    if reader == 0:
        read_for_ever()
    readers.append(reader)
try:
    for number in range(1, ROUNDS):
        value = number % 256
        buffer[:] = bytes([value]) * len(buffer)
        requests = [submit(page) for page in range(PAGES)]
        assert c.syscall(IO_GETEVENTS, context, PAGES, PAGES, events, None) == PAGES
        written = [event[2] for event in EVENT.iter_unpack(events.raw[:EVENT.size * PAGES])]
        assert written == [PAGE] * PAGES, written
        seen = [os.pread(cached, 1, page * PAGE)[0] for page in range(PAGES)]
        assert seen == [value] * PAGES, (number, value, seen)
finally:
    for reader in readers:
        os.kill(reader, signal.SIGKILL)
        os.waitpid(reader, 0)
