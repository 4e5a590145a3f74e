package ensemble

// What a program leaves behind when it is killed before Close: directories
// and, with Docker, containers and networks. Each bears the number of the
// process that made it, so that a later Start on the same machine can tell and
// remove it.

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const dirPrefix = "zk-ensemble-"

// makeDir makes a directory that bears our process number.
func makeDir() (string, error) {
	return os.MkdirTemp("", fmt.Sprintf("%s%d-", dirPrefix, os.Getpid()))
}

// removeStaleDirs removes the directories of processes that are gone. It is
// housekeeping: what cannot be removed stays.
func removeStaleDirs() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*"))
	for _, dir := range dirs {
		pid, _, ok := strings.Cut(strings.TrimPrefix(filepath.Base(dir), dirPrefix), "-")
		if ok && ownerGone(pid) {
			os.RemoveAll(dir)
		}
	}
}

// ownerLabel marks containers and networks with the machine and the process
// they belong to. A Docker engine may serve several machines.
const ownerLabel = "leaderelection.ensemble.owner"

func ownerValue() string {
	host, _ := os.Hostname() // empty is as good a name as any
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

// staleOwner says whether the process behind an owner label is gone. About
// other machines it cannot know, and says no.
func staleOwner(label string) bool {
	host, pid, ok := strings.Cut(label, "/")
	here, _ := os.Hostname()
	return ok && host == here && ownerGone(pid)
}

func ownerGone(text string) bool {
	pid, err := strconv.Atoi(text)
	return err == nil && pid > 0 && !processRuns(pid)
}
