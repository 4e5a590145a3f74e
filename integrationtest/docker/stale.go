package docker

// What a program leaves behind when it is killed before Close: containers
// and networks. Each bears the number of the process that made it, so that a later
// Start on the same machine can tell and remove it.

import (
	"fmt"
	"os"
	"strings"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

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
	return ok && host == here && testenv.ProcessGone(pid)
}
