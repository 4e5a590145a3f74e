package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	// minFreeMemory is the free space that the file system in memory must have so that DirParent uses it. A new
	// PostgreSQL server uses 40 MB.
	minFreeMemory = 2 << 30
	// memoryDir is the file system in memory of Linux, to which every user may write.
	memoryDir = "/dev/shm"
)

// DirParent returns the directory in which MakeDir creates directories. It is in memory if possible: on a busy disk
// a sync can take a second, and leaders would then lose their leases in tests of something else. A server that is
// killed loses no data; only a crash of the machine would lose data in memory. Benchmarks set TMPDIR, so that
// servers sync their data to that directory.
func DirParent() string {
	if OnDisk() {
		return os.TempDir()
	}
	return memoryDir
}

// OnDisk reports whether MakeDir creates directories on a disk, to which servers must sync their data: TMPDIR is
// set, or the file system in memory has too little free space.
func OnDisk() bool { return os.Getenv("TMPDIR") != "" || freeMemory(memoryDir) < minFreeMemory }

// MakeDir creates an empty directory for a server. The name of the directory begins with kind and the ID of this
// process. MakeDir also removes directories of the same kind that processes which do not run any more have left
// behind, and ignores errors of this removal.
func MakeDir(kind string) (string, error) {
	dirs, _ := filepath.Glob(filepath.Join(DirParent(), kind+"-*"))
	for _, dir := range dirs {
		pid, _, ok := strings.Cut(strings.TrimPrefix(filepath.Base(dir), kind+"-"), "-")
		if ok && ProcessGone(pid) {
			_ = os.RemoveAll(dir)
		}
	}
	return os.MkdirTemp(DirParent(), fmt.Sprintf("%s-%d-", kind, os.Getpid()))
}

// ProcessGone reports whether pid is the ID of a process that does not exist any more. It
// returns false if pid is not a number.
func ProcessGone(pid string) bool {
	n, err := strconv.Atoi(pid)
	return err == nil && n > 0 && !processExists(n)
}
