//go:build unix

package ensemble

// Signals that stop a process and let it run again.

import (
	"os"

	"github.com/go-leaderelection/leaderelection/internal/testenv/pause"
)

func freeze(p *os.Process) error { return pause.Stop(p) }

func thaw(p *os.Process) error { return pause.Continue(p) }
