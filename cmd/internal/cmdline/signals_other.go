//go:build !unix

package cmdline

import "os"

// programSignals is empty, because commands do not run programs on these systems.
var programSignals []os.Signal

// IgnoreBrokenPipe does nothing on this system.
func IgnoreBrokenPipe() {}

// ReapChildren does nothing on this system.
func ReapChildren() {}
