package transport

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unsent is the maximum number of bytes that the kernel buffers before it sends them.
const unsent = 128 << 10

// limitUnsent limits the unsent data in the kernel, so that frames wait in the queues of this package,
// where urgent frames overtake others. It does not limit data that was sent and not acknowledged.
func limitUnsent(conn net.Conn) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	// Ignore errors: without the limit, urgent frames only arrive later.
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent)
	})
}
