"""Runs a program on a terminal of its own: python3 real-terminal.py COLUMNS ROWS COMMAND...

Lines on standard input steer it: `keys "JSON text"`, `size COLUMNS ROWS`, `signal NUMBER`. What the program writes comes
on standard output; at its end a line of JSON on standard error tells how it ended and how it left the terminal.
"""
import fcntl, json, os, select, signal, struct, subprocess, sys, termios


def set_size(fd, columns, rows):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", int(rows), int(columns), 0, 0))


def own_terminal():
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


master, slave = os.openpty()
set_size(slave, sys.argv[1], sys.argv[2])
child = subprocess.Popen(sys.argv[3:], stdin=slave, stdout=slave, stderr=slave, preexec_fn=own_terminal)
steering = b""
inputs = [master, 0]
while True:
    ended = child.poll() is not None
    ready, _, _ = select.select(inputs, [], [], 0 if ended else 0.05)
    if master in ready:
        data = os.read(master, 65536)
        os.write(1, data)
    if 0 in ready:
        more = os.read(0, 65536)
        if not more:
            child.kill()
            inputs.remove(0)
        steering += more
        *lines, steering = steering.split(b"\n")
        for line in lines:
            what, _, rest = line.decode().partition(" ")
            if what == "keys":
                os.write(master, json.loads(rest).encode())
            elif what == "size":
                set_size(slave, *rest.split())
            elif what == "signal" and child.poll() is None:
                os.kill(child.pid, int(rest))
    if ended and master not in ready:
        break
modes = termios.tcgetattr(slave)[3]
is_cooked = all(modes & flag for flag in (termios.ECHO, termios.ICANON, termios.ISIG))
print(json.dumps({"code": child.returncode, "isCooked": is_cooked}), file=sys.stderr)
