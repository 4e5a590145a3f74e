package transport

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unsent is the number of bytes that the kernel buffers before they are sent.
const unsent = 128 << 10

// limitUnsent limits the unsent data in the kernel, so that frames wait in the queues of this package,
// where urgent frames overtake others. Data that was sent and not acknowledged is not limited.
func limitUnsent(conn net.Conn) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	// Errors are ignored: without the limit, urgent frames only arrive later.
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent)
	})
}
