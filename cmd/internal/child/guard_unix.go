//go:build unix

package child

import (
	"errors"
	"syscall"
)

// awaitEnd waits for the program itself.
func awaitEnd(pid int, ended chan<- syscall.WaitStatus) {
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &status, 0, nil); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	ended <- status
}
