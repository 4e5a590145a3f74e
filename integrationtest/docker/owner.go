package docker

import (
	"fmt"
	"os"
	"strings"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// ownerLabel is the label of containers and networks that names the machine and the process that have created them.
// If a process is killed before it calls Close, a later Start on the same machine removes its containers. The label
// contains the machine, because a Docker engine may serve several machines.
const ownerLabel = "leaderelection.ensemble.owner"

func ownerValue() string {
	host, _ := os.Hostname() // after an error, the name is empty
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

// isStaleOwner reports whether the process of an owner label does not exist any more. It returns
// false for a process on another machine.
func isStaleOwner(label string) bool {
	host, pid, ok := strings.Cut(label, "/")
	here, _ := os.Hostname()
	return ok && host == here && testenv.ProcessGone(pid)
}
