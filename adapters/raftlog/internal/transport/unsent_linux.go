package transport

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unsent is how much the kernel takes before it is on the wire.
const unsent = 128 << 10

// keepUnsentSmall has a backlog wait in our queues, where what is urgent can overtake it, and
// not in the kernel's. What is on the wire is not limited.
func keepUnsentSmall(conn net.Conn) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	// Without it, or on a connection of another sort, everything works, only not as fast.
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent)
	})
}
