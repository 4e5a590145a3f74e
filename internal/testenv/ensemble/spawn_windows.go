package ensemble

// Windows has neither the Debian package nor the signals that freeze a
// process: there the servers run in Docker.

import (
	"errors"
	"os"
	"os/exec"
)

var errNoProcesses = errors.New("child processes are not supported on Windows")

type spawner struct{}

func newSpawner() *spawner { return &spawner{} }

func (*spawner) start(*exec.Cmd) error { return errNoProcesses }

func (*spawner) close() {}

func freeze(*os.Process) error { return errNoProcesses }

func thaw(*os.Process) error { return errNoProcesses }
