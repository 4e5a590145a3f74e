// Package serverdir makes the folders of the servers that tests start: in memory where there is
// some, since a disk that takes a second for a sync (another program's writes are enough) makes
// leaders lose their leases in tests about something else. Nothing is lost by it when a server
// is killed, only when the machine is.
//
// With TMPDIR set, servers are there and sync what they write: benchmarks want that.
package serverdir

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// room is what the memory's file system must have left: a new PostgreSQL takes 40 MB.
const room = 2 << 30

// memory is where Linux has a file system in memory that everybody may write to.
const memory = "/dev/shm"

// Parent is where Make makes folders.
func Parent() string {
	if OnDisk() {
		return os.TempDir()
	}
	return memory
}

// OnDisk tells that servers are to sync their data, or cannot keep it in memory.
func OnDisk() bool { return os.Getenv("TMPDIR") != "" || free(memory) < room }

// Make makes an empty folder, whose name begins with kind and the number of this process. It
// removes the folders of that kind that processes have left behind that are gone; what cannot
// be removed stays.
func Make(kind string) (string, error) {
	left, _ := filepath.Glob(filepath.Join(Parent(), kind+"-*"))
	for _, dir := range left {
		pid, _, ok := strings.Cut(strings.TrimPrefix(filepath.Base(dir), kind+"-"), "-")
		if ok && Gone(pid) {
			_ = os.RemoveAll(dir)
		}
	}
	return os.MkdirTemp(Parent(), fmt.Sprintf("%s-%d-", kind, os.Getpid()))
}

// Gone tells that no process has this number.
func Gone(pid string) bool {
	n, err := strconv.Atoi(pid)
	return err == nil && n > 0 && !runs(n)
}
